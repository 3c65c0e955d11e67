// Another initial state than the given one. Its effect is linear: the errors of a column of v are those of a state with
// dk unknown values, which decays, forgets and is read like any other.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "oracle/gdn/compare/hypotheses.h"
#include "oracle/gdn/compare/localise.h"
#include "oracle/judge/least_squares.h"

namespace gdnctl::oracle {

namespace {

constexpr std::size_t k_most_tokens = 256;
constexpr std::size_t k_fitted_columns = 8;
constexpr std::size_t k_most_lanes = 3;
// How many more values than unknowns a fit needs.
constexpr std::size_t k_spare_values = 8;
// A state that differs in a single direction may as well come from the first token's write.
constexpr double k_one_direction = 0.98;

// Errors of a lane in units of their budgets, by column, and what each value of the state before it does to them.
struct LaneResponse {
    std::vector<std::vector<double>> terms;   // [dk][values]
    std::vector<std::vector<double>> errors;  // [columns][values]
};

std::optional<LaneResponse> response_of(const GdnReference& r, const ForwardEvidence& evidence, const WrongLane& lane) {
    const GdnProblem& p = r.problem;
    const GdnSequence s = p.sequences[lane.sequence];
    const auto Hv = static_cast<std::size_t>(p.dims.Hv);
    const auto dk = static_cast<std::size_t>(p.dims.dk);
    const auto dv = static_cast<std::size_t>(p.dims.dv);
    const auto length = static_cast<std::size_t>(s.end - s.begin);
    const std::size_t tokens = std::min(length, k_most_tokens);
    const bool ends = evidence.state && tokens == length;
    const std::size_t group = lane.sequence * Hv + lane.head;
    const std::size_t values = (evidence.out ? tokens : 0) + (ends ? dk : 0);
    if (values < dk + k_spare_values) return std::nullopt;

    const auto key = key_head_of(static_cast<std::int64_t>(lane.head), p.dims, r.contract.value.head_map);
    LaneInputs unit = lane_inputs({&r, lane.sequence, lane.head, 0, tokens, {}}, static_cast<std::size_t>(key),
                                  static_cast<std::size_t>(r.contract.value.chunk), {});
    unit.columns = dk;
    unit.v.assign(tokens * dk, 0);
    unit.state.assign(dk * dk, 0);
    for (std::size_t x = 0; x < dk; ++x) unit.state[x * dk + x] = 1;
    unit.initial = unit.state;
    const LaneResult effect = run_lane<double>(prepare_lane(unit, r.contract.value), {});

    LaneResponse response;
    const double out_budget = evidence.out ? evidence.out->budgets[group].rms : 1;
    const double state_budget = ends ? evidence.state->budgets[group].rms : 1;
    for (std::size_t x = 0; x < dk; ++x) {
        std::vector<double>& term = response.terms.emplace_back();
        for (std::size_t t = 0; t < tokens && evidence.out; ++t) term.push_back(effect.out[t * dk + x] / out_budget);
        for (std::size_t row = 0; row < dk && ends; ++row) term.push_back(effect.state[row * dk + x] / state_budget);
    }
    const std::size_t step = std::max<std::size_t>(1, dv / k_fitted_columns);
    for (std::size_t j = 0; j < dv; j += step) {
        std::vector<double>& error = response.errors.emplace_back();
        const auto add = [&](const Evidence& e, std::size_t at, double budget) {
            error.push_back(((*e.got)[at] - (*e.want)[at]) / budget);
        };
        for (std::size_t t = 0; t < tokens && evidence.out; ++t) {
            const std::size_t row = static_cast<std::size_t>(s.begin) + t;
            add(*evidence.out, (row * Hv + lane.head) * dv + j, out_budget);
        }
        for (std::size_t row = 0; row < dk && ends; ++row) {
            add(*evidence.state, (group * dk + row) * dv + j, state_budget);
        }
        if (!std::all_of(error.begin(), error.end(), [](double x) { return std::isfinite(x); })) return std::nullopt;
    }
    return response;
}

double squares_of(const std::vector<double>& x) { return std::inner_product(x.begin(), x.end(), x.begin(), 0.0); }

// The part of the states' squares that lies in one direction.
double in_one_direction(const std::vector<std::vector<double>>& states) {
    double all = 0;
    for (const auto& s : states) all += squares_of(s);
    std::vector<double> direction = *std::max_element(
        states.begin(), states.end(), [](const auto& a, const auto& b) { return squares_of(a) < squares_of(b); });
    double along = 0;
    for (int step = 0; step < 20; ++step) {
        const double length = std::sqrt(squares_of(direction));
        std::vector<double> next(direction.size(), 0);
        along = 0;
        for (const auto& s : states) {
            const double part = std::inner_product(s.begin(), s.end(), direction.begin(), 0.0) / length;
            along += part * part;
            for (std::size_t x = 0; x < next.size(); ++x) next[x] += part * s[x];
        }
        direction = std::move(next);
    }
    return all > 0 ? along / all : 1;
}

// How many times smaller the lane's error is with another initial state; 0: that does not explain it.
double gain_of(const GdnReference& r, const ForwardEvidence& evidence, const WrongLane& lane) {
    auto response = response_of(r, evidence, lane);
    if (!response) return 0;
    // Values that nothing depends on stay near 0.
    double largest = 0;
    for (const auto& term : response->terms) largest = std::max(largest, squares_of(term));
    const std::size_t unknown = response->terms.size();
    const double least = 1e-7 * std::sqrt(largest);
    for (std::size_t x = 0; x < unknown; ++x) {
        for (std::size_t i = 0; i < unknown; ++i) response->terms[x].push_back(i == x ? least : 0);
    }
    double before = 0, after = 0;
    std::size_t count = 0;
    std::vector<std::vector<double>> states;
    for (std::vector<double>& error : response->errors) {
        count += error.size();
        before += squares_of(error);
        error.resize(error.size() + unknown, 0);
        states.push_back(least_squares(response->terms, error));
        const std::vector<double> fitted = combined(response->terms, states.back());
        for (std::size_t i = 0; i < error.size(); ++i) after += (error[i] - fitted[i]) * (error[i] - fitted[i]);
    }
    const double left = std::sqrt(after / static_cast<double>(count));
    const double gain = std::sqrt(before / std::max(after, 1e-30));
    if (!(left <= k_ok_band) || gain < 10 || in_one_direction(states) > k_one_direction) return 0;
    return std::min(gain, 1e12);
}

}  // namespace

std::optional<Diagnosis> match_initial_state(const GdnReference& r, const ForwardEvidence& evidence,
                                             const std::vector<LaneErrors>& errors) {
    double gain = HUGE_VAL;
    std::size_t fitted = 0;
    for (const WrongLane& lane : wrong_lanes(r, errors)) {
        if (lane.first_chunk > 0) return std::nullopt;
        const GdnSequence s = r.problem.sequences[lane.sequence];
        if (s.begin == s.end) continue;  // its final state is its initial one
        gain = std::min(gain, gain_of(r, evidence, lane));
        if (gain == 0) return std::nullopt;
        if (++fitted == k_most_lanes) break;
    }
    if (fitted == 0) return std::nullopt;
    const std::string text = r.problem.initial_state.empty()
                                 ? "matches if the initial state is not 0, as it should be without a given one"
                                 : "matches if the initial state is not the given one";
    return Diagnosis{"carry", {"carry"}, {{"carry", text, gain}}};
}

}  // namespace gdnctl::oracle
