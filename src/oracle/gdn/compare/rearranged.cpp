// Tensors that are right except for a factor, a rounding or the order of their axes.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "oracle/gdn/compare/backward.h"
#include "oracle/gdn/compare/localise.h"
#include "oracle/gdn/kernels/kernels.h"
#include "oracle/gdn/kernels/prepare.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle {

// Sum of squares of got - other, where both are finite.
double distance(const std::vector<double>& got, const std::vector<double>& other, int threads = 1);

// The allowed error of a correct tensor, as such a sum.
double allowed(const Evidence& evidence);

// Adds a hint if the distance `after` is small compared with `before`, the distance to the truth.
void note(std::vector<Hint>& hints, std::string_view stage, std::string text, double before, double after,
          double limit);

// Inputs that were read, or an out that was written, with heads before tokens.
void match_axes_order(const GdnReference& reference, const ForwardEvidence& evidence, int threads,
                      std::vector<Hint>& hints);

// Mistakes that keep values right but move them, scale them, or round them.

namespace {

double square(double x) { return x * x; }

// Sum over elements of of(got, other), where both are finite.
template <class Of>
double sum_over(const std::vector<double>& got, const std::vector<double>& other, int threads, const Of& of) {
    const Blocks blocks(got.size());
    std::vector<double> sums(blocks.count, 0);
    run_tasks(blocks.count, threads, [&] {
        return [&](std::size_t b) {
            double sum = 0;
            for (std::size_t i = blocks.begin(b); i < blocks.end(b); ++i) {
                if (std::isfinite(got[i]) && std::isfinite(other[i])) sum += of(got[i], other[i]);
            }
            sums[b] = sum;
        };
    });
    return std::accumulate(sums.begin(), sums.end(), 0.0);
}

// Whether the dump is finite wherever the truth is; other dumps cannot be moved or scaled to it.
bool is_finite(const Evidence& e) {
    for (std::size_t i = 0; i < e.got->size(); ++i) {
        if (!std::isfinite((*e.got)[i]) && std::isfinite((*e.want)[i])) return false;
    }
    return true;
}

std::vector<double> transposed(const std::vector<double>& state, std::size_t dk, std::size_t dv) {
    std::vector<double> result(state.size());
    for (std::size_t head = 0; head < state.size(); head += dk * dv) {
        for (std::size_t i = 0; i < dk; ++i) {
            for (std::size_t j = 0; j < dv; ++j) result[head + j * dk + i] = state[head + i * dv + j];
        }
    }
    return result;
}

// The state with its axes exchanged in every head, or only in those that are closer to the truth that way.
void match_transposed(const GdnReference& r, const Evidence& e, std::vector<Hint>& hints) {
    const auto dk = static_cast<std::size_t>(r.problem.dims.dk);
    const auto dv = static_cast<std::size_t>(r.problem.dims.dv);
    const auto heads = static_cast<std::size_t>(r.problem.dims.Hv);
    const std::vector<double> all = transposed(*e.want, dk, dv);
    std::vector<double> some = *e.want;
    std::vector<std::string> where;
    const std::size_t sequence_heads = e.want->size() / (dk * dv);
    for (std::size_t sequence_head = 0; sequence_head < sequence_heads; ++sequence_head) {
        double straight = 0;
        double exchanged = 0;
        for (std::size_t i = sequence_head * dk * dv; i < (sequence_head + 1) * dk * dv; ++i) {
            straight += square((*e.got)[i] - (*e.want)[i]);
            exchanged += square((*e.got)[i] - all[i]);
        }
        if (!(exchanged < straight / 9)) continue;
        const auto at = static_cast<std::ptrdiff_t>(sequence_head * dk * dv);
        std::copy_n(all.begin() + at, dk * dv, some.begin() + at);
        where.push_back(sequence_heads == heads ? fmt::format("{}", sequence_head)
                                                : fmt::format("{}/{}", sequence_head / heads, sequence_head % heads));
    }
    const double before = distance(*e.got, *e.want);
    note(hints, "layout", "the state is transposed ([dv,dk] for [dk,dv])", before, distance(*e.got, all), allowed(e));
    if (where.empty() || where.size() == sequence_heads) return;
    std::string list;
    for (std::size_t i = 0; i < std::min<std::size_t>(where.size(), 16); ++i) list += (i == 0 ? "" : ", ") + where[i];
    if (where.size() > 16) list += ", ...";
    note(hints, "layout",
         fmt::format("the state is transposed ([dv,dk] for [dk,dv]) in value head{} {} alone",
                     sequence_heads == heads ? "s" : "s (sequence/head)", list),
         before, distance(*e.got, some), allowed(e));
}

// runs[i] is the run of the truth closest to run i of the dump. Each run is one head (or sequence), seen as pieces of
// `size` values with `stride` between them. Only some pieces are compared.
struct Runs {
    std::size_t count = 0, pieces = 0, width = 0;
    std::size_t run_stride = 0, piece_stride = 0;
};

std::vector<std::size_t> nearest_runs(const Evidence& e, const Runs& runs) {
    std::vector<std::size_t> nearest(runs.count);
    const std::size_t step = std::max<std::size_t>(1, runs.pieces / 64);
    for (std::size_t a = 0; a < runs.count; ++a) {
        double best = HUGE_VAL;
        for (std::size_t b = 0; b < runs.count; ++b) {
            double sum = 0;
            for (std::size_t piece = 0; piece < runs.pieces; piece += step) {
                const std::size_t at = piece * runs.piece_stride;
                for (std::size_t i = 0; i < runs.width; ++i) {
                    const double x = (*e.got)[at + a * runs.run_stride + i];
                    const double y = (*e.want)[at + b * runs.run_stride + i];
                    if (std::isfinite(x) && std::isfinite(y)) sum += square(x - y);
                }
            }
            if (sum < best || (sum == best && a == b)) {
                best = sum;
                nearest[a] = b;
            }
        }
    }
    return nearest;
}

std::vector<double> rearranged(const Evidence& e, const Runs& runs, const std::vector<std::size_t>& from) {
    std::vector<double> result = *e.want;
    for (std::size_t a = 0; a < runs.count; ++a) {
        for (std::size_t piece = 0; piece < runs.pieces; ++piece) {
            const std::size_t at = piece * runs.piece_stride;
            std::copy_n(e.want->begin() + static_cast<std::ptrdiff_t>(at + from[a] * runs.run_stride), runs.width,
                        result.begin() + static_cast<std::ptrdiff_t>(at + a * runs.run_stride));
        }
    }
    return result;
}

std::string list_of(const std::vector<std::size_t>& from) {
    std::string text;
    for (std::size_t i = 0; i < std::min<std::size_t>(from.size(), 16); ++i) {
        text += fmt::format("{}{}", i == 0 ? "" : ",", from[i]);
    }
    return from.size() > 16 ? text + ",..." : text;
}

void match_runs(const Evidence& e, const Runs& runs, std::string_view stage, std::string_view what,
                std::vector<Hint>& hints) {
    if (runs.count < 2 || runs.count > 256 || runs.pieces == 0) return;
    const auto from = nearest_runs(e, runs);
    std::vector<std::size_t> identity(runs.count);
    std::iota(identity.begin(), identity.end(), 0);
    if (from == identity) return;
    note(hints, stage, fmt::format("{} are permuted: they hold those of {}", what, list_of(from)),
         distance(*e.got, *e.want), distance(*e.got, rearranged(e, runs, from)), allowed(e));
}

void match_factor(const Evidence& e, std::string_view tensor, double dk, int threads, std::vector<Hint>& hints) {
    const double product = sum_over(*e.got, *e.want, threads, [](double x, double y) { return x * y; });
    const double squares = sum_over(*e.got, *e.want, threads, [](double, double y) { return y * y; });
    const double factor = squares > 0 ? product / squares : 1;
    if (std::fabs(factor - 1) < 1e-6 || factor == 0) return;
    const double before = distance(*e.got, *e.want, threads);
    const double after =
        sum_over(*e.got, *e.want, threads, [factor](double x, double y) { return square(x - factor * y); });
    const double limit = allowed(e) * std::max(1.0, square(factor));
    note(hints, tensor == "out" ? "scale" : "carry",
         fmt::format("{} is {:.6g} times the truth (dk = {})", tensor, factor, dk), before, after, limit);
}

// Some value heads of out are multiples of the truth, each by its own factor, and the others are right.
void match_head_factors(const GdnReference& r, const Evidence& e, std::vector<Hint>& hints) {
    const auto heads = static_cast<std::size_t>(r.problem.dims.Hv);
    const auto width = static_cast<std::size_t>(r.problem.dims.dv);
    std::vector<double> products(heads, 0), squares(heads, 0);
    for (std::size_t i = 0; i < e.got->size(); ++i) {
        const std::size_t h = i / width % heads;
        if (!std::isfinite((*e.got)[i]) || !std::isfinite((*e.want)[i])) continue;
        products[h] += (*e.got)[i] * (*e.want)[i];
        squares[h] += square((*e.want)[i]);
    }
    std::vector<double> scaled = *e.want;
    std::string list;
    std::size_t count = 0;
    for (std::size_t h = 0; h < heads; ++h) {
        const double factor = squares[h] > 0 ? products[h] / squares[h] : 1;
        if (std::fabs(factor - 1) < 1e-3 || factor == 0) continue;
        list += fmt::format("{}out of head {} is {:.6g} times the truth", count++ == 0 ? "" : ", ", h, factor);
        for (std::size_t i = h * width; i < scaled.size(); i += heads * width) {
            for (std::size_t j = i; j < i + width; ++j) scaled[j] *= factor;
        }
    }
    constexpr std::size_t k_few = 4;
    if (count == 0 || count == heads || count > k_few) return;
    note(hints, "output", list, distance(*e.got, *e.want), distance(*e.got, scaled), allowed(e));
}

void match_empty_policy(const GdnReference& r, const Evidence& e, std::vector<Hint>& hints) {
    const std::size_t size = e.want->size() / std::max<std::size_t>(r.problem.sequences.size(), 1);
    const bool zeros = r.contract.value.empty == EmptySequence::zeros;
    std::vector<double> policy = *e.want;
    bool empty = false;
    for (std::size_t n = 0; n < r.problem.sequences.size(); ++n) {
        if (r.problem.sequences[n].begin != r.problem.sequences[n].end || r.problem.initial_state.empty()) continue;
        empty = true;
        for (std::size_t i = n * size; i < (n + 1) * size; ++i) policy[i] = zeros ? r.problem.initial_state[i] : 0;
    }
    if (!empty) return;
    note(hints, "carry",
         zeros ? "sequences without tokens pass the initial state through (empty=passthrough)"
               : "sequences without tokens end in zeros (empty=zeros)",
         distance(*e.got, *e.want), distance(*e.got, policy), allowed(e));
}

// Tokens between the end of a sequence and the end of its batch row.
void match_masked(const GdnReference& r, const Evidence& e, int threads, std::vector<Hint>& hints) {
    const GdnProblem& p = r.problem;
    bool masked = false;
    for (std::size_t n = 0; !p.has_cu_seqlens && n < p.sequences.size(); ++n) {
        masked = masked || p.sequences[n].end < static_cast<std::int64_t>(n + 1) * p.dims.T;
    }
    if (!masked) return;
    const auto heads = static_cast<std::size_t>(p.dims.Hv);
    const auto size = static_cast<std::size_t>(p.dims.dk * p.dims.dv);
    const std::vector<double> gates = log_gates(p, r.contract.value);
    std::vector<double> decayed = *e.want;
    GdnProblem unmasked = p;
    for (std::size_t n = 0; n < p.sequences.size(); ++n) {
        const std::int64_t end = static_cast<std::int64_t>(n + 1) * p.dims.T;
        unmasked.sequences[n].end = end;
        for (std::size_t h = 0; h < heads; ++h) {
            double sum = 0;
            for (std::int64_t row = p.sequences[n].end; row < end; ++row) {
                sum += gates[static_cast<std::size_t>(row) * heads + h];
            }
            for (std::size_t i = (n * heads + h) * size; i < (n * heads + h + 1) * size; ++i)
                decayed[i] *= std::exp(sum);
        }
    }
    const double before = distance(*e.got, *e.want);
    note(hints, "padding", "masked tokens still decay the state", before, distance(*e.got, decayed), allowed(e));
    note(hints, "padding", "tokens beyond the given lengths are not masked at all", before,
         distance(*e.got, run_recurrent64(unmasked, r.contract.value, threads).final_state), allowed(e));
}

}  // namespace

