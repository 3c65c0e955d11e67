// Mistakes before the first product: what the tensors mean, and how they are prepared.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>

#include <fmt/format.h>

#include "oracle/gdn/compare/budget.h"
#include "oracle/gdn/compare/hypotheses.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

namespace {

using Hypotheses = std::vector<Hypothesis>;

void normalise_once_more(std::vector<double>& x, std::size_t width, double eps) {
    for (std::size_t at = 0; at < x.size(); at += width) {
        double squares = 0;
        for (std::size_t i = 0; i < width; ++i) squares += x[at + i] * x[at + i];
        const double factor = 1 / std::sqrt(squares + eps);
        for (std::size_t i = 0; i < width; ++i) x[at + i] *= factor;
    }
}

// eps outside the root: x / (|x| + eps).
void normalise_outside(std::vector<double>& x, std::size_t width, double eps) {
    for (std::size_t at = 0; at < x.size(); at += width) {
        double squares = 0;
        for (std::size_t i = 0; i < width; ++i) squares += x[at + i] * x[at + i];
        const double factor = 1 / (std::sqrt(squares) + eps);
        for (std::size_t i = 0; i < width; ++i) x[at + i] *= factor;
    }
}

// The head's values of `all`, one token later (1) or earlier (-1); `none` fills the ends of the sequence.
void shift(std::vector<double>& x, const std::vector<double>& all, int step, double none, const HeadSlice& place) {
    const GdnProblem& p = place.reference->problem;
    const GdnSequence s = p.sequences[place.sequence];
    for (std::size_t t = 0; t < x.size(); ++t) {
        const std::int64_t row = s.begin + static_cast<std::int64_t>(place.begin + t) - step;
        const bool inside = row >= s.begin && row < s.end;
        x[t] = inside ? all[static_cast<std::size_t>(row * p.dims.Hv) + place.head] : none;
    }
}

void add_norms(Hypotheses& all) {
    add_given(all, "l2norm", "q and k are not l2-normalised", [](HeadInputs&, GdnContract& c, const HeadSlice&) {
        const bool on = c.l2norm != L2Norm::off;
        c.l2norm = L2Norm::off;
        return on;
    });
    add_given(all, "l2norm", "q and k are l2-normalised although the contract has l2norm=off",
              [](HeadInputs&, GdnContract& c, const HeadSlice&) {
                  const bool off = c.l2norm == L2Norm::off;
                  c.l2norm = L2Norm::rsqrt;
                  return off;
              });
    for (const bool queries : {true, false}) {
        add_given(all, "l2norm", queries ? "q is not l2-normalised (k is)" : "k is not l2-normalised (q is)",
                  [queries](HeadInputs& in, GdnContract& c, const HeadSlice&) {
                      if (c.l2norm == L2Norm::off) return false;
                      c.l2norm = L2Norm::off;
                      normalise_once_more(queries ? in.k : in.q, in.dk, c.eps);
                      return true;
                  });
    }
    add_given(all, "l2norm", "q and k are l2-normalised twice", [](HeadInputs& in, GdnContract& c, const HeadSlice&) {
        if (c.l2norm == L2Norm::off) return false;
        normalise_once_more(in.q, in.dk, c.eps);
        normalise_once_more(in.k, in.dk, c.eps);
        return true;
    });
    add_given(all, "l2norm", "eps is added outside of the root: x / (|x| + eps)",
              [](HeadInputs& in, GdnContract& c, const HeadSlice&) {
                  if (c.l2norm == L2Norm::off) return false;
                  normalise_outside(in.q, in.dk, c.eps);
                  normalise_outside(in.k, in.dk, c.eps);
                  c.l2norm = L2Norm::off;
                  return true;
              });
    for (const double eps : {0.0, 1e-12, 1e-8, 1e-5, 1e-3}) {
        add_given(all, "l2norm",
                  eps == 0 ? "the l2norm has no eps"
                           : "the l2norm's eps is another (" +
                                 std::string(eps == 1e-12  ? "1e-12"
                                             : eps == 1e-8 ? "1e-8"
                                             : eps == 1e-5 ? "1e-5"
                                                           : "1e-3") +
                                 ")",
                  [eps](HeadInputs&, GdnContract& c, const HeadSlice&) {
                      c.eps = eps;
                      return c.l2norm != L2Norm::off;
                  });
    }
    add_given(all, "l2norm", "the l2norm divides by the mean square's root (RMS norm)",
              [](HeadInputs& in, GdnContract& c, const HeadSlice&) {
                  if (c.l2norm == L2Norm::off) return false;
                  for (auto* x : {&in.q, &in.k}) {
                      normalise_once_more(*x, in.dk, c.eps * static_cast<double>(in.dk));
                      for (double& value : *x) value *= std::sqrt(static_cast<double>(in.dk));
                  }
                  c.l2norm = L2Norm::off;
                  return true;
              });
}

void take_key_head(HeadInputs& in, const HeadSlice& place, std::size_t head) {
    const HeadInputs other = head_inputs(place, head, in.chunk, {});
    in.q = other.q;
    in.k = other.k;
}

void add_heads(Hypotheses& all) {
    for (const HeadMap map : {HeadMap::interleaved, HeadMap::tiled}) {
        add_given(all, "head_map",
                  map == HeadMap::tiled ? "the head map is tiled (key head h mod Hk)"
                                        : "the head map is interleaved (key head h div r)",
                  [map](HeadInputs& in, GdnContract& c, const HeadSlice& place) {
                      const GdnDims& d = place.reference->problem.dims;
                      const auto head = static_cast<std::int64_t>(place.head);
                      const auto own = key_head_of(head, d, c.head_map);
                      const auto other = key_head_of(head, d, map);
                      if (own == other) return false;
                      take_key_head(in, place, static_cast<std::size_t>(other));
                      return true;
                  });
    }
    for (const int step : {1, -1}) {
        add_given(all, "head_map",
                  step > 0 ? "q and k are those of the next key head" : "q and k are those of the key head before",
                  [step](HeadInputs& in, GdnContract& c, const HeadSlice& place) {
                      const GdnDims& d = place.reference->problem.dims;
                      const auto own = key_head_of(static_cast<std::int64_t>(place.head), d, c.head_map);
                      if (d.Hk < 2) return false;
                      take_key_head(in, place, static_cast<std::size_t>((own + step + d.Hk) % d.Hk));
                      return true;
                  });
    }
    add_given(all, "head_map", "q and k are those of key head 0",
              [](HeadInputs& in, GdnContract& c, const HeadSlice& place) {
                  const GdnDims& d = place.reference->problem.dims;
                  if (key_head_of(static_cast<std::int64_t>(place.head), d, c.head_map) == 0) return false;
                  take_key_head(in, place, 0);
                  return true;
              });
    add_given(all, "layout", "q and k are exchanged", [](HeadInputs& in, GdnContract&, const HeadSlice&) {
        std::swap(in.q, in.k);
        return true;
    });
}

std::size_t value_head_count(const GdnReference& r) { return static_cast<std::size_t>(r.problem.dims.Hv); }

// The window's columns of state `head` of `states`.
void take_state(HeadInputs& in, const HeadSlice& place, const std::vector<double>& states, std::size_t head) {
    const auto dv = static_cast<std::size_t>(place.reference->problem.dims.dv);
    for (std::size_t x = 0; x < in.dk; ++x) {
        for (std::size_t j = 0; j < in.columns; ++j) {
            in.state[x * in.columns + j] = states[(head * in.dk + x) * dv + place.columns[j]];
        }
    }
}

void add_states(Hypotheses& all) {
    add_given(all, "layout", "the initial state is read transposed",
              [](HeadInputs& in, GdnContract&, const HeadSlice& place) {
                  const GdnProblem& p = place.reference->problem;
                  if (!in.first || p.initial_state.empty()) return false;
                  const auto dk = static_cast<std::size_t>(p.dims.dk);
                  const auto dv = static_cast<std::size_t>(p.dims.dv);
                  const double* S = p.initial_state.data() +
                                    (place.sequence * static_cast<std::size_t>(p.dims.Hv) + place.head) * dk * dv;
                  for (std::size_t x = 0; x < dk; ++x) {
                      for (std::size_t j = 0; j < in.columns; ++j)
                          in.state[x * in.columns + j] = S[place.columns[j] * dk + x];
                  }
                  return true;
              });
    add_given(all, "carry", "the initial state is ignored", [](HeadInputs& in, GdnContract&, const HeadSlice& place) {
        if (!in.first || place.reference->problem.initial_state.empty()) return false;
        std::fill(in.state.begin(), in.state.end(), 0.0);
        std::fill(in.initial.begin(), in.initial.end(), 0.0);
        return true;
    });
    add_given(all, "carry", "the sequence starts from the final state of the one before",
              [](HeadInputs& in, GdnContract&, const HeadSlice& place) {
                  if (!in.first || place.sequence == 0) return false;
                  const GdnReference& r = *place.reference;
                  take_state(in, place, r.truth.final_state, (place.sequence - 1) * value_head_count(r) + place.head);
                  return true;
              });
    add_given(all, "carry", "no sequence starts anew: the state is carried through the whole pack",
              [](HeadInputs& in, GdnContract&, const HeadSlice& place) {
                  // Under the mistake above, the second sequence also starts from the first one's state.
                  if (!in.first || place.sequence < 2) return false;
                  in.state = state_carried_to(place);
                  return true;
              });
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

void add_betas(Hypotheses& all) {
    add_given(all, "beta", "beta is used as given, without the sigmoid",
              [](HeadInputs&, GdnContract& c, const HeadSlice&) {
                  const bool logit = c.beta_kind != BetaKind::prob;
                  c.beta_kind = BetaKind::prob;
                  return logit;
              });
    add_prepared(all, "beta", "the sigmoid is applied once more to beta", [](PreparedHead& head) {
        for (double& b : head.beta) b = sigmoid(b);
    });
    add_prepared(all, "beta", "beta is twice as large (2 sigmoid)", [](PreparedHead& head) {
        for (double& b : head.beta) b *= 2;
    });
    add_prepared(all, "beta", "beta is half as large (2 sigmoid taken for sigmoid)", [](PreparedHead& head) {
        for (double& b : head.beta) b /= 2;
    });
    add_prepared(all, "beta", "beta is 1 throughout",
                 [](PreparedHead& head) { std::fill(head.beta.begin(), head.beta.end(), 1.0); });
    add_prepared(all, "beta", "1 - beta is used for beta", [](PreparedHead& head) {
        for (double& b : head.beta) b = 1 - b;
    });
    add_prepared(all, "beta", "beta is squared (applied twice)", [](PreparedHead& head) {
        for (double& b : head.beta) b *= b;
    });
    add_prepared(all, "beta", "beta has the wrong sign", [](PreparedHead& head) {
        for (double& b : head.beta) b = -b;
    });
    add_given(
        all, "beta", "beta is that of the token before", [](HeadInputs& in, GdnContract& c, const HeadSlice& place) {
            shift(in.beta, place.reference->problem.beta, 1, c.beta_kind == BetaKind::prob ? 0 : -HUGE_VAL, place);
            return true;
        });
}

// g = -exp(A_log) softplus(a + dt_bias), with one part of it wrong.
void add_raw_gates(Hypotheses& all) {
    const auto raw = [&](std::string text, const std::function<double(double, double, double)>& gate) {
        add_given(all, "gate", std::move(text), [gate](HeadInputs& in, GdnContract& c, const HeadSlice&) {
            if (c.g_kind != GateKind::raw) return false;
            for (double& g : in.gate) g = gate(g, in.A_log, in.dt_bias);
            c.g_kind = GateKind::log;
            return true;
        });
    };
    const auto softplus = [](double z) { return z > 20 ? z : std::log1p(std::exp(z)); };
    raw("dt_bias is not added", [softplus](double a, double A, double) { return -std::exp(A) * softplus(a); });
    raw("softplus is missing", [](double a, double A, double dt) { return -std::exp(A) * (a + dt); });
    raw("A_log is used without exp", [softplus](double a, double A, double dt) { return -A * softplus(a + dt); });
    raw("A_log is ignored", [softplus](double a, double, double dt) { return -softplus(a + dt); });
    raw("the minus sign before exp(A_log) is missing",
        [softplus](double a, double A, double dt) { return std::exp(A) * softplus(a + dt); });
    raw("a is used as g", [](double a, double, double) { return a; });
}

void add_gates(Hypotheses& all) {
    add_given(all, "gate", "g is taken for alpha: its exp is never computed",
              [](HeadInputs&, GdnContract& c, const HeadSlice&) { return c.g_kind != GateKind::alpha; });
    all.back().run = run_head_by_factors;
    add_given(all, "gate", "alpha is taken for g: exp is applied to it",
              [](HeadInputs&, GdnContract& c, const HeadSlice&) {
                  const bool alpha = c.g_kind == GateKind::alpha;
                  c.g_kind = GateKind::log;
                  return alpha;
              });
    add_prepared(all, "gate", "exp is applied twice to g", [](PreparedHead& head) {
        for (double& g : head.gate) g = std::exp(g);
    });
    add_prepared(all, "gate", "g has the wrong sign", [](PreparedHead& head) {
        for (double& g : head.gate) g = -g;
    });
    add_prepared(all, "gate", "g is ignored (no decay)",
                 [](PreparedHead& head) { std::fill(head.gate.begin(), head.gate.end(), 0.0); });
    add_prepared(all, "gate", "the decay is 2^g instead of e^g", [](PreparedHead& head) {
        for (double& g : head.gate) g *= 0.6931471805599453;
    });
    add_prepared(all, "gate", "g is converted to base 2 but e^g is taken", [](PreparedHead& head) {
        for (double& g : head.gate) g /= 0.6931471805599453;
    });
    add_prepared(all, "gate", "the decay is applied twice", [](PreparedHead& head) {
        for (double& g : head.gate) g *= 2;
    });
    for (const int step : {1, -1}) {
        add_given(all, "gate", step > 0 ? "g is that of the token before" : "g is that of the next token",
                  [step](HeadInputs& in, GdnContract& c, const HeadSlice& place) {
                      // The gate that does not decay.
                      const double none = c.g_kind == GateKind::log ? 0 : c.g_kind == GateKind::alpha ? 1 : -HUGE_VAL;
                      shift(in.gate, place.reference->problem.gate, step, none, place);
                      return true;
                  });
    }
    add_prepared(all, "gate", "g is clamped to [-1, 0]", [](PreparedHead& head) {
        for (double& g : head.gate) g = std::clamp(g, -1.0, 0.0);
    });
    add_given(all, "gate", "the sums of gates inside a chunk are clipped to +-80 (declare it: --set exp_clip=80)",
              [](HeadInputs& in, GdnContract& c, const HeadSlice&) {
                  constexpr double k_clip = 80;  // Marin's
                  const double sum = std::accumulate(in.gate.begin(), in.gate.end(), 0.0,
                                                     [](double s, double g) { return s + std::fabs(g); });
                  const bool none = !c.exp_clip && (c.g_kind != GateKind::log || sum >= k_clip);
                  c.exp_clip = ExpClip{k_clip, false};
                  return none;
              });
    add_prepared(all, "gate", "positive g are clamped to 0", [](PreparedHead& head) {
        for (double& g : head.gate) g = std::min(g, 0.0);
    });
    add_raw_gates(all);
}

void add_scales(Hypotheses& all) {
    const auto scale = [&](std::string text, const std::function<double(double, double)>& value) {
        add_prepared(all, "scale", std::move(text),
                     [value](PreparedHead& head) { head.scale = value(head.scale, static_cast<double>(head.dk)); });
    };
    scale("the scale is missing", [](double, double) { return 1.0; });
    scale("the scale is applied twice", [](double s, double) { return s * s; });
    scale("the scale is 1/dk instead of 1/sqrt(dk)", [](double, double dk) { return 1 / dk; });
    scale("the scale is sqrt(dk) instead of 1/sqrt(dk)", [](double, double dk) { return std::sqrt(dk); });
    scale("the scale is dk instead of 1/sqrt(dk)", [](double, double dk) { return dk; });
    scale("the scale is 1/sqrt(dk) instead of the given one", [](double, double dk) { return 1 / std::sqrt(dk); });
    add_prepared(all, "scale", "the scale is applied to k too", [](PreparedHead& head) {
        for (double& k : head.k) k *= head.scale;
    });
}

}  // namespace

std::vector<Hypothesis> state_hypotheses(const GdnProblem& p) {
    Hypotheses all;
    const auto heads = static_cast<std::size_t>(p.dims.Hv);
    const std::size_t sequence_heads = p.initial_state.empty() ? 0 : p.sequences.size() * heads;
    constexpr std::size_t k_most = 64;
    for (std::size_t other = 0; other < sequence_heads; ++other) {
        const auto take = [other, heads, few = sequence_heads <= k_most](HeadInputs& in, GdnContract&,
                                                                         const HeadSlice& place) {
            const std::size_t own = place.sequence * heads + place.head;
            // If there are very many, only those of the same sequence and of the same head.
            const bool near = other / heads == place.sequence || other % heads == place.head;
            if (!in.first || other == own || !(few || near)) return false;
            take_state(in, place, place.reference->problem.initial_state, other);
            return true;
        };
        const std::string whose = p.sequences.size() == 1
                                      ? fmt::format("value head {}", other % heads)
                                      : fmt::format("sequence {}, value head {}", other / heads, other % heads);
        add_given(all, "carry", fmt::format("the initial state is that of another head or sequence ({})", whose), take);
        if (all.size() == 4 * k_most) break;
    }
    return all;
}

std::vector<Hypothesis> input_hypotheses() {
    Hypotheses all;
    add_norms(all);
    add_heads(all);
    add_states(all);
    add_betas(all);
    add_gates(all);
    add_scales(all);
    for (Hypothesis& h : rounding_hypotheses()) all.push_back(std::move(h));
    return all;
}

// Takes one input from another head.

namespace {

using Input = std::vector<double> HeadInputs::*;

struct HeadInput {
    std::string_view name;
    Input values;
    bool of_key_head;
};
constexpr HeadInput k_inputs[] = {{"q", &HeadInputs::q, true},
                                  {"k", &HeadInputs::k, true},
                                  {"v", &HeadInputs::v, false},
                                  {"g", &HeadInputs::gate, false},
                                  {"beta", &HeadInputs::beta, false}};

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
            h.given = [input, other](HeadInputs& in, GdnContract& c, const HeadSlice& place) {
                const auto own =
                    key_head_of(static_cast<std::int64_t>(place.head), place.reference->problem.dims, c.head_map);
                if (other == (input.of_key_head ? own : static_cast<std::int64_t>(place.head))) return false;
                HeadSlice from = place;
                if (!input.of_key_head) from.head = static_cast<std::size_t>(other);
                const std::int64_t key = input.of_key_head ? other : own;
                in.*input.values = head_inputs(from, static_cast<std::size_t>(key), in.chunk, {}).*input.values;
                return true;
            };
            all.push_back(std::move(h));
        }
    }
    return all;
}

