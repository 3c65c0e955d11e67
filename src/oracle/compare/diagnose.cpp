// Acts out every known mistake on the lane that is worst, and keeps those under which the dump becomes right.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "oracle/compare/hypotheses.h"
#include "oracle/compare/localise.h"
#include "oracle/kernels/tasks.h"

namespace gdnctl::oracle {

namespace {

constexpr std::size_t k_columns = 16;  // of v that a hypothesis is acted out on
constexpr std::size_t k_few = 4;       // of those, which most hypotheses fail on already
constexpr std::size_t k_chunks = 4;    // of tokens

// The dump beside some computed values, in units of the budget.
struct Misfit {
    double out = 0, state = 0;            // rms error over the window / budget
    double out_room = 1, state_room = 1;  // how much larger the computed values are than the truth
};

// A part of a lane, and where the acted-out fault is: everywhere in it, or in one chunk.
struct Window {
    LanePlace place;
    std::size_t chunk = 64;
    std::optional<std::size_t> only;  // chunk of the sequence
    LaneInputs inputs;                // for the lane's own key head
    LaneGrams grams;                  // of these
    bool ends = false;                // with the sequence, and there is a final state to compare
};

class LaneSearch {
public:
    LaneSearch(const GdnReference& r, const ForwardEvidence& evidence) : m_r(r), m_evidence(evidence) {}