double distance(const std::vector<double>& got, const std::vector<double>& other, int threads) {
    return sum_over(got, other, threads, [](double x, double y) { return square(x - y); });
}

double allowed(const Evidence& e) {
    double rms = 0;
    for (const GroupBudget& b : e.budgets) rms = std::max(rms, b.rms);
    return square(k_ok_band * rms) * static_cast<double>(e.got->size());
}

void note(std::vector<Hint>& hints, std::string_view stage, std::string text, double before, double after,
          double limit) {
    const double near = square(k_wrong_band / k_ok_band) * limit;
    if (!std::isfinite(before) || before <= 0) return;
    if (!(after <= std::max(std::min(near, before / 1e4), std::min(limit, before / 9)))) return;
    hints.push_back(
        {std::string(stage), "matches if " + std::move(text), std::sqrt(before / std::max(after, limit / 16))});
}

void match_rounding(const Evidence& e, std::string_view tensor, std::vector<Hint>& hints) {
    if (e.judged != DType::f32 && e.judged != DType::f64) return;
    for (const DType dtype : {DType::bf16, DType::f16}) {
        const bool held = std::all_of(e.got->begin(), e.got->end(),
                                      [&](double x) { return !std::isfinite(x) || rounded_to(x, dtype) == x; });
        if (!held) continue;
        std::vector<double> rounded = *e.want;
        for (double& y : rounded) y = rounded_to(y, dtype);
        const double before = distance(*e.got, *e.want);
        const double after = distance(*e.got, rounded);
        // Where rounding noise crosses a rounding boundary, a few values differ by a whole step.
        if (before <= 0 || after > before / 4) continue;
        hints.push_back({"rounding",
                         fmt::format("matches if {} is rounded to {} (declare it: {})", tensor, name_of(dtype),
                                     tensor != "final_state"
                                         ? fmt::format("--set out_dtype={}", dtype == DType::bf16 ? "bf16" : "f16")
                                         : std::string("store it so")),
                         std::sqrt(before / std::max(after, allowed(e) / 16))});
    }
}

