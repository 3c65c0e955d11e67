// Undeclared precisions, as far as they can be simulated.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include <fmt/format.h>

#include "oracle/gdn/compare/gate_sums.h"
#include "oracle/gdn/compare/hypotheses.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

namespace {

using Hypotheses = std::vector<Hypothesis>;

void add_parameters(Hypotheses& all) {
    add_prepared(all, "rounding", "beta is rounded to bf16", [](Lane& lane) {
        for (double& b : lane.beta) b = rounded_to(b, DType::bf16);
    });
    add_prepared(all, "rounding", "g is rounded to bf16", [](Lane& lane) {
        for (double& g : lane.gate) g = rounded_to(g, DType::bf16);
    });
    const auto parameter = [&](std::string text, double LaneInputs::* value) {
        add_given(all, "rounding", std::move(text), [value](LaneInputs& in, GdnContract& c, const LanePlace&) {
            const double rounded = rounded_to(in.*value, DType::bf16);
            const bool changes = c.g_kind == GateKind::raw && rounded != in.*value;
            in.*value = rounded;
            return changes;
        });
        all.back().rounding = true;
    };
    parameter("A_log is rounded to bf16 (store it as bf16 in the inputs to declare it)", &LaneInputs::A_log);
    parameter("dt_bias is rounded to bf16 (store it as bf16 in the inputs to declare it)", &LaneInputs::dt_bias);
}

// The gates of the lane in the form in which they are used, from sums in their given dtype.
void sum_narrow(Lane& lane, SumOrder order) {
    for (std::size_t first = 0; first < lane.tokens; first += lane.chunk) {
        const std::size_t rows = std::min(lane.chunk, lane.tokens - first);
        sum_gates_in(lane.gate_dtype, order, std::span(lane.gate).subspan(first, rows));
    }
}

void add_gate_sums(Hypotheses& all) {
    struct Order {
        SumOrder order;
        std::string_view text;
    };
    constexpr std::array k_orders = {Order{SumOrder::one_by_one, ""},
                                     Order{SumOrder::blocks_of_16, ", in blocks of 16"},
                                     Order{SumOrder::pairs, ", by a tree of pairs"}};
    const auto narrow = [](const LaneInputs& in, const GdnContract& c) {
        const bool stored_so = in.gate_dtype == DType::bf16 || in.gate_dtype == DType::f16;
        return stored_so && c.gate_sum == SumDType::f32;
    };
    for (const Order& o : k_orders) {
        const std::string text = fmt::format(
            "the gates of a chunk are summed in the dtype of g, not in f32{} (declare it: --set gate_sum=g", o.text);
        add_given(all, "gate", text + ")",
                  [narrow](LaneInputs& in, GdnContract& c, const LanePlace&) { return narrow(in, c); });
        all.back().prepared = [o](Lane& lane) { sum_narrow(lane, o.order); };
        all.back().rounding = true;
        // marin-01d1 does both.
        add_given(all, "gate", text + " --set rounding=input), and normalised q and k are rounded to their dtype",
                  [narrow](LaneInputs& in, GdnContract& c, const LanePlace&) {
                      const bool rounded = c.rounding == NormRounding::input || c.l2norm == L2Norm::off;
                      c.rounding = NormRounding::input;
                      return narrow(in, c) && !rounded && in.qk_dtype != DType::f32 && in.qk_dtype != DType::f64;
                  });
        all.back().prepared = [o](Lane& lane) { sum_narrow(lane, o.order); };
        all.back().rounding = true;
    }
}

void add_roundings(Hypotheses& all) {
    const auto bf16 = [](std::vector<double>& x) {
        for (double& value : x) value = rounded_to(value, DType::bf16);
    };
    const auto declared = [](const LaneInputs& in, const GdnContract& c) {
        const bool narrow = in.qk_dtype == DType::bf16 || in.qk_dtype == DType::f16;
        return narrow && c.l2norm != L2Norm::off && c.rounding == NormRounding::none;
    };
    add_given(all, "rounding", "normalised q and k are rounded to their dtype (declare it: --set rounding=input)",
              [declared](LaneInputs& in, GdnContract& c, const LanePlace&) {
                  const bool none = declared(in, c);
                  c.rounding = NormRounding::input;
                  return none;
              });
    add_given(all, "rounding", "normalised q and k are rounded to bf16",
              [declared](LaneInputs& in, GdnContract& c, const LanePlace&) {
                  return in.qk_dtype != DType::bf16 || !declared(in, c);
              });
    all.back().prepared = [bf16](Lane& lane) {
        bf16(lane.q);
        bf16(lane.k);
    };
    add_prepared(all, "rounding", "q is rounded to bf16", [bf16](Lane& lane) { bf16(lane.q); });
    add_prepared(all, "rounding", "k is rounded to bf16", [bf16](Lane& lane) { bf16(lane.k); });
    add_prepared(all, "rounding", "v is rounded to bf16", [bf16](Lane& lane) { bf16(lane.v); });
    add_given(all, "rounding", "q, k and v are rounded to bf16 on the way in",
              [bf16](LaneInputs& in, GdnContract&, const LanePlace&) {
                  bf16(in.q);
                  bf16(in.k);
                  bf16(in.v);
                  return true;
              });
    const auto each_token = [&](std::string_view when, LaneResult (*run)(const Lane&)) {
        add_given(
            all, "rounding",
            fmt::format("the state is kept in bf16 from token to token, {} (declare it: --set state_dtype=bf16-token)",
                        when),
            {});
        all.back().run = run;
        all.back().rounding = true;
    };
    each_token("and out is read from what is kept", run_lane_rounded);
    each_token("and out is read before it is stored", run_lane_rounded_late);
    add_given(all, "rounding",
              "normalised q and k are not rounded to their dtype although the contract has rounding=input",
              [](LaneInputs&, GdnContract& c, const LanePlace&) {
                  const bool rounded = c.rounding == NormRounding::input && c.l2norm != L2Norm::off;
                  c.rounding = NormRounding::none;
                  return rounded;
              });
}

}  // namespace

std::vector<Hypothesis> rounding_hypotheses() {
    Hypotheses all;
    add_parameters(all);
    add_gate_sums(all);
    add_roundings(all);
    return all;
}

}  // namespace gdnctl::oracle
