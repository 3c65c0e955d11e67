// Cuts a lane's window out of a problem.
#include <algorithm>

#include "oracle/gdn/compare/hypotheses.h"
#include "oracle/gdn/kernels/kernels.h"

namespace gdnctl::oracle {

namespace {

// The lane's state after `rows`, starting from the initial state of `sequence`: [dk, columns].
std::vector<double> state_after(const LanePlace& place, std::size_t sequence, const std::vector<GdnSequence>& rows) {
    const GdnReference& reference = *place.reference;
    const GdnProblem& p = reference.problem;
    const GdnDims& d = p.dims;
    const auto dk = static_cast<std::size_t>(d.dk);
    const auto dv = static_cast<std::size_t>(d.dv);
    const auto Hk = static_cast<std::size_t>(d.Hk);
    const auto Hv = static_cast<std::size_t>(d.Hv);
    const std::size_t columns = place.columns.size();
    std::vector<double> initial(dk * columns, 0);
    for (std::size_t x = 0; x < dk && !p.initial_state.empty(); ++x) {
        const std::size_t row = ((sequence * Hv + place.head) * dk + x) * dv;
        for (std::size_t j = 0; j < columns; ++j) initial[x * columns + j] = p.initial_state[row + place.columns[j]];
    }
    GdnProblem one;
    one.dims = {1, 0, 1, 1, d.dk, static_cast<std::int64_t>(columns)};
    for (const GdnSequence& s : rows) one.dims.T += s.end - s.begin;
    if (one.dims.T == 0) return initial;
    one.sequences = {{0, one.dims.T}};
    one.qk_dtype = p.qk_dtype;
    one.initial_state = std::move(initial);
    const auto key = static_cast<std::size_t>(
        key_head_of(static_cast<std::int64_t>(place.head), d, reference.contract.value.head_map));
    const auto tokens = static_cast<std::size_t>(one.dims.T);
    one.q.reserve(tokens * dk);
    one.k.reserve(tokens * dk);
    one.v.reserve(tokens * columns);
    const auto add_row = [&](std::size_t row) {
        const auto keys = [&](const std::vector<double>& from, std::vector<double>& to) {
            const auto at = from.begin() + static_cast<std::ptrdiff_t>((row * Hk + key) * dk);
            to.insert(to.end(), at, at + static_cast<std::ptrdiff_t>(dk));
        };
        keys(p.q, one.q);
        keys(p.k, one.k);
        for (const std::size_t column : place.columns) one.v.push_back(p.v[(row * Hv + place.head) * dv + column]);
        one.gate.push_back(p.gate[row * Hv + place.head]);
        one.beta.push_back(p.beta[row * Hv + place.head]);
    };
    for (const GdnSequence& s : rows) {
        for (std::int64_t row = s.begin; row < s.end; ++row) add_row(static_cast<std::size_t>(row));
    }
    if (!p.A_log.empty()) one.A_log = {p.A_log[place.head]};
    if (!p.dt_bias.empty()) one.dt_bias = {p.dt_bias[place.head]};
    return run_recurrent64(one, reference.contract.value, 1).final_state;
}

}  // namespace

std::vector<double> state_before(const LanePlace& place) {
    const std::int64_t first = place.reference->problem.sequences[place.sequence].begin;
    return state_after(place, place.sequence, {{first, first + static_cast<std::int64_t>(place.begin)}});
}

std::vector<double> state_carried_to(const LanePlace& place) {
    const auto& all = place.reference->problem.sequences;
    return state_after(place, 0, {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(place.sequence)});
}

LaneInputs lane_inputs(const LanePlace& place, std::size_t key_head, std::size_t chunk, std::vector<double> state) {
    const GdnReference& r = *place.reference;
    const GdnProblem& p = r.problem;
    const auto Hk = static_cast<std::size_t>(p.dims.Hk);
    const auto Hv = static_cast<std::size_t>(p.dims.Hv);
    const auto dv = static_cast<std::size_t>(p.dims.dv);
    LaneInputs in;
    in.tokens = place.tokens;
    in.dk = static_cast<std::size_t>(p.dims.dk);
    in.columns = place.columns.size();
    in.chunk = chunk;
    in.before = place.begin;
    const auto begin = static_cast<std::size_t>(p.sequences[place.sequence].begin);
    const auto end = static_cast<std::size_t>(p.sequences[place.sequence].end);
    in.first = place.begin == 0;
    in.last = begin + place.begin + place.tokens == end;
    in.qk_dtype = p.qk_dtype;
    in.gate_dtype = p.gate_dtype;
    if (!p.A_log.empty()) in.A_log = p.A_log[place.head];
    if (!p.dt_bias.empty()) in.dt_bias = p.dt_bias[place.head];
    for (std::size_t t = 0; t < place.tokens; ++t) {
        const std::size_t row = begin + place.begin + t;
        for (std::size_t x = 0; x < in.dk; ++x) {
            in.q.push_back(p.q[(row * Hk + key_head) * in.dk + x]);
            in.k.push_back(p.k[(row * Hk + key_head) * in.dk + x]);
        }
        for (const std::size_t column : place.columns) in.v.push_back(p.v[(row * Hv + place.head) * dv + column]);
        in.gate.push_back(p.gate[row * Hv + place.head]);
        in.beta.push_back(p.beta[row * Hv + place.head]);
    }
    const auto columns_of = [&](const std::vector<double>& from, std::size_t at) {
        std::vector<double> to;
        for (std::size_t x = 0; x < in.dk; ++x) {
            for (const std::size_t column : place.columns) to.push_back(from.empty() ? 0 : from[at + x * dv + column]);
        }
        return to;
    };
    const bool given = !state.empty();
    in.state = given ? std::move(state) : std::vector<double>(in.dk * in.columns, 0);
    in.initial = columns_of(p.initial_state, (place.sequence * Hv + place.head) * in.dk * dv);
    if (place.begin > 0 && given) {
        LaneInputs gates;
        gates.dk = 1;
        gates.A_log = in.A_log;
        gates.dt_bias = in.dt_bias;
        for (std::size_t t = 0; t < place.begin; ++t) gates.gate.push_back(p.gate[(begin + t) * Hv + place.head]);
        for (const double g : prepare_lane(gates, r.contract.value).gate) in.gates_before += std::max(g, -1e4);
    }
    return in;
}

}  // namespace gdnctl::oracle