std::vector<Hint> match_rearranged(const GdnReference& r, const ForwardEvidence& evidence, int threads) {
    std::vector<Hint> hints;
    const GdnDims& d = r.problem.dims;
    const auto heads = static_cast<std::size_t>(d.Hv);
    const auto dk = static_cast<std::size_t>(d.dk);
    const auto dv = static_cast<std::size_t>(d.dv);
    const auto rows = static_cast<std::size_t>(r.problem.rows());
    const auto batches = static_cast<std::size_t>(d.B);
    const std::size_t per_batch = rows / std::max<std::size_t>(batches, 1);
    if (evidence.out && is_finite(*evidence.out)) {
        const Evidence& e = *evidence.out;
        match_runs(e, {heads, rows, dv, dv, heads * dv}, "head_map", "the value heads of out", hints);
        match_runs(e, {batches, per_batch, heads * dv, per_batch * heads * dv, heads * dv}, "layout",
                   "the batch rows of out", hints);
        match_factor(e, "out", static_cast<double>(d.dk), threads, hints);
        match_head_factors(r, e, hints);
        match_rounding(e, "out", hints);
        match_axes_order(r, evidence, threads, hints);
    }
    if (evidence.state && is_finite(*evidence.state)) {
        const Evidence& e = *evidence.state;
        const std::size_t sequences = r.problem.sequences.size();
        match_transposed(r, e, hints);
        match_runs(e, {heads, sequences, dk * dv, dk * dv, heads * dk * dv}, "head_map",
                   "the value heads of final_state", hints);
        match_runs(e, {sequences, 1, heads * dk * dv, heads * dk * dv, 0}, "layout", "the sequences of final_state",
                   hints);
        // If out is wrong too, the state's factor is only a consequence.
        if (!evidence.out || distance(*evidence.out->got, *evidence.out->want, threads) <= allowed(*evidence.out)) {
            match_factor(e, "final_state", static_cast<double>(d.dk), threads, hints);
        }
        match_rounding(e, "final_state", hints);
        match_empty_policy(r, e, hints);
        match_masked(r, e, threads, hints);
    }
    return hints;
}

