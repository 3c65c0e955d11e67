// The truth and the budgets of gradients. Budgets are measured: the errors of correct backward passes on these inputs.
#include "oracle/gdn/compare/backward.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "oracle/gdn/compare/budget.h"
#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/kernels/adjoint.h"
#include "oracle/gdn/kernels/backward32.h"
#include "oracle/gdn/kernels/clipped.h"
#include "oracle/gdn/kernels/prepare.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle {

struct MeasuredGradient {
    GradientTruth* truth = nullptr;
    std::vector<double> GdnGradients::* values = nullptr;
};

// Fills the budgets of `all`, which are gradients of `backward`.
void budget_gradients(const GdnReference& reference, const GdnBackward& backward,
                      const std::vector<MeasuredGradient>& all, int threads);

namespace {

// How much backward passes may lose beyond the effect of one roundoff on every input: in chunked forms of fp32, which
// differ most, and with 16-bit operands, which dominate. Measured: tests/calibration; tf32 loses more than it rounds.
constexpr double k_allowance_fp32 = 4, k_allowance_16bit = 2;
constexpr std::size_t k_block_tokens = 16;  // whose errors are measured together, for the allowance of each element
// How much larger than the root mean square of its block's error the error of an element may be.
constexpr double k_element_fp32 = 12, k_element_16bit = 2.5;
// fp32 sums that include a gate near -1e4 lose what follows it. An error this large is measured well, and allowed as
// measured. Seen in correct kernels: 1e-4 to 3e-4 in every gradient of levanter.
constexpr double k_gate_loss = 2.5e-4;
// Keys with this few dimensions are never far from parallel, and chunked forms lose more than these measurements show.
// Seen in correct kernels with chunks of 64: 8.4 times the budget with dk = 3, 6.0 with 4, 3.8 with 8.
constexpr std::int64_t k_narrow_key = 8;
constexpr double k_narrow_widening = 3;
// dg sums n = dk x dv products that cancel down to sqrt(n) of them, so a plain loop is off by sqrt(n / 2) roundoffs of
// the result. Four are enough up to this n. Seen: 4.3 times a budget without this for 128 x 128, 7.7 times for 256 x
// 256.
constexpr double k_short_sum = 8.0 * 8;
// How many times larger than typical a value may be and still count for cancellation at other tokens of its head.
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
    for (std::size_t sequence_head = 0; sequence_head < p.sequences.size() * heads; ++sequence_head) {
        const GdnSequence& s = p.sequences[sequence_head / heads];
        const std::size_t head = sequence_head % heads;
        const double usual_v = usual_row(p.v, s, heads, head, dv, written);
        const double usual_d = usual_row(cotangents.d_out, s, heads, head, dv, pulled);
        double last = 0;
        for (std::size_t i = sequence_head * size; i < (sequence_head + 1) * size && !cotangents.d_final_state.empty();
             ++i) {
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

// What fp32 flushes to 0 comes back larger through a product with a large value and the norm of a key that is 0.
double flushed_of(const GdnProblem& p, const GdnContract& c, std::string_view canonical) {
    double flushed = 8 * k_smallest;
    if ((canonical != "dq" && canonical != "dk") || c.l2norm == L2Norm::off) return flushed;
    double largest = 1;
    for (const double x : p.v) largest = std::max(largest, std::isfinite(x) ? std::fabs(x) : 0);
    return flushed * largest * std::min(1 / std::sqrt(c.eps), 1e6);
}

// How the errors of measured runs become a budget.
struct Rates {
    double roundoff = 0;   // of the operands of products
    double allowance = 0;  // on measured errors, and in roundoffs of the values
    double cancelled = 0;  // part of the reference size that is lost where a gradient cancels
    double flushed = 0;    // see flushed_of()
};

// The budget from the error of a run with fp32 sums of gates, where `moved` is that of perturbed inputs alone. `size`:
// of the values.
double allowed_by_sums(const Rates& rates, double error, double moved, double size) {
    const double usual = rates.allowance * error;
    return error <= 2 * moved ? usual : std::min(usual, std::max(error, k_gate_loss * size));
}

struct RunErrors {  // of one gradient
    std::vector<GroupSums> groups;
    std::vector<double> blocks;  // see block_rms(); empty: the gradient has no tokens
};

// `runs`: perturbed inputs, the same with fp32 sums of gates, and others. `floors`: sums of the reference sizes for a
// gradient that cancels; else empty.
TensorBudget budget_of(const std::vector<RunErrors>& runs, const std::vector<GroupSums>& own,
                       const std::vector<GroupSums>& floors, const Rates& rates) {
    TensorBudget budget;
    const std::size_t count = runs.front().groups.size();
    budget.groups.resize(count);
    std::vector<GroupSize> sizes(count);
    double errors = 0;
    double squares = 0;
    for (std::size_t g = 0; g < count; ++g) {
        GroupBudget& b = budget.groups[g];
        const GroupSums& truth = runs.front().groups[g];
        const double floor = floors.empty() ? 0 : floors[g].truth_rms();
        const double size = std::max(truth.truth_rms(), floor);
        sizes[g] = {size, std::max(truth.max_truth, size), truth.count};
        for (std::size_t i = 0; i < runs.size(); ++i) {
            const GroupSums& run = runs[i].groups[g];
            const bool sums = i == 1;
            b.rms = std::max(b.rms, sums ? allowed_by_sums(rates, run.error_rms(), truth.error_rms(), size)
                                         : rates.allowance * run.error_rms());
            b.max_abs =
                std::max(b.max_abs, sums ? allowed_by_sums(rates, run.max_error, truth.max_error, sizes[g].largest)
                                         : rates.allowance * run.max_error);
        }
        errors += b.rms * b.rms * static_cast<double>(truth.count);
        squares += sizes[g].rms * sizes[g].rms * static_cast<double>(truth.count);
    }
    budget.relative = std::max(squares > 0 ? std::sqrt(errors / squares) : 0, rates.allowance * rates.roundoff);
    const GroupBudget usual = usual_relative(budget.groups, sizes);
    for (std::size_t g = 0; g < count; ++g) {
        const double floor = floors.empty() ? 0 : floors[g].truth_rms();
        const GroupSums& truth = runs.front().groups[g];
        const double largest = std::max(truth.max_truth, 4 * floor);
        const double trace = 1e-37 + rates.flushed + 0x1p-40 * largest;
        GroupBudget& b = budget.groups[g];
        if (sizes[g].count < k_small_group) {
            b.rms = std::max(b.rms, usual.rms * sizes[g].rms);
            b.max_abs = std::max(b.max_abs, usual.max_abs * largest);
        }
        const double of_values = rates.allowance * rates.roundoff;
        b.rms = std::max({b.rms, of_values * truth.truth_rms(), rates.cancelled * sizes[g].rms, trace});
        b.max_abs = std::max({b.max_abs, 2 * of_values * truth.max_truth, 2 * rates.cancelled * largest, trace});
        b.rms = std::max(b.rms, std::min(own[g].error_rms(), k_own_allowance * b.rms));
        b.max_abs = std::max(b.max_abs, std::min(own[g].max_error, k_own_allowance * b.max_abs));
    }
    return budget;
}

// The root mean square of `values` (or of its distance from `want`) over k_block_tokens tokens of each head: [rows,
// heads].
std::vector<double> block_rms(const GradientTruth& t, const GdnProblem& p, const std::vector<double>& values,
                              const std::vector<double>* want, int threads) {
    const std::size_t heads = t.groups.of_run.size() / static_cast<std::size_t>(p.rows());
    const std::size_t width = t.groups.width;
    std::vector<double> rms(t.groups.of_run.size(), 0);
    run_tasks(p.sequences.size() * heads, threads, [&] {
        return [&](std::size_t sequence_head) {
            const GdnSequence& s = p.sequences[sequence_head / heads];
            const auto end = static_cast<std::size_t>(s.end);
            for (auto first = static_cast<std::size_t>(s.begin); first < end; first += k_block_tokens) {
                const std::size_t last = std::min(first + k_block_tokens, end);
                double squares = 0;
                std::size_t count = 0;
                for (std::size_t row = first; row < last; ++row) {
                    const std::size_t at = (row * heads + sequence_head % heads) * width;
                    for (std::size_t i = at; i < at + width; ++i) {
                        const double x = want == nullptr ? values[i] : values[i] - (*want)[i];
                        squares += std::isfinite(x) ? x * x : 0;
                        count += std::isfinite(x) ? 1 : 0;
                    }
                }
                const double mean = count == 0 ? 0 : std::sqrt(squares / static_cast<double>(count));
                for (std::size_t row = first; row < last; ++row) rms[row * heads + sequence_head % heads] = mean;
            }
        };
    });
    return rms;
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

// An element may be off by its block's error, as the runs measure it, or by the part of its block's size that its group
// may be off by. `floors`: as in budget_of(), of the reference sizes `size`.
void grant_locally(const GdnReference& r, const std::vector<RunErrors>& runs, const RunErrors& own,
                   const std::vector<GroupSums>& floors, const std::vector<double>& size, double allowance, int threads,
                   GradientTruth& t) {
    const std::vector<double> truth = block_rms(t, r.problem, t.want, nullptr, threads);
    const std::vector<double> other = size.empty() ? truth : block_rms(t, r.problem, size, nullptr, threads);
    std::vector<double> relative;  // by group
    for (std::size_t g = 0; g < t.groups.count; ++g) {
        const double whole = std::max(runs.front().groups[g].truth_rms(), floors.empty() ? 0 : floors[g].truth_rms());
        relative.push_back(whole > 0 ? t.budget.groups[g].rms / whole : 0);
    }
    t.budget.local_width = t.groups.width;
    // The gradients of repeated key heads (each up to twice their sum) and of rounded normalised keys are rounded.
    const GdnContract& c = r.contract.value;
    const bool rounded = c.l2norm != L2Norm::off && c.rounding == NormRounding::input;
    if ((t.canonical == "dq" || t.canonical == "dk") && (r.problem.dims.Hk != r.problem.dims.Hv || rounded)) {
        std::transform(truth.begin(), truth.end(), other.begin(), std::back_inserter(t.budget.summed),
                       [](double a, double b) { return static_cast<float>(2 * std::max(a, b)); });
    }
    const double flushed = flushed_of(r.problem, c, t.canonical);
    t.budget.local.assign(truth.size(), static_cast<float>(HUGE_VAL));
    for (std::size_t run = 0; run < truth.size(); ++run) {
        if (t.groups.of_run[run] + 1 == t.groups.count) continue;  // outside all sequences: judged with their group
        double error = relative[t.groups.of_run[run]] * std::max(truth[run], other[run]);
        for (const RunErrors& measured : runs) error = std::max(error, allowance * measured.blocks[run]);
        error = std::max(error, std::min(own.blocks[run], k_own_allowance * error));
        t.budget.local[run] =
            static_cast<float>((allowance < k_allowance_fp32 ? k_element_16bit : k_element_fp32) * error + flushed);
    }
}

bool is_at_gates(std::string_view name) {
    return name == "dg" || name == "d_a" || name == "d_alpha" || name == "d_A_log" || name == "d_dt_bias";
}

void widen_gradient(const GdnProblem& p, const std::vector<double>& widening, GradientTruth& t) {
    const bool by_key_head = t.canonical == "dq" || t.canonical == "dk";
    const std::vector<GroupBudget> before = t.budget.groups;
    widen(t.budget, widening, t.axes != "h" && (!by_key_head || p.dims.Hk == p.dims.Hv));
    for (std::size_t run = 0; run < t.budget.local.size(); ++run) {
        const std::size_t g = t.groups.of_run[run];
        t.budget.local[run] *= static_cast<float>(t.budget.groups[g].rms / before[g].rms);
    }
}

}  // namespace

void budget_gradients(const GdnReference& r, const GdnBackward& backward, const std::vector<MeasuredGradient>& all,
                      int threads) {
    const GdnProblem& p = r.problem;
    const GdnContract& c = r.contract.value;
    const GdnCotangents& cotangents = backward.cotangents;
    const double roundoff = roundoff_of(c);
    const bool narrow = c.matmul == Matmul::bf16 || c.matmul == Matmul::f16 || c.state_dtype != StateDType::f32;
    const double allowance = narrow ? k_allowance_16bit : k_allowance_fp32;
    const auto errors_of = [&](const GdnGradients& run) {
        std::vector<RunErrors> errors;
        for (const MeasuredGradient& g : all) {
            const GradientTruth& t = *g.truth;
            errors.push_back({sum_groups(t.groups, run.*g.values, t.want, threads, NotFinite::is_unmeasured), {}});
            if (has_tokens(t)) errors.back().blocks = block_rms(t, p, run.*g.values, &t.want, threads);
        }
        return errors;
    };
    // One after the other, because each is as large as all gradients.
    const auto measure_moved = [&](std::uint64_t salt, bool fp32_sums) {
        GdnProblem moved = p;
        GdnCotangents pulled = cotangents;
        perturb_all(moved, pulled, roundoff, salt);
        cross_roundings(p, c, moved);
        return errors_of(fp32_sums ? run_with_fp32_sums(moved, c, pulled, threads)
                                   : run_adjoint64(moved, c, pulled, threads));
    };
    std::vector moved = {measure_moved(1, false), measure_moved(101, true)};
    if (sums_narrow(p, c)) {
        const GdnProblem summed = with_narrow_sums(p, c, SumOrder::blocks_of_16);
        moved.push_back(errors_of(run_with_gates(p, c, summed, cotangents, threads)));
    }
    std::vector<RunErrors> clipped;
    if (const auto other = with_other_clip(p, c, backward.gradients)) {
        clipped = errors_of(run_adjoint64(p, *other, cotangents, threads));
    }
    const auto own = errors_of(run_backward32(p, c, cotangents, threads));
    GdnGradients sizes = sizes_at_gates(p, c, backward);
    const auto width = static_cast<std::size_t>(p.dims.dk);
    sizes.dq = sizes_at_norm(c, width, p.q, backward.gradients.q_along, backward.gradients.dq);
    sizes.dk = sizes_at_norm(c, width, p.k, backward.gradients.k_along, backward.gradients.dk);
    const std::vector<double> widening = widening_of(r);
    const double long_sums = std::max(1.0, std::sqrt(static_cast<double>(p.dims.dk * p.dims.dv) / k_short_sum));
    for (std::size_t i = 0; i < all.size(); ++i) {
        GradientTruth& t = *all[i].truth;
        const std::vector<double>& size = sizes.*all[i].values;
        const std::vector<GroupSums> floors =
            size.empty() ? std::vector<GroupSums>{} : sum_groups(t.groups, size, size, threads);
        std::vector<RunErrors> runs;
        for (const auto& run : moved) runs.push_back(run[i]);
        // For other gradients the clip says nothing: what it leaves of a cleared state would be wrong in out, too.
        if (!clipped.empty() && t.canonical == "d_initial_state") runs.push_back(clipped[i]);
        const double cancelled =
            is_at_gates(t.canonical) ? k_allowance_fp32 * long_sums * k_fp32_roundoff : allowance * roundoff;
        t.budget =
            budget_of(runs, own[i].groups, floors, {roundoff, allowance, cancelled, flushed_of(p, c, t.canonical)});
        if (has_tokens(t) && r.unstable_reason.empty()) {
            grant_locally(r, runs, own[i], floors, size, allowance, threads, t);
        }
        widen_gradient(p, widening, t);
    }
}

namespace {

struct Gradient {
    std::string_view name;
    std::string_view of;  // the input
    std::vector<double> GdnGradients::* values;
    std::string_view axes;
    bool at_inputs = false;  // of a gate or beta as given: judged if the dump has it, not reported as missing otherwise
};

constexpr std::array k_gradients = {
    Gradient{"dq", "q", &GdnGradients::dq, "b,t,h,k"},
    Gradient{"dk", "k", &GdnGradients::dk, "b,t,h,k"},
    Gradient{"dv", "v", &GdnGradients::dv, "b,t,h,v"},
    Gradient{"dg", "g", &GdnGradients::dg, "b,t,h"},
    Gradient{"dbeta", "beta", &GdnGradients::dbeta, "b,t,h"},
    Gradient{"d_initial_state", "initial_state", &GdnGradients::d_initial_state, "b,h,k,v"},
    Gradient{"d_alpha", "g", &GdnGradients::d_gate, "b,t,h", true},
    Gradient{"d_a", "a", &GdnGradients::d_gate, "b,t,h", true},
    Gradient{"d_b", "b", &GdnGradients::d_logit, "b,t,h", true},
    Gradient{"d_A_log", "A_log", &GdnGradients::dA_log, "h", true},
    Gradient{"d_dt_bias", "dt_bias", &GdnGradients::ddt_bias, "h", true},
};

const Gradient& gradient_named(std::string_view canonical) {
    return *std::find_if(k_gradients.begin(), k_gradients.end(),
                         [&](const Gradient& g) { return g.name == canonical; });
}

// Runs of a per-token tensor by (sequence, head); rows outside all sequences are the last group.
Groups token_groups(const GdnProblem& p, std::size_t heads, std::size_t width) {
    const std::size_t outside = p.sequences.size() * heads;
    Groups groups{std::vector<std::size_t>(static_cast<std::size_t>(p.rows()) * heads, outside), width, outside + 1};
    for (std::size_t n = 0; n < p.sequences.size(); ++n) {
        const auto begin = static_cast<std::size_t>(p.sequences[n].begin);
        const auto end = static_cast<std::size_t>(p.sequences[n].end);
        for (std::size_t run = begin * heads; run < end * heads; ++run) groups.of_run[run] = n * heads + run % heads;
    }
    return groups;
}

void describe(GradientTruth& t, const GdnReference& r) {
    const GdnProblem& p = r.problem;
    const auto tokens = [&](std::int64_t heads, std::int64_t width) {
        t.shape = width > 0 ? token_shape(p, {heads, width}) : token_shape(p, {heads});
        t.groups = token_groups(p, static_cast<std::size_t>(heads),
                                static_cast<std::size_t>(std::max<std::int64_t>(width, 1)));
    };
    if (t.canonical == "dq" || t.canonical == "dk") {
        tokens(p.dims.Hk, p.dims.dk);
    } else if (t.canonical == "dv") {
        tokens(p.dims.Hv, p.dims.dv);
    } else if (t.canonical == "d_A_log" || t.canonical == "d_dt_bias") {
        t.shape = {p.dims.Hv};
        t.groups = {std::vector<std::size_t>(static_cast<std::size_t>(p.dims.Hv), 0), 1, 1};
    } else if (t.canonical == "d_initial_state") {
        t.shape = state_shape(p, r.contract.value.state_layout);
        t.groups = groups_of_state(p);
    } else {
        tokens(p.dims.Hv, 0);
    }
}

// The values of a cotangent in canonical axes; empty if neither file has it.
Result<std::vector<double>> cotangent(const TensorFile& inputs, const TensorFile& dump, std::string_view name,
                                      const Shape& shape) {
    GDNCTL_TRY_ASSIGN(const Tensor* tensor, find_gdn_tensor(inputs, name));
    if (tensor == nullptr) {
        GDNCTL_TRY_ASSIGN(tensor, find_gdn_tensor(dump, name));
    }
    if (tensor == nullptr) return std::vector<double>{};
    if (tensor->shape != shape || !is_floating(tensor->dtype)) {
        return fail(ErrorKind::bad_input, fmt::format("tensor '{}': expected {} {}, got {} {}", name, text_of(shape),
                                                      is_floating(tensor->dtype) ? name_of(tensor->dtype) : "float32",
                                                      text_of(tensor->shape), name_of(tensor->dtype)));
    }
    return to_f64(*tensor);
}

bool has_gradient(const TensorFile& dump) {
    return dump.any_name([](std::string_view name) { return canonical_name(name).role == GdnRole::gradient; });
}

bool holds_gradient(const TensorFile& dump, std::string_view name, const GdnContract& c) {
    return dump.any_name([&](std::string_view other) { return name_in_dump(dump, other, c).canonical == name; });
}

// Whether the contract has an input for this gradient, and the dump contains it.
bool means_something(std::string_view name, const GdnContract& c, const TensorFile& dump) {
    const bool there = holds_gradient(dump, name, c);
    if (name == "d_alpha") return there && c.g_kind == GateKind::alpha;
    if (name == "d_b") return there && c.beta_kind != BetaKind::prob;
    return there && c.g_kind == GateKind::raw;
}

// If an output has 16 bits, so had its cotangent; if it has more digits than its contract gives it, its cotangent was
// not rounded.
DType dtype_of_out(const GdnReference& r, const TensorFile& dump) {
    const DType declared = out_dtype_of(r.contract.value, r.problem);
    const auto found = find_gdn_tensor(dump, "out");
    if (!found || *found == nullptr) return declared;
    if ((*found)->dtype == DType::bf16 || (*found)->dtype == DType::f16) return (*found)->dtype;
    return held_by(to_f64(**found), declared) ? declared : DType::f32;
}

}  // namespace

std::vector<double>& gradient_of(GdnGradients& gradients, std::string_view canonical) {
    return gradients.*gradient_named(canonical).values;
}
const std::vector<double>& gradient_of(const GdnGradients& gradients, std::string_view canonical) {
    return gradients.*gradient_named(canonical).values;
}

std::vector<std::string_view> gradient_names() {
    std::vector<std::string_view> names;
    for (const Gradient& g : k_gradients) {
        if (!g.at_inputs) names.push_back(g.name);
    }
    return names;
}

bool held_by(const std::vector<double>& values, DType dtype) {
    return std::all_of(values.begin(), values.end(),
                       [&](double x) { return !std::isfinite(x) || rounded_to(x, dtype) == x; });
}

const GradientTruth* GdnBackward::find(std::string_view canonical) const {
    for (const GradientTruth& t : truths) {
        if (t.canonical == canonical) return &t;
    }
    return nullptr;
}

double rms_difference(const std::vector<double>& got, const std::vector<double>& want) {
    double sum = 0;
    std::size_t count = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
        if (!std::isfinite(want[i])) continue;
        const double error = got[i] - want[i];
        sum += std::isfinite(error) ? error * error : HUGE_VAL;
        ++count;
    }
    return count == 0 ? 0 : std::sqrt(sum / static_cast<double>(count));
}

namespace {

Result<GdnCotangents> read_cotangents_of(const GdnReference& r, const TensorFile& inputs, const TensorFile& dump) {
    const GdnProblem& p = r.problem;
    GdnCotangents c;
    GDNCTL_TRY_ASSIGN(auto d_out, cotangent(inputs, dump, "d_out", out_shape(p)));
    c.d_out = from_file_order(p, std::move(d_out), p.dims.Hv);
    GDNCTL_TRY_ASSIGN(c.d_final_state,
                      cotangent(inputs, dump, "d_final_state", state_shape(p, r.contract.value.state_layout)));
    if (c.d_out.empty() && !c.d_final_state.empty()) c.d_out.assign(p.v.size(), 0.0);
    if (r.contract.value.state_layout == StateLayout::value_key) {
        GdnDims swapped = p.dims;
        std::swap(swapped.dk, swapped.dv);
        c.d_final_state = to_layout(c.d_final_state, swapped, StateLayout::value_key);
    }
    return c;
}

Result<GdnBackward> backward_of(const GdnReference& r, const TensorFile& inputs, const TensorFile& dump,
                                GdnCotangents cotangents, int threads) {
    const GdnProblem& p = r.problem;
    const GdnContract& c = r.contract.value;
    GdnBackward b;
    b.cotangents = std::move(cotangents);
    b.gradients = run_adjoint64(p, c, b.cotangents, threads);
    for (const Gradient& gradient : k_gradients) {
        if (gradient.name == "d_initial_state" && p.initial_state.empty() && !holds_gradient(dump, gradient.name, c)) {
            continue;
        }
        if (gradient.at_inputs && !means_something(gradient.name, c, dump)) continue;
        GradientTruth t{std::string(gradient.name), gradient.axes, {}, b.gradients.*gradient.values, {}, {}};
        GDNCTL_TRY_ASSIGN(const Tensor* input, find_gdn_tensor(inputs, gradient.of));
        if (input != nullptr) t.input = input->dtype;
        describe(t, r);
        b.truths.push_back(std::move(t));
    }
    std::vector<MeasuredGradient> measured;
    for (GradientTruth& t : b.truths) {
        measured.push_back({&t, gradient_named(t.canonical).values});
    }
    budget_gradients(r, b, measured, threads);
    return b;
}

// How well the gradients in the dump agree with the truth.
struct Agreement {
    std::size_t right = 0;  // how many are OK
    double error = 0;       // of all together, in budgets; ignores those that are not finite

    bool better_than(const Agreement& other) const {
        return right != other.right ? right > other.right : error < other.error;
    }
};

Agreement agreement_with(const GdnReference& r, const TensorFile& dump, int threads) {
    CompareOptions options;
    options.hints = false;
    options.threads = threads;
    const auto report = judge(r, dump, options);
    Agreement agreement;
    for (std::size_t i = 0; report && i < report->tensors.size(); ++i) {
        const TensorReport& t = report->tensors[i];
        if (r.backward->find(t.canonical) == nullptr) continue;
        if (t.verdict == Verdict::ok) ++agreement.right;
        if (std::isfinite(t.error_over_budget)) agreement.error += t.error_over_budget;
    }
    return agreement;
}

}  // namespace

Status add_backward(GdnReference& r, const TensorFile& inputs, const TensorFile& dump, int threads) {
    if (!has_gradient(dump)) return {};
    GDNCTL_TRY(check_gradients(r.problem));
    GDNCTL_TRY_ASSIGN(auto given, read_cotangents_of(r, inputs, dump));
    if (given.d_out.empty()) return {};
    const DType out = dtype_of_out(r, dump);
    GdnCotangents rounded = given;
    if (!round_cotangent(rounded, out)) {
        GDNCTL_TRY_ASSIGN(auto only, backward_of(r, inputs, dump, std::move(given), threads));
        r.backward = std::make_shared<const GdnBackward>(std::move(only));
        return {};
    }
    // Automatic differentiation rounds d_out if out was rounded; a custom backward pass may use it unrounded.
    GDNCTL_TRY_ASSIGN(auto narrow, backward_of(r, inputs, dump, std::move(rounded), threads));
    narrow.d_out = CotangentUse::rounded;
    narrow.d_out_dtype = out;
    r.backward = std::make_shared<const GdnBackward>(std::move(narrow));
    const Agreement agreement = agreement_with(r, dump, threads);
    GDNCTL_TRY_ASSIGN(auto wide, backward_of(r, inputs, dump, std::move(given), threads));
    wide.d_out = CotangentUse::as_given;
    const auto before = std::exchange(r.backward, std::make_shared<const GdnBackward>(std::move(wide)));
    if (!agreement_with(r, dump, threads).better_than(agreement)) r.backward = before;
    return {};
}

bool cotangent_rounded(const GdnReference& reference) {
    return reference.backward && reference.backward->d_out == CotangentUse::rounded;
}

std::string cotangent_used(const GdnReference& reference) {
    if (!reference.backward || reference.backward->d_out == CotangentUse::no_choice) return {};
    if (reference.backward->d_out == CotangentUse::as_given) return "d_out as given";
    return fmt::format("d_out rounded to {}", name_of(reference.backward->d_out_dtype));
}

}  // namespace gdnctl::oracle