    // Chunks [first, first + count) of a lane.
    Window window(std::size_t n, std::size_t head, std::size_t chunk, std::size_t first, std::size_t count,
                  std::optional<std::size_t> only) const {
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
        w.place.columns = worst_columns(w, k_columns);
        const auto own = key_head_of(static_cast<std::int64_t>(head), m_r.problem.dims, m_r.contract.value.head_map);
        w.inputs = lane_inputs(w.place, static_cast<std::size_t>(own), chunk, state_before(w.place));
        w.grams = grams_of(prepare_lane(w.inputs, m_r.contract.value));
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

    Misfit misfit(const Window& w, const LaneResult& acted) const {
        Misfit m;
        if (m_evidence.out && w.place.tokens > 0) {
            const double budget = m_evidence.out->budgets[group(w)].rms;
            m.out = compare(*m_evidence.out, out_at(w), acted.out, m.out_room) / budget;
        }
        if (w.ends) {
            const double budget = m_evidence.state->budgets[group(w)].rms;
            m.state = compare(*m_evidence.state, state_at(w), acted.state, m.state_room) / budget;
        }
        return m;
    }

    Misfit misfit_of_truth(const Window& w) const {
        LaneResult truth;
        for (const std::size_t at : out_at(w)) truth.out.push_back(m_r.truth.out[at]);
        if (w.ends) {
            for (const std::size_t at : state_at(w)) truth.state.push_back(m_r.truth.final_state[at]);
        }
        return misfit(w, truth);
    }

    // How many times smaller the error is under the hypothesis; 0: it does not explain the dump.
    double improvement(const Window& w, const Misfit& before, const Hypothesis& h) const {
        const auto result = act_out(w, h);
        if (!result) return 0;
        const Misfit after = misfit(w, *result);
        const double out = gain(before.out, after.out, after.out_room, h.rounding);
        const double state = w.ends ? gain(before.state, after.state, after.state_room, h.rounding) : 1;
        if (out == 0 || state == 0) return 0;
        const double best = std::max(out, state);
        return best > 2 ? best : 0;
    }

    // Whether a window of a few of w's columns leaves it open that the hypothesis explains w: the error there, were it
    // 0 in all other columns, must be small enough.
    bool possible(const Window& few, const Window& w, const Misfit& before, const Hypothesis& h) const {
        const auto result = act_out(few, h);
        if (!result) return false;
        const Misfit after = misfit(few, *result);
        const double part =
            std::sqrt(static_cast<double>(few.place.columns.size()) / static_cast<double>(w.place.columns.size()));
        const auto fails = [part](double wrong, double left) {
            return wrong > k_ok_band && part * left > k_least_gain * wrong;
        };
        return !fails(before.out, after.out) && !fails(before.state, after.state);
    }

private:
    // What every explanation leaves of the error, at most; with room for sums in another order.
    static constexpr double k_least_gain = 0.334;

    std::optional<LaneResult> act_out(const Window& w, const Hypothesis& h) const {
        Hypothesis acted = h;
        if (w.only) {
            if (!h.chunk) return std::nullopt;
            acted.chunk = [&h, only = *w.only](ChunkParts& c) {
                if (c.index == only) h.chunk(c);
            };
        }
        return acted.act_out(w.inputs, m_r.contract.value, w.place, &w.grams);
    }

    // 1: right before and after; 0: not explained.
    static double gain(double before, double after, double room, bool rounding) {
        if (std::isnan(after)) return 0;
        const double honest = k_ok_band * std::max(1.0, room);
        if (before <= k_ok_band) return after <= honest ? 1 : 0;
        const double needed = rounding ? 12 : 100;
        if (after <= honest && after <= before / 3) return before / std::max(after, 0.25);
        return after <= before / needed ? before / after : 0;
    }

    // Tokens of the window before the first at which the dump is not finite and the truth is. What explodes there began
    // before.
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

    static double compare(const Evidence& e, const std::vector<std::size_t>& at, const std::vector<double>& acted,
                          double& room) {
        double error = 0;
        double size = 0;
        double truth = 0;
        for (std::size_t i = 0; i < at.size(); ++i) {
            const double x = (*e.got)[at[i]];
            const double y = (*e.want)[at[i]];
            if (!std::isfinite(y)) continue;
            error += std::isfinite(x) ? (x - acted[i]) * (x - acted[i]) : HUGE_VAL;
            size += acted[i] * acted[i];
            truth += y * y;
        }
        room = truth > 0 ? std::sqrt(size / truth) : 1;
        return at.empty() ? 0 : std::sqrt(error / static_cast<double>(at.size()));
    }

    // `count` of the window's columns: half of them where the dump is worst, the others spread over the rest.
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
};

struct Match {
    const Hypothesis* hypothesis = nullptr;
    double improvement = 0;
    std::string where;
};

// Matches that fit far worse than the best.
void drop_accidents(std::vector<Match>& found) {
    double best = 0;
    for (const Match& m : found) best = std::max(best, m.improvement);
    std::erase_if(found, [&](const Match& m) { return m.improvement < best / 4; });
}

// Every hypothesis on a window; the ones that explain it, best first.
std::vector<Match> matches_in(const LaneSearch& search, const Window& w, int threads, std::string_view where) {
    const auto& all = forward_hypotheses();
    if (w.place.tokens == 0 && !w.ends) return {};
    const Misfit before = search.misfit_of_truth(w);
    const Window few = search.narrowed(w);
    std::vector<double> improvements(all.size(), 0);
    run_tasks(all.size(), threads, [&] {
        return [&](std::size_t i) {
            if (search.possible(few, w, before, all[i])) improvements[i] = search.improvement(w, before, all[i]);
        };
    });
    std::vector<Match> found;
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (improvements[i] > 0) found.push_back({&all[i], improvements[i], std::string(where)});
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const Match& a, const Match& b) { return a.improvement > b.improvement; });
    drop_accidents(found);
    return found;
}

std::vector<Match> search_lane(const LaneSearch& search, const WrongLane& lane, std::size_t chunk,
                               std::size_t first_chunk, int threads) {
    const std::size_t before = first_chunk == 0 ? 0 : first_chunk - 1;
    const auto whole = search.window(lane.sequence, lane.head, chunk, before, k_chunks, std::nullopt);
    auto found = matches_in(search, whole, threads, "");
    if (!found.empty()) return found;
    const auto one = search.window(lane.sequence, lane.head, chunk, first_chunk, 1, first_chunk);
    found = matches_in(search, one, threads, fmt::format(" in chunk {} alone", first_chunk));
    if (first_chunk == 0) return found;
    const auto earlier = search.window(lane.sequence, lane.head, chunk, before, 2, before);
    for (Match& m : matches_in(search, earlier, threads, fmt::format(" in chunk {} alone", before))) {
        found.push_back(std::move(m));
    }
    drop_accidents(found);
    // A state that was lost looks like one that a gate closed: where both fit, the hand-over goes first.
    const auto by_carry = [](const Match& m) { return m.hypothesis->stage == "carry"; };
    const auto rest = std::stable_partition(found.begin(), found.end(), by_carry);
    double carry = 0;
    for (auto m = found.begin(); m != rest; ++m) carry = std::max(carry, m->improvement);
    for (auto m = rest; carry > 0 && m != found.end(); ++m) m->improvement = std::min(m->improvement, carry);
    return found;
}

// Keeps the matches that hold on another wrong lane too, if any does.
void confirm(const GdnReference& r, const LaneSearch& search, const std::vector<WrongLane>& lanes,
             std::vector<Match>& found) {
    const auto chunk = static_cast<std::size_t>(r.contract.value.chunk);
    for (std::size_t i = 1; i < std::min<std::size_t>(lanes.size(), 4) && found.size() > 1; ++i) {
        const std::size_t before = lanes[i].first_chunk == 0 ? 0 : lanes[i].first_chunk - 1;
        const Window w = search.window(lanes[i].sequence, lanes[i].head, chunk, before, k_chunks, std::nullopt);
        const Misfit misfit = search.misfit_of_truth(w);
        std::vector<Match> kept;
        for (const Match& m : found) {
            if (search.improvement(w, misfit, *m.hypothesis) > 0) kept.push_back(m);
        }
        if (!kept.empty()) found = std::move(kept);
    }
}

Diagnosis from_hints(std::vector<Hint> hints) {
    Diagnosis d;
    std::stable_sort(hints.begin(), hints.end(),
                     [](const Hint& a, const Hint& b) { return a.improvement > b.improvement; });
    for (const Hint& h : hints) {
        if (std::find(d.stages.begin(), d.stages.end(), h.stage) == d.stages.end()) d.stages.push_back(h.stage);
    }
    d.stage = d.stages.front();
    d.hints = std::move(hints);
    return d;
}

}  // namespace

