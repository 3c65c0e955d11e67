// Takes one input from another head.
#include <algorithm>

#include <fmt/format.h>

#include "oracle/gdn/compare/hypotheses.h"

namespace gdnctl::oracle {

namespace {

using Input = std::vector<double> LaneInputs::*;

struct HeadInput {
    std::string_view name;
    Input values;
    bool of_key_head;
};
constexpr HeadInput k_inputs[] = {{"q", &LaneInputs::q, true},
                                  {"k", &LaneInputs::k, true},
                                  {"v", &LaneInputs::v, false},
                                  {"g", &LaneInputs::gate, false},
                                  {"beta", &LaneInputs::beta, false}};

}  // namespace

std::vector<Hypothesis> head_hypotheses(const GdnProblem& p) {
    std::vector<Hypothesis> all;
    constexpr std::int64_t k_most = 64;
    for (const HeadInput& input : k_inputs) {
        const std::int64_t heads = std::min(k_most, input.of_key_head ? p.dims.Hk : p.dims.Hv);
        for (std::int64_t other = 0; heads > 1 && other < heads; ++other) {
            Hypothesis h;
            h.stage = "head_map";
            h.text =
                fmt::format("{} alone is that of {} head {}", input.name, input.of_key_head ? "key" : "value", other);
            h.given = [input, other](LaneInputs& in, GdnContract& c, const LanePlace& place) {
                const auto own =
                    key_head_of(static_cast<std::int64_t>(place.head), place.reference->problem.dims, c.head_map);
                if (other == (input.of_key_head ? own : static_cast<std::int64_t>(place.head))) return false;
                LanePlace from = place;
                if (!input.of_key_head) from.head = static_cast<std::size_t>(other);
                const std::int64_t key = input.of_key_head ? other : own;
                in.*input.values = lane_inputs(from, static_cast<std::size_t>(key), in.chunk, {}).*input.values;
                return true;
            };
            all.push_back(std::move(h));
        }
    }
    return all;
}

}  // namespace gdnctl::oracle
