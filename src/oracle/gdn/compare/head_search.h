// Compares a wrong head of the dump with the results of hypotheses.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include "oracle/gdn/compare/hypotheses.h"
#include "oracle/gdn/compare/localise.h"

namespace gdnctl::oracle {

inline constexpr std::size_t k_columns = 16;  // columns of v on which a hypothesis is simulated
inline constexpr std::size_t k_few = 4;       // of those; enough to reject most hypotheses

// The distance between the dump and some computed values, in units of the budget.
struct Misfit {
    double out = 0, state = 0;            // rms error over the window / budget
    double out_room = 1, state_room = 1;  // how much larger the computed values are than the truth
};

// A part of a head, and where the simulated fault is: everywhere in it, or in one chunk.
struct Window {
    HeadSlice place;
    std::size_t chunk = 64;
    std::optional<std::size_t> only;  // chunk of the sequence
    HeadInputs inputs;                // for the head's own key head
    HeadGrams grams;                  // of these inputs
    bool ends = false;                // at the end of the sequence, with a final state to compare
};

class HeadSearch {
public:
    HeadSearch(const GdnReference& r, const ForwardEvidence& evidence)
        : m_r(r), m_evidence(evidence), m_states(state_hypotheses(r.problem)) {
        for (Hypothesis& h : head_hypotheses(r.problem)) m_states.push_back(std::move(h));
        for (const Hypothesis& h : forward_hypotheses()) m_all.push_back(&h);
        for (const Hypothesis& h : m_states) m_all.push_back(&h);
    }
    HeadSearch(const HeadSearch&) = delete;
    HeadSearch& operator=(const HeadSearch&) = delete;

    const std::vector<const Hypothesis*>& hypotheses() const { return m_all; }

    // Chunks [first, first + count) of a head.
    Window window(std::size_t n, std::size_t head, std::size_t chunk, std::size_t first, std::size_t count,
                  std::optional<std::size_t> only, std::size_t columns = k_columns) const {
        Window w;
        const GdnSequence s = m_r.problem.sequences[n];
        const auto length = static_cast<std::size_t>(s.end - s.begin);
        w.place = {&m_r, n, head, std::min(first * chunk, length), 0, {}};
        w.place.tokens = std::min(count * chunk, length - w.place.begin);
        w.place.tokens = finite_tokens(w);
        w.chunk = chunk;
        w.only = only;
        w.ends = m_evidence.state && state_is_finite(n, head) && w.place.begin + w.place.tokens == length;
        w.place.columns.resize(static_cast<std::size_t>(m_r.problem.dims.dv));
        std::iota(w.place.columns.begin(), w.place.columns.end(), 0);
        w.place.columns = worst_columns(w, columns);
        const auto own = key_head_of(static_cast<std::int64_t>(head), m_r.problem.dims, m_r.contract.value.head_map);
        w.inputs = head_inputs(w.place, static_cast<std::size_t>(own), chunk, state_before(w.place));
        w.grams = grams_of(prepare_head(w.inputs, m_r.contract.value));
        return w;
    }

    // The same with a few of its columns.
    Window narrowed(const Window& w) const {
        Window few = w;
        few.place.columns = worst_columns(w, k_few);
        few.inputs.columns = few.place.columns.size();
        for (auto* x : {&few.inputs.v, &few.inputs.state, &few.inputs.initial}) {
            std::vector<double> kept;
            for (std::size_t row = 0; row < x->size(); row += w.inputs.columns) {
                for (std::size_t j = 0; j < w.inputs.columns; ++j) {
                    const std::size_t column = w.place.columns[j];
                    if (std::binary_search(few.place.columns.begin(), few.place.columns.end(), column)) {
                        kept.push_back((*x)[row + j]);
                    }
                }
            }
            *x = std::move(kept);
        }
        return few;
    }

    Misfit misfit(const Window& w, const HeadResult& simulated) const {
        Misfit m;
        if (m_evidence.out && w.place.tokens > 0) {
            const double budget = m_evidence.out->budgets[group(w)].rms;
            m.out = compare(*m_evidence.out, out_at(w), simulated.out, m.out_room) / budget;
        }
        if (w.ends) {
            const double budget = m_evidence.state->budgets[group(w)].rms;
            m.state = compare(*m_evidence.state, state_at(w), simulated.state, m.state_room) / budget;
        }
        return m;
    }

    Misfit misfit_of_truth(const Window& w) const {
        HeadResult truth;
        for (const std::size_t at : out_at(w)) truth.out.push_back(m_r.truth.out[at]);
        if (w.ends) {
            for (const std::size_t at : state_at(w)) truth.state.push_back(m_r.truth.final_state[at]);
        }
        return misfit(w, truth);
    }