// Heads before tokens: bytes in the order [B,H,T,D] instead of [B,T,H,D]. Shapes cannot distinguish them.

namespace {

// Which inputs are misread.
struct Misread {
    bool keys = false, values = false, gates = false;
    std::string_view names;
};

constexpr std::array k_misread = {
    Misread{true, true, true, "q, k, v, g and beta are"}, Misread{true, true, false, "q, k and v are"},
    Misread{true, false, false, "q and k are"},           Misread{false, true, false, "v is"},
    Misread{false, false, true, "g and beta are"},
};

std::vector<double> tokens_first(const std::vector<double>& x, const GdnDims& d, std::int64_t heads,
                                 std::int64_t width) {
    return heads_first(x, static_cast<std::size_t>(d.B), static_cast<std::size_t>(heads), static_cast<std::size_t>(d.T),
                       static_cast<std::size_t>(width));
}

GdnProblem misread(const GdnProblem& p, const Misread& m) {
    const GdnDims& d = p.dims;
    GdnProblem other = p;
    if (m.keys) {
        other.q = tokens_first(p.q, d, d.Hk, d.dk);
        other.k = tokens_first(p.k, d, d.Hk, d.dk);
    }
    if (m.values) other.v = tokens_first(p.v, d, d.Hv, d.dv);
    if (m.gates) {
        other.gate = tokens_first(p.gate, d, d.Hv, 1);
        other.beta = tokens_first(p.beta, d, d.Hv, 1);
    }
    return other;
}

// The first tokens of the first value head as a mistake would read them: enough to see whether simulating it is
// worthwhile.
GdnProblem beginning(const GdnProblem& p, std::int64_t key_head, const Misread& m) {
    constexpr std::int64_t k_tokens = 24;
    const GdnDims& d = p.dims;
    GdnProblem few;
    few.dims = {1, std::min(k_tokens, p.sequences.front().end), 1, 1, d.dk, d.dv};
    few.sequences = {{0, few.dims.T}};
    few.qk_dtype = p.qk_dtype;
    const auto take = [&](const std::vector<double>& from, std::int64_t heads, std::int64_t head, std::int64_t width,
                          bool heads_first) {
        std::vector<double> to;
        for (std::int64_t t = 0; t < few.dims.T; ++t) {
            const auto at = from.begin() + (heads_first ? head * d.T + t : t * heads + head) * width;
            to.insert(to.end(), at, at + width);
        }
        return to;
    };
    few.q = take(p.q, d.Hk, key_head, d.dk, m.keys);
    few.k = take(p.k, d.Hk, key_head, d.dk, m.keys);
    few.v = take(p.v, d.Hv, 0, d.dv, m.values);
    few.gate = take(p.gate, d.Hv, 0, 1, m.gates);
    few.beta = take(p.beta, d.Hv, 0, 1, m.gates);
    if (!p.A_log.empty()) few.A_log = {p.A_log.front()};
    if (!p.dt_bias.empty()) few.dt_bias = {p.dt_bias.front()};
    if (!p.initial_state.empty()) {
        few.initial_state.assign(p.initial_state.begin(), p.initial_state.begin() + d.dk * d.dv);
    }
    return few;
}

// The distance between the dump's first value head and its `few` tokens, for out in place and for out with heads first.
struct Distances {
    double in_place = 0, heads_first = 0;
};

Distances distances(const std::vector<double>& got, const GdnDims& d, const std::vector<double>& few) {
    Distances sum;
    const auto dv = static_cast<std::size_t>(d.dv);
    const auto row = static_cast<std::size_t>(d.Hv) * dv;
    for (std::size_t i = 0; i < few.size(); ++i) {
        sum.in_place += std::pow(got[i / dv * row + i % dv] - few[i], 2);
        sum.heads_first += std::pow(got[i] - few[i], 2);
    }
    return sum;
}

bool can_differ(const GdnDims& d, const Misread& m) { return (m.keys && d.Hk > 1) || m.values || m.gates; }

}  // namespace

