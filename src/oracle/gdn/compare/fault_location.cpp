// Where a dump or its gradients are wrong: heads, chunks and the first wrong token.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>

#include "oracle/gdn/compare/backward.h"
#include "oracle/gdn/compare/element_allowance.h"
#include "oracle/gdn/compare/localise.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle {

namespace {

struct RowError {
    double squares = 0, largest = 0;
    double local = 0;  // the largest error / the allowance of its own element

    // Elements whose truth is not finite are skipped. A value that is not finite where the truth is counts as an
    // infinite error.
    void add(double got, double want, double granted = HUGE_VAL) {
        if (!std::isfinite(want)) return;
        const double error = std::isfinite(got) ? std::fabs(got - want) : HUGE_VAL;
        squares += error * error;
        largest = std::max(largest, error);
        if (std::isfinite(error) && error > local * granted) local = error / granted;
    }
    void add(const RowError& other) {
        squares += other.squares;
        largest = std::max(largest, other.largest);
        local = std::max(local, other.local);
    }
    double over(std::size_t count, const GroupBudget& budget) const {
        if (count == 0) return 0;
        return std::max(
            {std::sqrt(squares / static_cast<double>(count)) / budget.rms, largest / budget.max_abs, local});
    }
};

inline RowError row_error(const Evidence& e, std::size_t begin, std::size_t count) {
    RowError row;
    if (e.budget == nullptr || e.budget->local.empty()) {
        for (std::size_t i = begin; i < begin + count; ++i) row.add((*e.got)[i], (*e.want)[i]);
        return row;
    }
    for (std::size_t i = begin; i < begin + count; ++i) {
        row.add((*e.got)[i], (*e.want)[i], granted_locally(*e.budget, i, (*e.want)[i], e.judged));
    }
    return row;
}

// Where a dump is wrong: errors by head and chunk, and the first token beyond its budget.

// First token of a head that exceeds the band by itself: a single row deviates further than a group.
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

std::vector<HeadErrors> map_errors(const GdnReference& r, const ForwardEvidence& evidence, int threads) {
    const GdnDims& d = r.problem.dims;
    const auto heads = static_cast<std::size_t>(d.Hv);
    const auto dv = static_cast<std::size_t>(d.dv);
    const auto state_size = static_cast<std::size_t>(d.dk * d.dv);
    const auto chunk = static_cast<std::size_t>(r.contract.value.chunk);
    const auto map_head = [&](std::size_t n, std::size_t head) {
        const auto begin = static_cast<std::size_t>(r.problem.sequences[n].begin);
        const auto end = static_cast<std::size_t>(r.problem.sequences[n].end);
        HeadErrors errors_of_head{static_cast<std::int64_t>(n), static_cast<std::int64_t>(head), {}, std::nullopt};
        for (std::size_t first = begin; evidence.out && first < end; first += chunk) {
            RowError sum;
            const std::size_t rows = std::min(chunk, end - first);
            for (std::size_t row = first; row < first + rows; ++row) {
                const RowError error = row_error(*evidence.out, (row * heads + head) * dv, dv);
                sum.add(error);
            }
            errors_of_head.chunks.push_back(sum.over(rows * dv, evidence.out->budgets[n * heads + head]));
        }
        if (evidence.state) {
            const std::size_t at = (n * heads + head) * state_size;
            errors_of_head.final_state =
                row_error(*evidence.state, at, state_size).over(state_size, evidence.state->budgets[n * heads + head]);
        }
        return errors_of_head;
    };
    std::vector<HeadErrors> errors(r.problem.sequences.size() * heads);
    run_tasks(errors.size(), threads, [&] {
        return [&](std::size_t sequence_head) {
            errors[sequence_head] = map_head(sequence_head / heads, sequence_head % heads);
        };
    });
    return errors;
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

std::optional<FaultLocation> locate_fault(const GdnReference& r, const ForwardEvidence& evidence,
                                          const std::vector<HeadErrors>& errors) {
    std::set<std::int64_t> sequences;
    std::set<std::int64_t> heads;
    std::set<std::int64_t> chunks;
    std::optional<FaultLocation> place;
    const auto chunk = static_cast<std::int64_t>(r.contract.value.chunk);
    const auto note = [&](const HeadErrors& head, std::int64_t token, std::string tensor) {
        // The earliest token within its sequence; out comes before final_state, which says nothing about tokens.
        const bool earlier = !place || (place->tensor == tensor ? token < place->first_token : tensor == "out");
        if (!earlier) return;
        place.emplace();
        place->tensor = std::move(tensor);
        place->first_sequence = head.sequence;
        place->first_head = head.head;
        place->first_token = token;  // position in its sequence, until the end of this function
        place->first_chunk = token / chunk;
    };
    for (const HeadErrors& head : errors) {
        const bool state = head.final_state && !(*head.final_state <= k_ok_band);
        std::optional<std::size_t> token;
        if (evidence.out) {
            const bool out =
                std::any_of(head.chunks.begin(), head.chunks.end(), [](double x) { return !(x <= k_ok_band); });
            if (out) {
                token = first_wrong_token(r, *evidence.out, static_cast<std::size_t>(head.sequence),
                                          static_cast<std::size_t>(head.head));
            }
        }
        if (!token && !state) continue;
        sequences.insert(head.sequence);
        heads.insert(head.head);
        const GdnSequence s = r.problem.sequences[static_cast<std::size_t>(head.sequence)];
        const std::int64_t last = std::max<std::int64_t>(s.end - s.begin - 1, 0);
        if (token) {
            chunks.insert(static_cast<std::int64_t>(*token) / chunk);
            for (std::size_t c = 0; c < head.chunks.size(); ++c) {
                if (!(head.chunks[c] <= k_ok_band)) chunks.insert(static_cast<std::int64_t>(c));
            }
            note(head, static_cast<std::int64_t>(*token), "out");
        } else {
            chunks.insert(last / chunk);
            note(head, last, "final_state");
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

std::vector<WrongHead> wrong_heads(const GdnReference& r, const std::vector<HeadErrors>& errors) {
    std::vector<WrongHead> heads;
    for (const HeadErrors& e : errors) {
        WrongHead head{static_cast<std::size_t>(e.sequence), static_cast<std::size_t>(e.head), 0,
                       e.final_state.value_or(0)};
        const GdnSequence s = r.problem.sequences[head.sequence];
        const auto length = static_cast<std::size_t>(s.end - s.begin);
        head.first_chunk = (std::max<std::size_t>(length, 1) - 1) / static_cast<std::size_t>(r.contract.value.chunk);
        for (std::size_t c = e.chunks.size(); c-- > 0;) {
            if (!(e.chunks[c] <= k_ok_band)) head.first_chunk = c;
            head.score = std::isnan(e.chunks[c]) ? HUGE_VAL : std::max(head.score, e.chunks[c]);
        }
        if (!(head.score <= k_ok_band)) heads.push_back(head);
    }
    std::stable_sort(heads.begin(), heads.end(),
                     [](const WrongHead& a, const WrongHead& b) { return a.score > b.score; });
    return heads;
}

// Where gradients are wrong: errors by head, chunk and token, and the last token beyond its budget.

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

void add_chunks(const GdnReference& r, const GradientEvidence& g, std::vector<HeadErrors>& errors) {
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
            HeadErrors& errors_of_head = errors[group / heads * static_cast<std::size_t>(r.problem.dims.Hv) + h];
            if (errors_of_head.chunks.size() < cells[group].size())
                errors_of_head.chunks.resize(cells[group].size(), 0);
            for (std::size_t c = 0; c < cells[group].size(); ++c) {
                const Cell& cell = cells[group][c];
                errors_of_head.chunks[c] = std::max(
                    errors_of_head.chunks[c], cell.error.over(cell.runs * t.groups.width, g.evidence.budgets[group]));
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

std::vector<HeadErrors> map_gradient_errors(const GdnReference& r, const std::vector<GradientEvidence>& all) {
    std::vector<HeadErrors> errors;
    if (all.empty()) return errors;
    const auto heads = static_cast<std::size_t>(r.problem.dims.Hv);
    for (std::size_t sequence_head = 0; sequence_head < r.problem.sequences.size() * heads; ++sequence_head) {
        errors.push_back({static_cast<std::int64_t>(sequence_head / heads),
                          static_cast<std::int64_t>(sequence_head % heads),
                          {},
                          {}});
    }
    for (const GradientEvidence& g : all) {
        if (has_tokens(*g.truth)) add_chunks(r, g, errors);
        if (g.truth->canonical != "d_initial_state") continue;
        const std::size_t width = g.truth->groups.width;
        each_run(r, *g.truth, [&](std::size_t n, std::size_t head, std::size_t run) {
            errors[n * heads + head].final_state =
                row_error(g.evidence, run * width, width).over(width, g.evidence.budgets[n * heads + head]);
        });
    }
    return errors;
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

struct GradientLocations {
    std::set<std::int64_t> sequences, heads, chunks;
    std::optional<FaultLocation> place;
    std::int64_t latest = -1;  // its token in the sequence: a backward goes wrong from the end on
};

bool is_of_key_heads(const GradientTruth& t, const GdnDims& d) { return heads_of(t, d) != d.Hv; }

// Adds the wrong runs of one gradient. A key head's gradient is a sum over its value heads. If gradients of value heads
// have already shown which one is wrong (`told`), it adds no others, and not the first token.
void add_wrong_runs(const GdnReference& r, const GradientEvidence& g, const std::set<std::int64_t>& told,
                    GradientLocations& found) {
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
        FaultLocation& place = found.place.emplace();
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

std::optional<FaultLocation> locate_gradient_fault(const GdnReference& r, const std::vector<GradientEvidence>& all) {
    GradientLocations found;
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