    // How many times smaller the error is under the hypothesis; 0: it does not explain the dump.
    double improvement(const Window& w, const Misfit& before, const Hypothesis& h) const {
        const auto result = simulate(w, h);
        if (!result) return 0;
        const Misfit after = misfit(w, *result);
        const double out = gain(before.out, after.out, after.out_room, h.rounding);
        const double state = w.ends ? gain(before.state, after.state, after.state_room, h.rounding) : 1;
        if (out == 0 || state == 0) return 0;
        const double best = std::max(out, state);
        return best > 2 ? best : 0;
    }

    // Whether the hypothesis may still explain w, judging by a window with a few of its columns: the error must be
    // small enough there if it were 0 in all other columns.
    bool possible(const Window& few, const Window& w, const Misfit& before, const Hypothesis& h) const {
        const auto result = simulate(few, h);
        if (!result) return false;
        const Misfit after = misfit(few, *result);
        const double part =
            std::sqrt(static_cast<double>(few.place.columns.size()) / static_cast<double>(w.place.columns.size()));
        const auto fails = [part](double wrong, double left) {
            return wrong > k_ok_band && part * left > k_least_gain * wrong;
        };
        return !fails(before.out, after.out) && !fails(before.state, after.state);
    }

    // The same on a head other than the one where it was found: the head whose state is used may differ.
    double improvement_elsewhere(const Window& w, const Misfit& before, const Hypothesis& h) const {
        const bool of_states = !m_states.empty() && &h >= &m_states.front() && &h <= &m_states.back();
        if (!of_states) return improvement(w, before, h);
        const Window few = narrowed(w);
        double best = 0;
        for (const Hypothesis& other : m_states) {
            if (possible(few, w, before, other)) best = std::max(best, improvement(w, before, other));
        }
        return best;
    }

    // Where the window's values are in the dump's tensors.
    std::size_t group(const Window& w) const {
        return w.place.sequence * static_cast<std::size_t>(m_r.problem.dims.Hv) + w.place.head;
    }

    std::vector<std::size_t> out_at(const Window& w) const {
        const auto heads = static_cast<std::size_t>(m_r.problem.dims.Hv);
        const auto dv = static_cast<std::size_t>(m_r.problem.dims.dv);
        const std::size_t row = static_cast<std::size_t>(m_r.problem.sequences[w.place.sequence].begin) + w.place.begin;
        std::vector<std::size_t> at;
        for (std::size_t t = 0; t < w.place.tokens; ++t) {
            for (const std::size_t column : w.place.columns)
                at.push_back(((row + t) * heads + w.place.head) * dv + column);
        }
        return at;
    }

    std::vector<std::size_t> state_at(const Window& w) const {
        const auto dk = static_cast<std::size_t>(m_r.problem.dims.dk);
        const auto dv = static_cast<std::size_t>(m_r.problem.dims.dv);
        std::vector<std::size_t> at;
        for (std::size_t x = 0; x < dk; ++x) {
            for (const std::size_t column : w.place.columns) at.push_back((group(w) * dk + x) * dv + column);
        }
        return at;
    }

private:
    // An explanation may leave at most this part of the error; allows for sums in another order.
    static constexpr double k_least_gain = 0.334;

    std::optional<HeadResult> simulate(const Window& w, const Hypothesis& h) const {
        if (w.only && !h.chunk) return simulate_inputs(w, h);
        Hypothesis simulated = h;
        if (w.only) {
            simulated.chunk = [&h, only = *w.only](ChunkParts& c) {
                if (c.index == only) h.chunk(c);
            };
        }
        return simulated.simulate(w.inputs, m_r.contract.value, w.place, &w.grams);
    }

    // Simulates a mistake in the meaning of the inputs that only affects the tokens of one chunk.
    std::optional<HeadResult> simulate_inputs(const Window& w, const Hypothesis& h) const {
        HeadInputs inputs = w.inputs;
        GdnContract contract = m_r.contract.value;
        if (h.run != nullptr || (h.given && !h.given(inputs, contract, w.place))) return std::nullopt;
        PreparedHead faulty = prepare_head(inputs, contract);
        if (h.prepared) h.prepared(faulty);
        PreparedHead prepared = prepare_head(w.inputs, m_r.contract.value);
        const std::size_t first = *w.only * w.chunk - w.place.begin;
        const std::size_t end = std::min(first + w.chunk, prepared.tokens);
        const auto take = [&](std::vector<double>& to, const std::vector<double>& from, std::size_t width) {
            for (std::size_t i = first * width; i < end * width; ++i) to[i] = from[i];
        };
        for (double& q : faulty.q) q *= faulty.scale / prepared.scale;
        take(prepared.q, faulty.q, prepared.dk);
        take(prepared.k, faulty.k, prepared.dk);
        take(prepared.v, faulty.v, prepared.columns);
        take(prepared.gate, faulty.gate, 1);
        take(prepared.beta, faulty.beta, 1);
        return run_head<double>(prepared, {}, &w.grams);
    }