std::optional<LaneResult> Hypothesis::act_out(LaneInputs inputs, GdnContract contract, const LanePlace& place,
                                              const LaneGrams* grams) const {
    if (given && !given(inputs, contract, place)) return std::nullopt;
    Lane lane = prepare_lane(inputs, contract);
    if (prepared) prepared(lane);
    if (gate_is_factor) return run_lane_by_factors(lane);
    return run_lane<double>(lane, chunk, grams);
}

const std::vector<Hypothesis>& forward_hypotheses() {
    static const std::vector<Hypothesis> k_all = [] {
        auto all = input_hypotheses();
        for (Hypothesis& h : chunk_hypotheses()) all.push_back(std::move(h));
        return all;
    }();
    return k_all;
}

Diagnosis diagnose(const GdnReference& r, const ForwardEvidence& evidence, const std::vector<LaneErrors>& errors,
                   const FaultPlace& place, int threads) {
    const auto rearranged = match_rearranged(r, evidence, threads);
    const auto lanes = wrong_lanes(r, errors);
    if (lanes.empty()) return match_pattern(r, evidence, errors, place);
    std::vector<Hint> hints = rearranged;
    const LaneSearch search(r, evidence);
    const auto chunk = static_cast<std::size_t>(r.contract.value.chunk);
    std::string chunk_note;
    // A sequence without tokens has no computation in which something could be wrong.
    const GdnSequence s = r.problem.sequences[lanes.front().sequence];
    std::vector<Match> found;
    if (s.begin != s.end) found = search_lane(search, lanes.front(), chunk, lanes.front().first_chunk, threads);
    if (found.empty() && hints.empty() && s.begin != s.end) {
        // The device's chunk may be another than the contract says.
        for (const std::size_t other : {16UL, 32UL, 64UL, 128UL}) {
            if (other == chunk || !found.empty()) continue;
            found = search_lane(search, lanes.front(), other, lanes.front().first_chunk * chunk / other, threads);
            chunk_note = fmt::format(", with chunks of {} tokens", other);
        }
    }
    confirm(r, search, lanes, found);
    // What was acted out names the mistake; a factor or an exchange only describes it.
    std::erase_if(hints, [&](const Hint& h) {
        return std::any_of(found.begin(), found.end(), [&](const Match& m) { return m.hypothesis->stage == h.stage; });
    });
    // A head map that fits says more than the one key head that it leads to here.
    const auto starts = [](std::string_view with) {
        return [with](const Match& m) { return m.hypothesis->text.starts_with(with); };
    };
    if (std::any_of(found.begin(), found.end(), starts("the head map"))) {
        std::erase_if(found, starts("q and k are those of"));
    }
    for (const Match& m : found) {
        hints.push_back({std::string(m.hypothesis->stage), "matches if " + m.hypothesis->text + m.where + chunk_note,
                         m.improvement});
    }
    return hints.empty() ? match_pattern(r, evidence, errors, place) : from_hints(std::move(hints));
}

}  // namespace gdnctl::oracle