void match_axes_order(const GdnReference& r, const ForwardEvidence& evidence, int threads, std::vector<Hint>& hints) {
    const GdnProblem& p = r.problem;
    const GdnDims& d = p.dims;
    if (!evidence.out || d.T < 2 || d.Hv < 2 || p.sequences.empty() || p.sequences.front().end < 2) return;
    const Evidence& e = *evidence.out;
    const auto moved = [&](const std::vector<double>& out) {
        return heads_first(out, static_cast<std::size_t>(d.B), static_cast<std::size_t>(d.T),
                           static_cast<std::size_t>(d.Hv), static_cast<std::size_t>(d.dv));
    };
    const double before = distance(*e.got, *e.want, threads);
    note(hints, "layout", "out is written as [B,H,T,D], heads before tokens", before,
         distance(*e.got, moved(*e.want), threads), allowed(e));
    const GdnContract& c = r.contract.value;
    const std::int64_t key_head = key_head_of(0, d, c.head_map);
    const double size = distances(*e.got, d, run_recurrent64(beginning(p, key_head, {}), c, 1).out).in_place;
    for (const Misread& m : k_misread) {
        if (!can_differ(d, m)) continue;
        const Distances few = distances(*e.got, d, run_recurrent64(beginning(p, key_head, m), c, 1).out);
        if (!(std::min(few.in_place, few.heads_first) <= size / 100)) continue;
        const GdnOutputs as_read = run_recurrent64(misread(p, m), c, threads);
        if (evidence.state && distance(*evidence.state->got, as_read.final_state, threads) >
                                  distance(*evidence.state->got, *evidence.state->want, threads) / 9) {
            continue;
        }
        const std::string text = fmt::format("{} read as [B,H,T,D], heads before tokens", m.names);
        note(hints, "layout", text, before, distance(*e.got, as_read.out, threads), allowed(e));
        note(hints, "layout", text + ", and out is written so", before, distance(*e.got, moved(as_read.out), threads),
             allowed(e));
        return;
    }
}

