// Where a dump is wrong: errors by head and chunk, and the first token beyond its budget.
#include <algorithm>
#include <cmath>
#include <set>

#include "oracle/gdn/compare/localise.h"
#include "oracle/gdn/compare/row_error.h"
#include "oracle/judge/blocks.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle {

namespace {

// First token of a lane that exceeds the band by itself: a single row deviates further than a group.
std::optional<std::size_t> first_wrong_token(const GdnReference& r, const Evidence& out, std::size_t n,
                                             std::size_t head) {
    const auto heads = static_cast<std::size_t>(r.problem.dims.Hv);
    const auto dv = static_cast<std::size_t>(r.problem.dims.dv);
    const GroupBudget& budget = out.budgets[n * heads + head];
    const auto begin = static_cast<std::size_t>(r.problem.sequences[n].begin);
    const auto end = static_cast<std::size_t>(r.problem.sequences[n].end);
    for (std::size_t row = begin; row < end; ++row) {
        const RowError error = row_error(out, (row * heads + head) * dv, dv);
        const double rms = std::sqrt(error.squares / static_cast<double>(dv));
        if (error.largest > k_ok_band * budget.max_abs || rms > 2 * k_ok_band * budget.rms || error.local > k_ok_band) {
            return row - begin;
        }
    }
    return std::nullopt;
}

}  // namespace

std::vector<LaneErrors> map_errors(const GdnReference& r, const ForwardEvidence& evidence, int threads) {
    const GdnDims& d = r.problem.dims;
    const auto heads = static_cast<std::size_t>(d.Hv);
    const auto dv = static_cast<std::size_t>(d.dv);
    const auto state_size = static_cast<std::size_t>(d.dk * d.dv);
    const auto chunk = static_cast<std::size_t>(r.contract.value.chunk);
    const auto map_lane = [&](std::size_t n, std::size_t head) {
        const auto begin = static_cast<std::size_t>(r.problem.sequences[n].begin);
        const auto end = static_cast<std::size_t>(r.problem.sequences[n].end);
        LaneErrors lane{static_cast<std::int64_t>(n), static_cast<std::int64_t>(head), {}, std::nullopt};
        for (std::size_t first = begin; evidence.out && first < end; first += chunk) {
            RowError sum;
            const std::size_t rows = std::min(chunk, end - first);
            for (std::size_t row = first; row < first + rows; ++row) {
                const RowError error = row_error(*evidence.out, (row * heads + head) * dv, dv);
                sum.add(error);
            }
            lane.chunks.push_back(sum.over(rows * dv, evidence.out->budgets[n * heads + head]));
        }
        if (evidence.state) {
            const std::size_t at = (n * heads + head) * state_size;
            lane.final_state =
                row_error(*evidence.state, at, state_size).over(state_size, evidence.state->budgets[n * heads + head]);
        }
        return lane;
    };
    std::vector<LaneErrors> lanes(r.problem.sequences.size() * heads);
    run_tasks(lanes.size(), threads,
              [&] { return [&](std::size_t lane) { lanes[lane] = map_lane(lane / heads, lane % heads); }; });
    return lanes;
}

std::vector<double> map_token_errors(const GdnReference& reference, const ForwardEvidence& evidence,
                                     std::size_t sequence, int threads) {
    std::vector<double> errors;
    if (!evidence.out || sequence >= reference.problem.sequences.size()) return errors;
    const auto heads = static_cast<std::size_t>(reference.problem.dims.Hv);
    const auto dv = static_cast<std::size_t>(reference.problem.dims.dv);
    const GdnSequence s = reference.problem.sequences[sequence];
    const auto first = static_cast<std::size_t>(s.begin);
    errors.resize(static_cast<std::size_t>(s.end) - first);
    const Blocks blocks(errors.size(), heads * dv);
    run_tasks(blocks.count, threads, [&] {
        return [&](std::size_t b) {
            for (std::size_t t = blocks.begin(b); t < blocks.end(b); ++t) {
                for (std::size_t head = 0; head < heads; ++head) {
                    const RowError error = row_error(*evidence.out, ((first + t) * heads + head) * dv, dv);
                    errors[t] = std::max(errors[t], error.over(dv, evidence.out->budgets[sequence * heads + head]));
                }
            }
        };
    });
    return errors;
}