// Undeclared precisions, as far as they can be simulated.

namespace {

void add_parameters(Hypotheses& all) {
    add_prepared(all, "rounding", "beta is rounded to bf16", [](PreparedHead& head) {
        for (double& b : head.beta) b = rounded_to(b, DType::bf16);
    });
    add_prepared(all, "rounding", "g is rounded to bf16", [](PreparedHead& head) {
        for (double& g : head.gate) g = rounded_to(g, DType::bf16);
    });
    const auto parameter = [&](std::string text, double HeadInputs::* value) {
        add_given(all, "rounding", std::move(text), [value](HeadInputs& in, GdnContract& c, const HeadSlice&) {
            const double rounded = rounded_to(in.*value, DType::bf16);
            const bool changes = c.g_kind == GateKind::raw && rounded != in.*value;
            in.*value = rounded;
            return changes;
        });
        all.back().rounding = true;
    };
    parameter("A_log is rounded to bf16 (store it as bf16 in the inputs to declare it)", &HeadInputs::A_log);
    parameter("dt_bias is rounded to bf16 (store it as bf16 in the inputs to declare it)", &HeadInputs::dt_bias);
}

// The gates of the head in the form in which they are used, from sums in their given dtype.
void sum_narrow(PreparedHead& head, SumOrder order) {
    for (std::size_t first = 0; first < head.tokens; first += head.chunk) {
        const std::size_t rows = std::min(head.chunk, head.tokens - first);
        sum_gates_in(head.gate_dtype, order, std::span(head.gate).subspan(first, rows));
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
    const auto narrow = [](const HeadInputs& in, const GdnContract& c) {
        const bool stored_so = in.gate_dtype == DType::bf16 || in.gate_dtype == DType::f16;
        return stored_so && c.gate_sum == SumDType::f32;
    };
    for (const Order& o : k_orders) {
        const std::string text = fmt::format(
            "the gates of a chunk are summed in the dtype of g, not in f32{} (declare it: --set gate_sum=g", o.text);
        add_given(all, "gate", text + ")",
                  [narrow](HeadInputs& in, GdnContract& c, const HeadSlice&) { return narrow(in, c); });
        all.back().prepared = [o](PreparedHead& head) { sum_narrow(head, o.order); };
        all.back().rounding = true;
        // marin-01d1 does both.
        add_given(all, "gate", text + " --set rounding=input), and normalised q and k are rounded to their dtype",
                  [narrow](HeadInputs& in, GdnContract& c, const HeadSlice&) {
                      const bool rounded = c.rounding == NormRounding::input || c.l2norm == L2Norm::off;
                      c.rounding = NormRounding::input;
                      return narrow(in, c) && !rounded && in.qk_dtype != DType::f32 && in.qk_dtype != DType::f64;
                  });
        all.back().prepared = [o](PreparedHead& head) { sum_narrow(head, o.order); };
        all.back().rounding = true;
    }
}

void add_roundings(Hypotheses& all) {
    const auto bf16 = [](std::vector<double>& x) {
        for (double& value : x) value = rounded_to(value, DType::bf16);
    };
    const auto declared = [](const HeadInputs& in, const GdnContract& c) {
        const bool narrow = in.qk_dtype == DType::bf16 || in.qk_dtype == DType::f16;
        return narrow && c.l2norm != L2Norm::off && c.rounding == NormRounding::none;
    };
    add_given(all, "rounding", "normalised q and k are rounded to their dtype (declare it: --set rounding=input)",
              [declared](HeadInputs& in, GdnContract& c, const HeadSlice&) {
                  const bool none = declared(in, c);
                  c.rounding = NormRounding::input;
                  return none;
              });
    add_given(all, "rounding", "normalised q and k are rounded to bf16",
              [declared](HeadInputs& in, GdnContract& c, const HeadSlice&) {
                  return in.qk_dtype != DType::bf16 || !declared(in, c);
              });
    all.back().prepared = [bf16](PreparedHead& head) {
        bf16(head.q);
        bf16(head.k);
    };
    add_prepared(all, "rounding", "q is rounded to bf16", [bf16](PreparedHead& head) { bf16(head.q); });
    add_prepared(all, "rounding", "k is rounded to bf16", [bf16](PreparedHead& head) { bf16(head.k); });
    add_prepared(all, "rounding", "v is rounded to bf16", [bf16](PreparedHead& head) { bf16(head.v); });
    add_given(all, "rounding", "q, k and v are rounded to bf16 on the way in",
              [bf16](HeadInputs& in, GdnContract&, const HeadSlice&) {
                  bf16(in.q);
                  bf16(in.k);
                  bf16(in.v);
                  return true;
              });
    const auto each_token = [&](std::string_view when, HeadResult (*run)(const PreparedHead&)) {
        add_given(
            all, "rounding",
            fmt::format("the state is kept in bf16 from token to token, {} (declare it: --set state_dtype=bf16-token)",
                        when),
            {});
        all.back().run = run;
        all.back().rounding = true;
    };
    each_token("and out is read from what is kept", run_head_rounded);
    each_token("and out is read before it is stored", run_head_rounded_late);
    add_given(all, "rounding",
              "normalised q and k are not rounded to their dtype although the contract has rounding=input",
              [](HeadInputs&, GdnContract& c, const HeadSlice&) {
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