// Gradients that are right except for a factor, or for the order of their axes.

namespace {

bool near(double a, double b) { return std::fabs(a / b - 1) < 1e-3; }

// By least squares; nullopt: the truth is 0.
std::optional<double> factor_of(const GradientEvidence& g) {
    double product = 0;
    double squares = 0;
    for (std::size_t i = 0; i < g.truth->want.size(); ++i) {
        const double got = (*g.evidence.got)[i];
        const double want = g.truth->want[i];
        if (!std::isfinite(got) || !std::isfinite(want)) continue;
        product += got * want;
        squares += want * want;
    }
    if (squares == 0) return std::nullopt;
    return product / squares;
}

std::vector<double> multiple(const GradientEvidence& g, double factor) {
    std::vector<double> other = g.truth->want;
    for (double& x : other) x *= factor;
    return other;
}

// All gradients are linear in the cotangents, so one factor on all of them is a factor on the cotangents.
bool match_common_factor(const std::vector<GradientEvidence>& all, std::vector<Hint>& hints) {
    std::optional<double> common;
    std::size_t count = 0;
    for (const GradientEvidence& g : all) {
        if (!g.wrong) continue;
        ++count;
        // dv is the most stable of them.
        if (!common || g.truth->canonical == "dv") common = factor_of(g);
    }
    if (count < 2 || !common || std::fabs(*common - 1) < 1e-6) return false;
    double least = HUGE_VAL;
    for (const GradientEvidence& g : all) {
        const auto scaled = multiple(g, *common);
        // A gradient that is right with and without the factor is small compared with its reference size.
        if (!g.wrong && rms_difference(*g.evidence.got, scaled) > honest_error(g)) return false;
        if (!g.wrong) continue;
        const double better = gain_under(g, scaled);
        if (better == 0) return false;
        least = std::min(least, better);
    }
    const std::string text = *common == 0        ? std::string("every gradient is 0")
                             : near(*common, -1) ? std::string("every gradient has the wrong sign")
                                                 : fmt::format("every gradient is {:.6g} times the truth", *common);
    hints.push_back({"bwd_shared",
                     fmt::format("matches if {}: the cotangents are scaled (a mean for a sum, a loss scale)", text),
                     least});
    return true;
}

void match_factor(const GdnProblem& p, const GradientEvidence& g, std::vector<Hint>& hints) {
    const auto factor = factor_of(g);
    if (!factor || std::fabs(*factor - 1) < 1e-6) return;
    const std::string& name = g.truth->canonical;
    const auto r = static_cast<double>(p.dims.Hv) / static_cast<double>(p.dims.Hk);
    const auto offer = [&](std::string stage, const std::string& text) {
        offer_gradient(g, std::move(stage), text, multiple(g, *factor), hints);
    };
    if ((name == "dq" || name == "dk") && r > 1 && (near(*factor, 1 / r) || near(*factor, r))) {
        offer("gva_grad", fmt::format("{} is {} over the {} value heads of a key head, not summed", name,
                                      *factor < 1 ? "averaged" : "multiplied by their number", r));
        return;
    }
    offer(stage_of_gradient(name), *factor == 0        ? fmt::format("{} is 0", name)
                                   : near(*factor, -1) ? name + " has the wrong sign"
                                                       : fmt::format("{} is {:.6g} times the truth", name, *factor));
}

void match_order(const GdnProblem& p, const GradientEvidence& g, std::vector<Hint>& hints) {
    const GradientTruth& t = *g.truth;
    const bool keys = t.canonical == "dq" || t.canonical == "dk";
    const std::int64_t heads = keys ? p.dims.Hk : p.dims.Hv;
    if (!t.axes.starts_with("b,t,h") || heads < 2 || p.dims.T < 2) return;
    offer_gradient(g, "layout", t.canonical + " is written as [B,H,T,D], heads before tokens",
                   heads_first(t.want, static_cast<std::size_t>(p.dims.B), static_cast<std::size_t>(p.dims.T),
                               static_cast<std::size_t>(heads), t.groups.width),
                   hints);
}

}  // namespace