    // 1: right before and after; 0: not explained.
    static double gain(double before, double after, double room, bool rounding) {
        if (std::isnan(after)) return 0;
        const double honest = k_ok_band * std::max(1.0, room);
        if (before <= k_ok_band) return after <= honest ? 1 : 0;
        const double needed = rounding ? 12 : 100;
        if (after <= honest && after <= before / 3) return before / std::max(after, 0.25);
        // What is left must be near the budget: a kernel that made this mistake is right otherwise.
        return after <= before / needed && after <= k_wrong_band * std::max(1.0, room) ? before / after : 0;
    }

    // Tokens of the window before the first one where the dump is not finite and the truth is. The cause of an overflow
    // lies earlier.
    std::size_t finite_tokens(const Window& w) const {
        if (!m_evidence.out) return w.place.tokens;
        const auto heads = static_cast<std::size_t>(m_r.problem.dims.Hv);
        const auto dv = static_cast<std::size_t>(m_r.problem.dims.dv);
        const std::size_t row = static_cast<std::size_t>(m_r.problem.sequences[w.place.sequence].begin) + w.place.begin;
        for (std::size_t t = 0; t < w.place.tokens; ++t) {
            if (!finite_in(*m_evidence.out, ((row + t) * heads + w.place.head) * dv, dv)) return t;
        }
        return w.place.tokens;
    }

    bool state_is_finite(std::size_t n, std::size_t head) const {
        const auto size = static_cast<std::size_t>(m_r.problem.dims.dk * m_r.problem.dims.dv);
        const auto heads = static_cast<std::size_t>(m_r.problem.dims.Hv);
        return finite_in(*m_evidence.state, (n * heads + head) * size, size);
    }

    static bool finite_in(const Evidence& e, std::size_t begin, std::size_t count) {
        for (std::size_t i = begin; i < begin + count; ++i) {
            if (!std::isfinite((*e.got)[i]) && std::isfinite((*e.want)[i])) return false;
        }
        return true;
    }

    static double compare(const Evidence& e, const std::vector<std::size_t>& at, const std::vector<double>& simulated,
                          double& room) {
        double error = 0;
        double size = 0;
        double truth = 0;
        for (std::size_t i = 0; i < at.size(); ++i) {
            const double x = (*e.got)[at[i]];
            const double y = (*e.want)[at[i]];
            if (!std::isfinite(y)) continue;
            error += std::isfinite(x) ? (x - simulated[i]) * (x - simulated[i]) : HUGE_VAL;
            size += simulated[i] * simulated[i];
            truth += y * y;
        }
        room = truth > 0 ? std::sqrt(size / truth) : 1;
        return at.empty() ? 0 : std::sqrt(error / static_cast<double>(at.size()));
    }

    // `count` of the window's columns: half of them the dump's worst, the others spread over the rest.
    std::vector<std::size_t> worst_columns(const Window& w, std::size_t count) const {
        const std::vector<std::size_t>& all = w.place.columns;
        if (all.size() <= count) return all;
        std::vector<double> errors(all.size(), 0);
        const auto add = [&](const Evidence& e, const std::vector<std::size_t>& at) {
            for (std::size_t i = 0; i < at.size(); ++i) {
                const double error = (*e.got)[at[i]] - (*e.want)[at[i]];
                errors[i % all.size()] += std::isfinite(error) ? error * error : 0;
            }
        };
        if (m_evidence.out) add(*m_evidence.out, out_at(w));
        if (w.ends) add(*m_evidence.state, state_at(w));
        std::vector<std::size_t> order(all.size());
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return errors[a] > errors[b]; });
        std::vector<std::size_t> chosen;
        for (std::size_t i = 0; i < count / 2; ++i) {
            chosen.push_back(all[order[i]]);
            chosen.push_back(all[order[count / 2 + i * (all.size() - count / 2) / (count / 2)]]);
        }
        std::sort(chosen.begin(), chosen.end());
        return chosen;
    }

    const GdnReference& m_r;
    const ForwardEvidence& m_evidence;
    std::vector<Hypothesis> m_states;  // for which the head may differ from head to head
    std::vector<const Hypothesis*> m_all;
};

}  // namespace gdnctl::oracle
