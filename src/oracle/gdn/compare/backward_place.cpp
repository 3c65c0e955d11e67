// Where gradients are wrong: errors by head, chunk and token, and the last token beyond its budget.
#include <algorithm>
#include <cmath>
#include <set>

#include "oracle/gdn/compare/backward.h"
#include "oracle/gdn/compare/row_error.h"

namespace gdnctl::oracle {

namespace {

std::int64_t heads_of(const GradientTruth& t, const GdnDims& d) {
    return t.canonical == "dq" || t.canonical == "dk" ? d.Hk : d.Hv;
}

// The value heads that a gradient's head belongs to.
std::vector<std::size_t> value_heads(const GdnReference& r, const GradientTruth& t, std::int64_t head) {
    const GdnDims& d = r.problem.dims;
    std::vector<std::size_t> heads;
    for (std::int64_t h = 0; h < d.Hv; ++h) {
        const bool own = heads_of(t, d) == d.Hv ? h == head : key_head_of(h, d, r.contract.value.head_map) == head;
        if (own) heads.push_back(static_cast<std::size_t>(h));
    }
    return heads;
}

// Calls use(sequence, head, run) for each run of a gradient inside a sequence.
template <class Use>
void each_run(const GdnReference& r, const GradientTruth& t, const Use& use) {
    const auto heads = static_cast<std::size_t>(heads_of(t, r.problem.dims));
    for (std::size_t run = 0; run < t.groups.of_run.size(); ++run) {
        const std::size_t group = t.groups.of_run[run];
        if (group < heads * r.problem.sequences.size()) use(group / heads, group % heads, run);
    }
}

void add_chunks(const GdnReference& r, const GradientEvidence& g, std::vector<LaneErrors>& lanes) {
    const GradientTruth& t = *g.truth;
    const auto heads = static_cast<std::size_t>(heads_of(t, r.problem.dims));
    const auto chunk = static_cast<std::size_t>(r.contract.value.chunk);
    struct Cell {
        RowError error;
        std::size_t runs = 0;
    };
    std::vector<std::vector<Cell>> cells(r.problem.sequences.size() * heads);
    each_run(r, t, [&](std::size_t n, std::size_t head, std::size_t run) {
        const std::size_t token = run / heads - static_cast<std::size_t>(r.problem.sequences[n].begin);
        auto& row = cells[n * heads + head];
        if (row.size() <= token / chunk) row.resize(token / chunk + 1);
        row[token / chunk].error.add(row_error(g.evidence, run * t.groups.width, t.groups.width));
        ++row[token / chunk].runs;
    });
    for (std::size_t group = 0; group < cells.size(); ++group) {
        for (const std::size_t h : value_heads(r, t, static_cast<std::int64_t>(group % heads))) {
            LaneErrors& lane = lanes[group / heads * static_cast<std::size_t>(r.problem.dims.Hv) + h];
            if (lane.chunks.size() < cells[group].size()) lane.chunks.resize(cells[group].size(), 0);
            for (std::size_t c = 0; c < cells[group].size(); ++c) {
                const Cell& cell = cells[group][c];
                lane.chunks[c] =
                    std::max(lane.chunks[c], cell.error.over(cell.runs * t.groups.width, g.evidence.budgets[group]));
            }
        }
    }
}

// Whether a run of elements (one token of one head) contributes to its group's error.
bool is_wrong_run(const GradientEvidence& g, std::size_t run, const GroupSums& sums, const GroupBudget& budget) {
    const RowError row = row_error(g.evidence, run * g.truth->groups.width, g.truth->groups.width);
    if (row.local > k_ok_band) return true;
    const bool by_element = !(sums.max_error <= k_ok_band * budget.max_abs);
    if (!by_element && sums.error_rms() <= k_ok_band * budget.rms) return false;
    return row.largest > (by_element ? k_ok_band * budget.max_abs : budget.rms);
}

}  // namespace

std::vector<LaneErrors> map_gradient_errors(const GdnReference& r, const std::vector<GradientEvidence>& all) {
    std::vector<LaneErrors> lanes;
    if (all.empty()) return lanes;
    const auto heads = static_cast<std::size_t>(r.problem.dims.Hv);
    for (std::size_t lane = 0; lane < r.problem.sequences.size() * heads; ++lane) {
        lanes.push_back({static_cast<std::int64_t>(lane / heads), static_cast<std::int64_t>(lane % heads), {}, {}});
    }
    for (const GradientEvidence& g : all) {
        if (has_tokens(*g.truth)) add_chunks(r, g, lanes);
        if (g.truth->canonical != "d_initial_state") continue;
        const std::size_t width = g.truth->groups.width;
        each_run(r, *g.truth, [&](std::size_t n, std::size_t head, std::size_t run) {
            lanes[n * heads + head].final_state =
                row_error(g.evidence, run * width, width).over(width, g.evidence.budgets[n * heads + head]);
        });
    }
    return lanes;
}

std::vector<double> map_gradient_token_errors(const GdnReference& r, const std::vector<GradientEvidence>& all,
                                              std::size_t sequence) {
    std::vector<double> errors;
    if (sequence >= r.problem.sequences.size()) return errors;
    const GdnSequence s = r.problem.sequences[sequence];
    for (const GradientEvidence& g : all) {
        if (!has_tokens(*g.truth)) continue;
        errors.resize(static_cast<std::size_t>(s.end - s.begin), 0);
        const auto heads = static_cast<std::size_t>(heads_of(*g.truth, r.problem.dims));
        const std::size_t width = g.truth->groups.width;
        each_run(r, *g.truth, [&](std::size_t n, std::size_t head, std::size_t run) {
            if (n != sequence) return;
            double& error = errors[run / heads - static_cast<std::size_t>(s.begin)];
            error = std::max(
                error, row_error(g.evidence, run * width, width).over(width, g.evidence.budgets[n * heads + head]));
        });
    }
    return errors;
}

namespace {

struct GradientPlaces {
    std::set<std::int64_t> sequences, heads, chunks;
    std::optional<FaultPlace> place;
    std::int64_t latest = -1;  // its token in the sequence: a backward goes wrong from the end on
};

bool is_of_key_heads(const GradientTruth& t, const GdnDims& d) { return heads_of(t, d) != d.Hv; }

// Adds the wrong runs of one gradient. A key head's gradient is a sum over its value heads. If gradients of value heads
// have already shown which one is wrong (`told`), it adds no others, and not the first token.
void add_wrong_runs(const GdnReference& r, const GradientEvidence& g, const std::set<std::int64_t>& told,
                    GradientPlaces& found) {
    const GdnProblem& p = r.problem;
    const GradientTruth& t = *g.truth;
    const auto chunk = static_cast<std::int64_t>(r.contract.value.chunk);
    const auto count = static_cast<std::size_t>(heads_of(t, p.dims));
    const auto sums = sum_groups(t.groups, *g.evidence.got, t.want);
    each_run(r, t, [&](std::size_t n, std::size_t head, std::size_t run) {
        const std::size_t group = n * count + head;
        if (!is_wrong_run(g, run, sums[group], g.evidence.budgets[group])) return;
        const std::int64_t row = has_tokens(t) ? static_cast<std::int64_t>(run / count) : p.sequences[n].begin;
        const std::int64_t token = row - p.sequences[n].begin;
        found.sequences.insert(static_cast<std::int64_t>(n));
        found.chunks.insert(token / chunk);
        const auto own = value_heads(r, t, static_cast<std::int64_t>(head));
        const bool known = std::any_of(own.begin(), own.end(),
                                       [&](std::size_t h) { return told.contains(static_cast<std::int64_t>(h)); });
        for (const std::size_t h : own) {
            if (!known) found.heads.insert(static_cast<std::int64_t>(h));
        }
        if (!told.empty() || token <= found.latest) return;
        found.latest = token;
        FaultPlace& place = found.place.emplace();
        place.tensor = t.canonical;
        place.first_sequence = static_cast<std::int64_t>(n);
        place.first_head = static_cast<std::int64_t>(head);
        place.first_batch = p.dims.T > 0 ? row / p.dims.T : 0;
        place.first_token = p.dims.T > 0 ? row % p.dims.T : 0;
        place.first_chunk = token / chunk;
    });
}

}  // namespace

std::string written_outside(const GdnReference& r, const std::vector<GradientEvidence>& all) {
    for (const GradientEvidence& g : all) {
        if (!g.wrong || !has_tokens(*g.truth)) continue;
        const auto sums = sum_groups(g.truth->groups, *g.evidence.got, g.truth->want);
        const std::size_t outside =
            r.problem.sequences.size() * static_cast<std::size_t>(heads_of(*g.truth, r.problem.dims));
        if (sums[outside].max_error > 0) return g.truth->canonical;
    }
    return {};
}

std::optional<FaultPlace> find_gradient_place(const GdnReference& r, const std::vector<GradientEvidence>& all) {
    GradientPlaces found;
    for (const bool key_heads : {false, true}) {
        const std::set<std::int64_t> told = key_heads ? found.heads : std::set<std::int64_t>{};
        for (const GradientEvidence& g : all) {
            // Sums over tokens have no place.
            if (!g.wrong || g.truth->axes == "h" || is_of_key_heads(*g.truth, r.problem.dims) != key_heads) continue;
            add_wrong_runs(r, g, told, found);
        }
    }
    if (!found.place) return std::nullopt;
    found.place->sequences.assign(found.sequences.begin(), found.sequences.end());
    found.place->heads.assign(found.heads.begin(), found.heads.end());
    found.place->chunks.assign(found.chunks.begin(), found.chunks.end());
    return found.place;
}

}  // namespace gdnctl::oracle