double honest_error(const GradientEvidence& g) {
    double largest = 0;
    for (const GroupBudget& b : g.evidence.budgets) largest = std::max(largest, b.rms);
    return k_ok_band * largest;
}

double gain_under(const GradientEvidence& g, const std::vector<double>& other) {
    const std::vector<double>& got = *g.evidence.got;
    for (std::size_t i = 0; i < other.size(); ++i) {
        // An explanation must be non-finite exactly where the dump is.
        if (std::isfinite(g.truth->want[i]) && std::isfinite(other[i]) != std::isfinite(got[i])) return 0;
    }
    const double before = rms_difference(got, g.truth->want);
    const double after = rms_difference(got, other);
    const double limit = honest_error(g);
    const bool fits = after <= std::max(before / 100, std::min(limit, before / 3));
    return fits ? before / std::max(after, limit / 16) : 0;
}

void offer_gradient(const GradientEvidence& g, std::string stage, const std::string& text,
                    const std::vector<double>& other, std::vector<Hint>& hints) {
    const double better = gain_under(g, other);
    if (better > 0) hints.push_back({std::move(stage), "matches if " + text, better});
}

std::string stage_of_gradient(std::string_view name) {
    if (name == "d_initial_state") return "dS0";
    if (name == "d_b") return "dbeta";
    return std::string(name.starts_with("d_") ? "dg" : name);
}

void match_scaled_gradients(const GdnProblem& problem, const std::vector<GradientEvidence>& all,
                            std::vector<Hint>& hints) {
    if (match_common_factor(all, hints)) return;
    for (const GradientEvidence& g : all) {
        if (!g.wrong) continue;
        match_factor(problem, g, hints);
        match_order(problem, g, hints);
    }
}

// Possible mistakes in inputs that cannot be judged.

namespace {

struct Range {
    double least = HUGE_VAL, most = -HUGE_VAL;
};

Range range_of_gates(const GdnProblem& p) {
    const auto heads = static_cast<std::size_t>(p.dims.Hv);
    Range range;
    for (const GdnSequence& s : p.sequences) {
        for (auto i = static_cast<std::size_t>(s.begin) * heads; i < static_cast<std::size_t>(s.end) * heads; ++i) {
            range.least = std::isnan(p.gate[i]) ? -HUGE_VAL : std::min(range.least, p.gate[i]);
            range.most = std::max(range.most, p.gate[i]);
        }
    }
    return range;
}

bool holds_results(const std::optional<Evidence>& e, const std::vector<double>& other) {
    if (!e) return true;
    const std::vector<double> nothing(other.size(), 0);
    return distance(*e->got, other) <= 1e-4 * distance(other, nothing);
}

}  // namespace

std::optional<Hint> hint_for_unstable(const GdnReference& r, const ForwardEvidence& evidence, int threads) {
    const Range gates = range_of_gates(r.problem);
    // A factor is not negative, and if the state is to persist, factors cannot make it grow for long.
    if (r.contract.value.g_kind != GateKind::log || !(gates.least >= 0 && gates.most < 4)) return std::nullopt;
    GdnContract factors = r.contract.value;
    factors.g_kind = GateKind::alpha;
    const GdnOutputs other = run_recurrent64(r.problem, factors, threads);
    const bool matches = (evidence.out || evidence.state) && holds_results(evidence.out, other.out) &&
                         holds_results(evidence.state, other.final_state);
    if (matches) return Hint{"gate", "matches if g is alpha, the decay itself (declare it: --set g_kind=alpha)", 1};
    if (gates.most > 1) return std::nullopt;
    return Hint{"gate",
                "every g lies within 0 and 1: consistent with alpha, the decay itself (declare it: --set g_kind=alpha)",
                1};
}

}  // namespace gdnctl::oracle
