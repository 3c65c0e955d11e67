#include "oracle/gdn/compare/backward_budget.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "oracle/gdn/compare/condition.h"
#include "oracle/gdn/compare/gate_sums.h"
#include "oracle/gdn/compare/perturb.h"
#include "oracle/gdn/kernels/adjoint_chain.h"
#include "oracle/gdn/kernels/backward32.h"
#include "oracle/gdn/kernels/clipped.h"
#include "oracle/gdn/kernels/prepare.h"

namespace gdnctl::oracle {

namespace {

// How much fp32 backward passes may lose beyond the effect of one roundoff on every input. Measured: tests/calibration.
constexpr double k_backward_allowance = 4;
// fp32 sums that include a gate near -1e4 lose most of what follows it. An error this large is measured well, and
// allowed as measured. Seen in correct kernels: 1e-4 to 3e-4 in every gradient of levanter.
constexpr double k_gate_loss = 2.5e-4;
// Keys with this few dimensions are never far from parallel: by chance, chunked forms lose more than these measurements
// show. Seen in correct kernels with chunks of 64: 8.4 times the budget with dk = 3, 6.0 with 4, 3.8 with 8.
constexpr std::int64_t k_narrow_key = 8;
constexpr double k_narrow_widening = 3;
// dg sums n = dk x dv products of states that cancel down to sqrt(n) of them, so a plain loop has an error of sqrt(n /
// 2) roundoffs of the result. Four roundoffs, as everywhere else, are enough up to this n. Seen in correct kernels with
// a sequential loop: 4.3 times a budget without this for 128 x 128, 7.7 times for 256 x 256.
constexpr double k_short_sum = 8.0 * 8;
// How many times larger than typical in its head a value may be and still count for cancellation at other tokens.
constexpr double k_extreme = 100;
// How far our own fp32 backward may widen that. It shows what is lost inside the state, but may have a defect itself.
constexpr double k_own_allowance = 30;

// Perturbs every input and cotangent by `amount`.
void perturb_all(GdnProblem& moved, GdnCotangents& pulled, double amount, std::uint64_t salt) {
    for (auto* values : {&moved.q, &moved.k, &moved.v, &moved.beta, &moved.gate, &moved.initial_state, &pulled.d_out,
                         &pulled.d_final_state}) {
        perturb(*values, amount, salt++ * 0x9E3779B97F4A7C15ULL);
    }
}

// With the log gates of `other`.
GdnGradients run_with_gates(const GdnProblem& problem, const GdnContract& contract, const GdnProblem& other,
                            const GdnCotangents& cotangents, int threads) {
    GdnContract log = contract;
    log.g_kind = GateKind::log;
    GdnGradients gradients = run_adjoint64(other, log, cotangents, threads);
    // Converts them to gates as given.
    const auto given = prepare<double>(problem, contract, threads);
    finish_gradients(problem, contract, given.g, given.beta, gradients);
    return gradients;
}

// Gates as in chunked forms: differences of their fp32 sums inside a chunk. Beyond -2e4 the sum restarts, as in the
// budget of the forward pass.
GdnGradients run_with_fp32_sums(const GdnProblem& problem, const GdnContract& contract, const GdnCotangents& cotangents,
                                int threads) {
    GdnProblem summed = problem;
    summed.gate = log_gates(problem, contract);
    const auto heads = static_cast<std::size_t>(problem.dims.Hv);
    for (const GdnSequence& s : problem.sequences) {
        for (std::size_t h = 0; h < heads; ++h) {
            float sum = 0;
            for (std::int64_t row = s.begin; row < s.end; ++row) {
                double& g = summed.gate[static_cast<std::size_t>(row) * heads + h];
                if ((row - s.begin) % contract.chunk == 0 || !(g > -2e4)) sum = 0;
                if (!(g > -2e4)) continue;
                const float next = sum + static_cast<float>(g);
                g = static_cast<double>(next) - static_cast<double>(sum);
                sum = next;
            }
        }
    }
    return run_with_gates(problem, contract, summed, cotangents, threads);
}

// Marin's kernels clip sums of gates to +-80, others do not. If an initial state has completely decayed below that, its
// remaining gradient depends on the clip, and both results are correct. nullopt: no gradient has decayed that far.
std::optional<GdnContract> with_other_clip(const GdnProblem& p, const GdnContract& c, const GdnGradients& truth) {
    constexpr double k_faded = 1e-28;
    constexpr double k_usual_clip = 80;
    GdnContract other = c;
    if (c.exp_clip && c.exp_clip->of_gates) return std::nullopt;
    if (!c.exp_clip) other.exp_clip = ExpClip{k_usual_clip, false};
    const auto size = static_cast<std::size_t>(p.dims.dk * p.dims.dv);
    bool faded = false;
    for (std::size_t at = 0; at < truth.d_initial_state.size(); at += size) {
        const auto first = truth.d_initial_state.begin() + static_cast<std::ptrdiff_t>(at);
        faded = faded || std::all_of(first, first + static_cast<std::ptrdiff_t>(size),
                                     [](double x) { return std::fabs(x) < k_faded; });
    }
    if (!faded || !clips_sums(p, other)) return std::nullopt;
    if (c.exp_clip) other.exp_clip.reset();
    return other;
}

// The median over a head's nonzero rows of their largest value; 0: all rows are zero.
double usual_row(const std::vector<double>& x, const GdnSequence& s, std::size_t heads, std::size_t head,
                 std::size_t width, std::vector<double>& rows) {
    rows.clear();
    std::vector<double> present;
    for (auto row = static_cast<std::size_t>(s.begin); row < static_cast<std::size_t>(s.end); ++row) {
        const double* at = x.data() + (row * heads + head) * width;
        double largest = 0;
        for (std::size_t j = 0; j < width; ++j) largest = std::max(largest, std::fabs(at[j]));
        rows.push_back(largest);
        if (largest > 0) present.push_back(largest);
    }
    if (present.empty()) return 0;
    const auto middle = present.begin() + static_cast<std::ptrdiff_t>((present.size() - 1) / 2);
    std::nth_element(present.begin(), middle, present.end());
    return *middle;
}

// dbeta without the effect of a single extreme row of v, or of an extreme d_final_state. It does not affect dg of other
// tokens, since it reaches them through decays and is then part of their own truth.
std::vector<double> usual_dbeta(const GdnProblem& p, const GdnCotangents& cotangents, std::vector<double> dbeta) {
    const auto heads = static_cast<std::size_t>(p.dims.Hv);
    const auto dv = static_cast<std::size_t>(p.dims.dv);
    const auto size = static_cast<std::size_t>(p.dims.dk * p.dims.dv);
    std::vector<double> written, pulled;
    for (std::size_t lane = 0; lane < p.sequences.size() * heads; ++lane) {
        const GdnSequence& s = p.sequences[lane / heads];
        const std::size_t head = lane % heads;
        const double usual_v = usual_row(p.v, s, heads, head, dv, written);
        const double usual_d = usual_row(cotangents.d_out, s, heads, head, dv, pulled);
        double last = 0;
        for (std::size_t i = lane * size; i < (lane + 1) * size && !cotangents.d_final_state.empty(); ++i) {
            last = std::max(last, std::fabs(cotangents.d_final_state[i]));
        }
        const double of_state = usual_d > 0 && last > k_extreme * usual_d ? k_extreme * usual_d / last : 1;
        for (std::size_t t = 0; t < written.size(); ++t) {
            const double of_value = written[t] > k_extreme * usual_v ? k_extreme * usual_v / written[t] : 1;
            dbeta[(static_cast<std::size_t>(s.begin) + t) * heads + head] *= of_value * of_state;
        }
    }
    return dbeta;
}

// Reference sizes for gradients that flow through a gate, where they cancel: in every chunked form, dg is a difference
// of large sums of the size of dbeta. This is that size, taken through the gates; sums over tokens in quadrature.
GdnGradients sizes_at_gates(const GdnProblem& problem, const GdnContract& contract, const GdnBackward& backward) {
    GdnGradients sizes;
    sizes.dg = usual_dbeta(problem, backward.cotangents, backward.gradients.dbeta);
    const std::vector<double> g = log_gates(problem, contract);
    through_gates(problem, contract, g, sizes);
    std::fill(sizes.dA_log.begin(), sizes.dA_log.end(), 0);
    std::fill(sizes.ddt_bias.begin(), sizes.ddt_bias.end(), 0);
    for (std::size_t i = 0; i < sizes.d_gate.size() && !sizes.dA_log.empty(); ++i) {
        if (contract.exp_clip && contract.exp_clip->of_gates && contract.exp_clip->cuts(g[i])) continue;
        const std::size_t head = i % sizes.dA_log.size();
        const double at_decay = sizes.dg[i] * g[i];
        if (std::isfinite(at_decay)) sizes.dA_log[head] = std::hypot(sizes.dA_log[head], at_decay);
        if (std::isfinite(sizes.d_gate[i])) sizes.ddt_bias[head] = std::hypot(sizes.ddt_bias[head], sizes.d_gate[i]);
    }
    return sizes;
}

// Reference sizes for values of dq or dk where the l2norm removes nearly everything: dy - y (y.dy) is as small as the
// remainder, but each of its two terms was rounded. `x`: the vectors as given; `along`: see GdnGradients.
std::vector<double> sizes_at_norm(const GdnContract& contract, std::size_t width, const std::vector<double>& x,
                                  const std::vector<double>& along, std::vector<double> gradient) {
    for (std::size_t at = 0; at < gradient.size() && !along.empty(); at += width) {
        if (along[at / width] == 0) continue;
        double squares = 0;
        for (std::size_t i = 0; i < width; ++i) squares += x[at + i] * x[at + i];
        const double factor = along[at / width] / std::sqrt(squares + contract.eps);
        for (std::size_t i = 0; i < width; ++i) gradient[at + i] = std::hypot(gradient[at + i], factor * x[at + i]);
    }
    return along.empty() ? std::vector<double>() : gradient;
}

// The budget from the error of a run with fp32 sums of gates, where `moved` is that of perturbed inputs alone. `size`:
// of the values.
double allowed_by_sums(double error, double moved, double size) {
    const double usual = k_backward_allowance * error;
    return error <= 2 * moved ? usual : std::min(usual, std::max(error, k_gate_loss * size));
}

// `runs`: perturbed inputs, the same with fp32 sums of gates, and others. `floors`: sums of the reference sizes for a
// gradient that cancels; else empty.
TensorBudget budget_of(const std::vector<std::vector<GroupSums>>& runs, const std::vector<GroupSums>& own,
                       const std::vector<GroupSums>& floors, double roundoff) {
    TensorBudget budget;
    const std::size_t count = runs.front().size();
    budget.groups.resize(count);
    std::vector<GroupSize> sizes(count);
    double errors = 0;
    double squares = 0;
    for (std::size_t g = 0; g < count; ++g) {
        GroupBudget& b = budget.groups[g];
        const GroupSums& truth = runs.front()[g];
        const double floor = floors.empty() ? 0 : floors[g].truth_rms();
        const double size = std::max(truth.truth_rms(), floor);
        sizes[g] = {size, std::max(truth.max_truth, size), truth.count};
        for (std::size_t i = 0; i < runs.size(); ++i) {
            const GroupSums& run = runs[i][g];
            const bool sums = i == 1;
            b.rms = std::max(b.rms, sums ? allowed_by_sums(run.error_rms(), truth.error_rms(), size)
                                         : k_backward_allowance * run.error_rms());
            b.max_abs = std::max(b.max_abs, sums ? allowed_by_sums(run.max_error, truth.max_error, sizes[g].largest)
                                                 : k_backward_allowance * run.max_error);
        }
        errors += b.rms * b.rms * static_cast<double>(truth.count);
        squares += sizes[g].rms * sizes[g].rms * static_cast<double>(truth.count);
    }
    budget.relative = std::max(squares > 0 ? std::sqrt(errors / squares) : 0, 4 * roundoff);
    const GroupBudget usual = usual_relative(budget.groups, sizes);
    for (std::size_t g = 0; g < count; ++g) {
        const double floor = floors.empty() ? 0 : floors[g].truth_rms();
        const double largest = std::max(runs.front()[g].max_truth, 4 * floor);
        const double trace = 1e-37 + 0x1p-40 * largest;
        GroupBudget& b = budget.groups[g];
        if (sizes[g].count < k_small_group) {
            b.rms = std::max(b.rms, usual.rms * sizes[g].rms);
            b.max_abs = std::max(b.max_abs, usual.max_abs * largest);
        }
        b.rms = std::max({b.rms, 4 * roundoff * sizes[g].rms, trace});
        b.max_abs = std::max({b.max_abs, 8 * roundoff * largest, trace});
        b.rms = std::max(b.rms, std::min(own[g].error_rms(), k_own_allowance * b.rms));
        b.max_abs = std::max(b.max_abs, std::min(own[g].max_error, k_own_allowance * b.max_abs));
    }
    return budget;
}

// They pass through (I + M)^-1 and its transpose, so a large inverse counts twice. Seen: levanter's d_initial_state,
// for a single key with beta = 2, 4.9 times beyond the budget on one processor and 19.8 times on another.
std::vector<double> widening_of(const GdnReference& r) {
    std::vector<double> widening = r.widening;
    for (double& factor : widening) factor = factor > 1 ? 2 * factor : factor;
    if (r.problem.dims.dk < k_narrow_key) {
        for (double& factor : widening) factor *= k_narrow_widening;
    }
    return widening;
}

}  // namespace

void budget_gradients(const GdnReference& r, const GdnBackward& backward, const std::vector<MeasuredGradient>& all,
                      int threads) {
    const GdnProblem& p = r.problem;
    const GdnContract& c = r.contract.value;
    const GdnCotangents& cotangents = backward.cotangents;
    const double roundoff = roundoff_of(c);
    const auto sums_of = [&](const GdnGradients& run) {
        std::vector<std::vector<GroupSums>> sums;
        for (const MeasuredGradient& g : all) {
            sums.push_back(
                sum_groups(g.truth->groups, g.values(run), g.truth->want, threads, NotFinite::is_unmeasured));
        }
        return sums;
    };
    // One after the other, because each is as large as all gradients.
    const auto measure_moved = [&](std::uint64_t salt, bool fp32_sums) {
        GdnProblem moved = p;
        GdnCotangents pulled = cotangents;
        perturb_all(moved, pulled, roundoff, salt);
        cross_roundings(p, c, moved);
        return sums_of(fp32_sums ? run_with_fp32_sums(moved, c, pulled, threads)
                                 : run_adjoint64(moved, c, pulled, threads));
    };
    std::vector moved = {measure_moved(1, false), measure_moved(101, true)};
    if (sums_narrow(p, c)) {
        const GdnProblem summed = with_narrow_sums(p, c, SumOrder::blocks_of_16);
        moved.push_back(sums_of(run_with_gates(p, c, summed, cotangents, threads)));
    }
    std::vector<std::vector<GroupSums>> clipped;
    if (const auto other = with_other_clip(p, c, backward.gradients)) {
        clipped = sums_of(run_adjoint64(p, *other, cotangents, threads));
    }
    const auto own = sums_of(run_backward32(p, c, cotangents, threads));
    GdnGradients sizes = sizes_at_gates(p, c, backward);
    const auto width = static_cast<std::size_t>(p.dims.dk);
    sizes.dq = sizes_at_norm(c, width, p.q, backward.gradients.q_along, backward.gradients.dq);
    sizes.dk = sizes_at_norm(c, width, p.k, backward.gradients.k_along, backward.gradients.dk);
    const std::vector<double> widening = widening_of(r);
    const double long_sums = std::max(1.0, std::sqrt(static_cast<double>(p.dims.dk * p.dims.dv) / k_short_sum));
    for (std::size_t i = 0; i < all.size(); ++i) {
        GradientTruth& t = *all[i].truth;
        const std::vector<double>& size = all[i].values(sizes);
        std::vector<std::vector<GroupSums>> runs;
        for (const auto& run : moved) runs.push_back(run[i]);
        // For other gradients the clip says nothing: what it leaves of a cleared state would be wrong in out, too.
        if (!clipped.empty() && t.canonical == "d_initial_state") runs.push_back(clipped[i]);
        const bool at_gates =
            t.canonical == "dg" || t.canonical == "da" || t.canonical == "d_A_log" || t.canonical == "d_dt_bias";
        t.budget =
            budget_of(runs, own[i], size.empty() ? std::vector<GroupSums>{} : sum_groups(t.groups, size, size, threads),
                      at_gates ? long_sums * roundoff : roundoff);
        const bool by_key_head = t.canonical == "dq" || t.canonical == "dk";
        widen(t.budget, widening, t.axes != "h" && (!by_key_head || p.dims.Hk == p.dims.Hv));
    }
}

}  // namespace gdnctl::oracle