std::optional<FaultPlace> find_place(const GdnReference& r, const ForwardEvidence& evidence,
                                     const std::vector<LaneErrors>& errors) {
    std::set<std::int64_t> sequences;
    std::set<std::int64_t> heads;
    std::set<std::int64_t> chunks;
    std::optional<FaultPlace> place;
    const auto chunk = static_cast<std::int64_t>(r.contract.value.chunk);
    const auto note = [&](const LaneErrors& lane, std::int64_t token, std::string tensor) {
        // The earliest token within its sequence; out comes before final_state, which says nothing about tokens.
        const bool earlier = !place || (place->tensor == tensor ? token < place->first_token : tensor == "out");
        if (!earlier) return;
        place.emplace();
        place->tensor = std::move(tensor);
        place->first_sequence = lane.sequence;
        place->first_head = lane.head;
        place->first_token = token;  // position in its sequence, until the end of this function
        place->first_chunk = token / chunk;
    };
    for (const LaneErrors& lane : errors) {
        const bool state = lane.final_state && !(*lane.final_state <= k_ok_band);
        std::optional<std::size_t> token;
        if (evidence.out) {
            const bool out =
                std::any_of(lane.chunks.begin(), lane.chunks.end(), [](double x) { return !(x <= k_ok_band); });
            if (out) {
                token = first_wrong_token(r, *evidence.out, static_cast<std::size_t>(lane.sequence),
                                          static_cast<std::size_t>(lane.head));
            }
        }
        if (!token && !state) continue;
        sequences.insert(lane.sequence);
        heads.insert(lane.head);
        const GdnSequence s = r.problem.sequences[static_cast<std::size_t>(lane.sequence)];
        const std::int64_t last = std::max<std::int64_t>(s.end - s.begin - 1, 0);
        if (token) {
            chunks.insert(static_cast<std::int64_t>(*token) / chunk);
            for (std::size_t c = 0; c < lane.chunks.size(); ++c) {
                if (!(lane.chunks[c] <= k_ok_band)) chunks.insert(static_cast<std::int64_t>(c));
            }
            note(lane, static_cast<std::int64_t>(*token), "out");
        } else {
            chunks.insert(last / chunk);
            note(lane, last, "final_state");
        }
    }
    if (!place) return place;
    place->sequences.assign(sequences.begin(), sequences.end());
    place->heads.assign(heads.begin(), heads.end());
    place->chunks.assign(chunks.begin(), chunks.end());
    const std::int64_t row =
        r.problem.sequences[static_cast<std::size_t>(place->first_sequence)].begin + place->first_token;
    place->first_batch = r.problem.dims.T > 0 ? row / r.problem.dims.T : 0;
    place->first_token = r.problem.dims.T > 0 ? row % r.problem.dims.T : 0;
    return place;
}

std::vector<WrongLane> wrong_lanes(const GdnReference& r, const std::vector<LaneErrors>& errors) {
    std::vector<WrongLane> lanes;
    for (const LaneErrors& e : errors) {
        WrongLane lane{static_cast<std::size_t>(e.sequence), static_cast<std::size_t>(e.head), 0,
                       e.final_state.value_or(0)};
        const GdnSequence s = r.problem.sequences[lane.sequence];
        const auto length = static_cast<std::size_t>(s.end - s.begin);
        lane.first_chunk = (std::max<std::size_t>(length, 1) - 1) / static_cast<std::size_t>(r.contract.value.chunk);
        for (std::size_t c = e.chunks.size(); c-- > 0;) {
            if (!(e.chunks[c] <= k_ok_band)) lane.first_chunk = c;
            lane.score = std::isnan(e.chunks[c]) ? HUGE_VAL : std::max(lane.score, e.chunks[c]);
        }
        if (!(lane.score <= k_ok_band)) lanes.push_back(lane);
    }
    std::stable_sort(lanes.begin(), lanes.end(),
                     [](const WrongLane& a, const WrongLane& b) { return a.score > b.score; });
    return lanes;
}

}  // namespace gdnctl::oracle
