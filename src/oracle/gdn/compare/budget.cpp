// The budgets of a forward pass, measured on perturbed inputs.
#include "oracle/gdn/compare/budget.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/compare/element_allowance.h"
#include "oracle/gdn/compare/groups.h"
#include "oracle/gdn/kernels/kernels.h"
#include "oracle/gdn/kernels/prepare.h"
#include "oracle/simd/tasks.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

namespace {

// Error limit of a normalisation in fp32: a sum of up to 256 squares, a square root, a division.
constexpr double k_norm_error = 8 * k_fp32_roundoff;

void cross_row(const double* given, std::size_t width, double eps, DType dtype, double* moved) {
    double squares = eps;
    for (std::size_t i = 0; i < width; ++i) squares += given[i] * given[i];
    const double length = std::sqrt(squares);
    for (std::size_t i = 0; i < width; ++i) {
        const double exact = given[i] / length;
        if (!std::isfinite(exact)) continue;
        for (const double way : {-1.0, 1.0}) {
            const bool other = rounded_to(exact * (1 + way * k_norm_error), dtype) != rounded_to(exact, dtype);
            if (other) moved[i] = given[i] * (1 + 2 * way * k_norm_error);
        }
    }
}

}  // namespace

void cross_roundings(const GdnProblem& given, const GdnContract& contract, GdnProblem& moved) {
    if (contract.l2norm == L2Norm::off || contract.rounding != NormRounding::input) return;
    if (given.qk_dtype != DType::bf16 && given.qk_dtype != DType::f16) return;
    const auto width = static_cast<std::size_t>(given.dims.dk);
    for (auto [from, to] : {std::pair(&given.q, &moved.q), std::pair(&given.k, &moved.k)}) {
        for (std::size_t at = 0; at < from->size(); at += width) {
            cross_row(from->data() + at, width, contract.eps, given.qk_dtype, to->data() + at);
        }
    }
}

namespace {

std::vector<double> sums_one_by_one(DType dtype, std::span<const double> values) {
    std::vector<double> sums(values.begin(), values.end());
    for (std::size_t i = 1; i < sums.size(); ++i) sums[i] = rounded_to(sums[i - 1] + sums[i], dtype);
    return sums;
}

std::vector<double> sums_by_blocks(DType dtype, std::span<const double> values) {
    constexpr std::size_t k_block = 16;
    std::vector<double> sums;
    double before = 0;
    for (std::size_t first = 0; first < values.size(); first += k_block) {
        const auto block = sums_one_by_one(dtype, values.subspan(first, std::min(k_block, values.size() - first)));
        for (const double x : block) sums.push_back(first == 0 ? x : rounded_to(x + before, dtype));
        before = first == 0 ? block.back() : rounded_to(before + block.back(), dtype);
    }
    return sums;
}

// Like jax.lax.associative_scan: sums of pairs, then their sums, then those in between.
std::vector<double> sums_by_pairs(DType dtype, std::span<const double> values) {
    const std::size_t n = values.size();
    if (n < 2) return {values.begin(), values.end()};
    std::vector<double> pairs;
    for (std::size_t i = 0; i + 1 < n; i += 2) pairs.push_back(rounded_to(values[i] + values[i + 1], dtype));
    const std::vector<double> odd = sums_by_pairs(dtype, pairs);
    std::vector<double> sums(n, values[0]);
    for (std::size_t i = 1; i < n; ++i) {
        sums[i] = i % 2 == 1 ? odd[i / 2] : rounded_to(odd[i / 2 - 1] + values[i], dtype);
    }
    return sums;
}

}  // namespace

void sum_gates_in(DType dtype, SumOrder order, std::span<double> gates) {
    const auto sums = order == SumOrder::one_by_one     ? sums_one_by_one(dtype, gates)
                      : order == SumOrder::blocks_of_16 ? sums_by_blocks(dtype, gates)
                                                        : sums_by_pairs(dtype, gates);
    for (std::size_t i = gates.size(); i-- > 0;) gates[i] = i == 0 ? sums[0] : sums[i] - sums[i - 1];
}

bool sums_narrow(const GdnProblem& p, const GdnContract& c) {
    return c.gate_sum == SumDType::given && (p.gate_dtype == DType::bf16 || p.gate_dtype == DType::f16);
}

GdnProblem with_narrow_sums(const GdnProblem& p, const GdnContract& c, SumOrder order) {
    GdnProblem summed = p;
    summed.gate = log_gates(p, c);
    const auto heads = static_cast<std::size_t>(p.dims.Hv);
    std::vector<double> chunk;
    for (const GdnSequence& s : p.sequences) {
        for (std::size_t h = 0; h < heads; ++h) {
            for (std::int64_t first = s.begin; first < s.end; first += c.chunk) {
                const auto last = std::min<std::int64_t>(s.end, first + c.chunk);
                chunk.clear();
                for (auto row = first; row < last; ++row)
                    chunk.push_back(summed.gate[static_cast<std::size_t>(row) * heads + h]);
                // A sum that overflows anyway loses nothing.
                if (std::any_of(chunk.begin(), chunk.end(), [](double g) { return !(g > -1e4); })) continue;
                sum_gates_in(p.gate_dtype, order, chunk);
                for (auto row = first; row < last; ++row) {
                    summed.gate[static_cast<std::size_t>(row) * heads + h] =
                        chunk[static_cast<std::size_t>(row - first)];
                }
            }
        }
    }
    return summed;
}

// How much the inputs themselves amplify an error: numbers reported with the verdict. Budgets measure the effect of one
// roundoff, and only use the norm of the inverse where much is lost.

namespace {

// One value head of one sequence, with its keys contiguous.
struct Keys {
    std::size_t tokens = 0, dk = 0;
    std::vector<double> k, g, beta;

    // In four sums, which a processor can add in parallel.
    double product(std::size_t i, std::size_t j) const {
        const double *a = k.data() + i * dk, *b = k.data() + j * dk;
        double sums[4] = {};
        std::size_t x = 0;
        for (; x + 4 <= dk; x += 4) {
            for (std::size_t y = 0; y < 4; ++y) sums[y] += a[x + y] * b[x + y];
        }
        for (; x < dk; ++x) sums[0] += a[x] * b[x];
        return sums[0] + sums[1] + (sums[2] + sums[3]);
    }
};

Keys keys_of(const GdnProblem& p, const Prepared<double>& in, std::size_t n, std::size_t head) {
    Keys keys;
    const auto begin = static_cast<std::size_t>(p.sequences[n].begin);
    const auto Hk = static_cast<std::size_t>(p.dims.Hk);
    const auto Hv = static_cast<std::size_t>(p.dims.Hv);
    keys.tokens = static_cast<std::size_t>(p.sequences[n].end) - begin;
    keys.dk = static_cast<std::size_t>(p.dims.dk);
    for (std::size_t row = begin; row < begin + keys.tokens; ++row) {
        const auto at = in.k.begin() + static_cast<std::ptrdiff_t>((row * Hk + in.key_head[head]) * keys.dk);
        keys.k.insert(keys.k.end(), at, at + static_cast<std::ptrdiff_t>(keys.dk));
        keys.g.push_back(in.g[row * Hv + head]);
        keys.beta.push_back(in.beta[row * Hv + head]);
    }
    return keys;
}

// The largest product of alpha max(1, |1 - beta k.k|) over any run of tokens: an upper bound on the growth of the
// state.
double growth_of(const Keys& keys) {
    double log = 0;
    double largest = 0;
    for (std::size_t t = 0; t < keys.tokens; ++t) {
        const double factor = std::max(1.0, std::fabs(1 - keys.beta[t] * keys.product(t, t)));
        log = std::max(0.0, log + keys.g[t] + std::log(factor));
        largest = std::max(largest, log);
    }
    return std::exp(largest);
}

// The largest row sum of |.| of (I + M)^-1 for one chunk; its rows are e_i - sum_j M_ij row_j.
double inverse_norm(const Keys& keys, std::size_t first, std::size_t rows) {
    std::vector<double> inverse(rows * rows, 0);
    double largest = 0;
    for (std::size_t i = 0; i < rows; ++i) {
        double* row = inverse.data() + i * rows;
        row[i] = 1;
        double decay = 0;
        for (std::size_t j = i; j-- > 0;) {
            decay += keys.g[first + j + 1];
            const double M = keys.beta[first + i] * keys.product(first + i, first + j) * std::exp(decay);
            if (M == 0) continue;
            for (std::size_t x = 0; x <= j; ++x) row[x] -= M * inverse[j * rows + x];
        }
        double sum = 0;
        for (std::size_t x = 0; x <= i; ++x) sum += std::fabs(row[x]);
        largest = std::isnan(sum) ? HUGE_VAL : std::max(largest, sum);
    }
    return largest;
}

double inverse_norm_of(const Keys& keys, int chunk) {
    // Longer chunks would dominate the run time.
    const auto C = std::min<std::size_t>(static_cast<std::size_t>(chunk), 256);
    double norm = 1;
    for (std::size_t first = 0; first < keys.tokens; first += C) {
        norm = std::max(norm, inverse_norm(keys, first, std::min(C, keys.tokens - first)));
    }
    return norm;
}

}  // namespace

std::vector<double> inverse_norms(const GdnProblem& p, const GdnContract& c, const std::vector<std::size_t>& heads,
                                  int threads) {
    std::vector<double> norms(heads.size());
    if (heads.empty()) return norms;
    const auto head_count = static_cast<std::size_t>(p.dims.Hv);
    const Prepared<double> in = prepare<double>(p, c, threads);
    run_tasks(heads.size(), threads, [&] {
        return [&](std::size_t i) {
            norms[i] = inverse_norm_of(keys_of(p, in, heads[i] / head_count, heads[i] % head_count), c.chunk);
        };
    });
    return norms;
}

Condition condition_of(const GdnReference& r, int threads) {
    const GdnProblem& p = r.problem;
    const auto heads = static_cast<std::size_t>(p.dims.Hv);
    const Prepared<double> in = prepare<double>(p, r.contract.value, threads);
    std::vector<Condition> conditions(p.sequences.size() * heads);
    run_tasks(conditions.size(), threads, [&] {
        return [&](std::size_t sequence_head) {
            const Keys keys = keys_of(p, in, sequence_head / heads, sequence_head % heads);
            Condition& c = conditions[sequence_head];
            c.growth_factor = growth_of(keys);
            c.inverse_norm = inverse_norm_of(keys, r.contract.value.chunk);
        };
    });
    Condition worst;
    for (const Condition& c : conditions) {
        worst.growth_factor = std::max(worst.growth_factor, c.growth_factor);
        worst.inverse_norm = std::max(worst.inverse_norm, c.inverse_norm);
    }
    return worst;
}

// The error budget: the error of correct arithmetic of the contract's kind on exactly these inputs, measured.
//
// Two measurements do not involve the chunked kernel: the fp32 recurrence; and the fp64 recurrence on inputs perturbed
// by one unit roundoff, and with roundings of normalised keys flipped (the problem's condition). The chunked kernel's
// own error is added, because chunked forms are legitimately worse where gates are large. It only counts up to a
// multiple of the others, so that a defect in our chunked kernel cannot widen the budget that it is judged by.

namespace {

// How much larger than the other measurements the chunked kernel's error may count. Seen in correct kernels: 23
// (repeated keys with beta = 2).
constexpr double k_chunk_allowance = 30;
// How much the problem's condition may count where the fp32 recurrence overflows and measures nothing.
constexpr double k_condition_allowance = 4;
// Growth of the state beyond what the inputs' size explains, above which nothing can be judged.
constexpr double k_growth_limit = 1e6;
// Relative error of correct arithmetic above which a comparison says nothing.
constexpr double k_condition_limit = 0.3;
// Our chunked kernel uses substitution. Others multiply by (I + M)^-1, and lose more the larger it is. Seen with a
// single key and beta = 2, where its norm is twice the chunk length: levanter's chunks of 64 are 4.9 times beyond the
// budget. Above this norm, if accumulated roundoffs reach this many, the budget grows accordingly.
constexpr double k_large_inverse = 32;
constexpr double k_many_roundoffs = 32;
constexpr double k_most_widening = 4;
// Every token multiplies the whole state by one rounded decay: all elements share this error, and it grows like a
// random walk with the square root of the number of tokens, or faster where gates are equal (DecayDrift). By chance,
// our own recurrence may end near 0. Seen in correct kernels, with NumPy's exp(), which is off by up to 2
// roundoffs: 2.8 times the square root of 130 tokens.
constexpr double k_decay_walk = 1;
// How far a group's relative error may be from the typical one and still count for others.
constexpr double k_unusual = 8;

GdnOutputs run_perturbed(const GdnProblem& problem, const GdnContract& contract, double amount, int threads) {
    GdnProblem moved = problem;
    std::uint64_t salt = 1;
    for (auto* values : {&moved.q, &moved.k, &moved.v, &moved.beta, &moved.gate, &moved.initial_state}) {
        perturb(*values, amount, salt++);
    }
    cross_roundings(problem, contract, moved);
    return run_recurrent64(moved, contract, threads);
}

// |Cumulative gates| inside a chunk, for each (sequence, value head): fp32 sums lose this times 2^-24.
struct GateSums {
    std::vector<double> largest;
    // At the last end of a chunk from which a part of the final state has not faded: its decays come from it.
    std::vector<double> last;
};

GateSums gate_sums_of(const GdnProblem& p, const GdnContract& c) {
    constexpr double k_fading = -16;  // exp(-16) of what was there does not show in fp32
    const auto heads = static_cast<std::size_t>(p.dims.Hv);
    const std::vector<double> gates = log_gates(p, c);
    GateSums sums;
    sums.largest.resize(p.sequences.size() * heads);
    sums.last.resize(sums.largest.size());
    for (std::size_t n = 0; n < p.sequences.size(); ++n) {
        for (std::size_t h = 0; h < heads; ++h) {
            double sum = 0;
            double earlier = 0, since = 0;  // the largest sum at an end of a chunk, and of the gates after it
            const auto begin = static_cast<std::size_t>(p.sequences[n].begin);
            for (std::size_t row = begin; row < static_cast<std::size_t>(p.sequences[n].end); ++row) {
                const double gate = gates[row * heads + h];
                const bool starts = (row - begin) % static_cast<std::size_t>(c.chunk) == 0;
                if (starts && (std::fabs(sum) > earlier || since < k_fading)) {
                    earlier = std::fabs(sum);
                    since = 0;
                }
                sum = starts || !(gate > -2e4) ? 0 : sum;
                if (std::fabs(gate) < 2e4) sum += gate;
                since += gate;
                sums.largest[n * heads + h] = std::max(sums.largest[n * heads + h], std::fabs(sum));
            }
            sums.last[n * heads + h] = std::max(std::fabs(sum), since > k_fading ? earlier : 0);
        }
    }
    return sums;
}

// The orders in which gates may be summed in 16 bits, if the contract does that.
std::vector<SumOrder> narrow_orders(const GdnProblem& problem, const GdnContract& contract) {
    if (!sums_narrow(problem, contract)) return {};
    return {SumOrder::one_by_one, SumOrder::blocks_of_16, SumOrder::pairs};
}

GdnOutputs run_summed(const GdnProblem& problem, const GdnContract& contract, SumOrder order, int threads) {
    GdnContract log = contract;
    log.g_kind = GateKind::log;
    return run_recurrent64(with_narrow_sums(problem, contract, order), log, threads);
}

void keep_larger(std::vector<GroupSums>& kept, const std::vector<GroupSums>& other) {
    for (std::size_t g = 0; g < kept.size(); ++g) {
        kept[g].error_squares = std::max(kept[g].error_squares, other[g].error_squares);
        kept[g].max_error = std::max(kept[g].max_error, other[g].max_error);
    }
}

void keep_larger(std::vector<float>& kept, const std::vector<float>& other) {
    for (std::size_t i = 0; i < kept.size(); ++i) kept[i] = std::max(kept[i], other[i]);
}

// What fp32 loses of sums of gates of 128 and 1024: below, other errors are larger; above, runs show it.
constexpr double k_small_gate_loss = 128 * k_fp32_roundoff, k_large_gate_loss = 1024 * k_fp32_roundoff;

struct Measured {
    std::vector<GroupSums> base_a, base_b, chunk_a, chunk_b;
};

// By group: the part of the state where decays fall below fp32's range; and as in LocalSizes.
struct OfState {
    const std::vector<double>&lost, &ages, &drifts;
};

TensorBudget combine(const Measured& m, const GateSums& sums, bool is_final, double roundoff, const OfState& state) {
    const std::size_t count = m.base_a.size();
    const auto lost_of = [&](std::size_t g) { return std::max(k_smallest, g < state.lost.size() ? state.lost[g] : 0); };
    TensorBudget budget;
    budget.groups.resize(count);
    double error_squares = 0;
    double truth_squares = 0;
    for (std::size_t g = 0; g < count; ++g) {
        const GroupSums& truth = m.base_a[g];
        const double gate_loss = g < sums.largest.size() ? k_fp32_roundoff * sums.largest[g] : 0;
        // A few decays are all that the final state's, or the largest error of a row, come from: whether their
        // roundings show in a run is luck.
        const double of_state = is_final && g < sums.last.size() ? k_fp32_roundoff * sums.last[g] : 0;
        const auto by_luck = [](double lost) {
            return lost > k_small_gate_loss && lost < k_large_gate_loss ? lost : 0;
        };
        const auto bounded = [&](double base, double chunk, double size, double lost) {
            return std::max(base, std::min(std::max(chunk, by_luck(lost) * size),
                                           k_chunk_allowance * (base + (roundoff + gate_loss) * size)));
        };
        const double condition = m.base_a[g].unmeasured > 0 ? k_condition_allowance : 1;
        GroupBudget& b = budget.groups[g];
        b.rms = bounded(std::max(m.base_a[g].error_rms(), condition * m.base_b[g].error_rms()),
                        std::max(m.chunk_a[g].error_rms(), m.chunk_b[g].error_rms()), truth.truth_rms(), of_state);
        b.max_abs = bounded(std::max(m.base_a[g].max_error, condition * m.base_b[g].max_error),
                            std::max(m.chunk_a[g].max_error, m.chunk_b[g].max_error), truth.max_truth,
                            is_final ? of_state : gate_loss);
        // Correct arithmetic flushes a result too small for fp32 to 0; that does not mean a bad condition.
        if (b.rms > lost_of(g)) error_squares += b.rms * b.rms * static_cast<double>(truth.count);
        truth_squares += truth.truth_squares;
    }
    budget.relative = truth_squares > 0 ? std::sqrt(error_squares / truth_squares) : 0;
    // A small group gets at least the typical budget. Two roundoffs are always allowed, and where the truth is exactly
    // 0, a tiny part of the surrounding values.
    std::vector<GroupSize> sizes;
    for (const GroupSums& truth : m.base_a) sizes.push_back({truth.truth_rms(), truth.max_truth, truth.count});
    const GroupBudget usual = usual_relative(budget.groups, sizes);
    for (std::size_t g = 0; g < count; ++g) {
        const GroupSums& truth = m.base_a[g];
        const double trace = 8 * lost_of(g) + 0x1p-40 * truth.max_truth;
        GroupBudget& b = budget.groups[g];
        if (truth.count < k_small_group) {
            b.rms = std::max(b.rms, usual.rms * truth.truth_rms());
            b.max_abs = std::max(b.max_abs, usual.max_abs * truth.max_truth);
        }
        const bool has_state = g < state.ages.size();
        const double walk = has_state ? k_decay_walk * k_fp32_roundoff * std::sqrt(state.ages[g]) : 0;
        const double decay = has_state ? std::max(walk, state.drifts[g]) : 0;
        b.rms = std::max({b.rms, std::max(2 * roundoff, decay) * truth.truth_rms(), trace});
        b.max_abs = std::max({b.max_abs, std::max(4 * roundoff, 2 * decay) * truth.max_truth, trace});
    }
    budget.relative = std::max(budget.relative, 2 * roundoff);
    return budget;
}

double largest(const std::vector<double>& values) {
    double m = 0;
    for (const double x : values) m = std::max(m, std::fabs(x));
    return m;
}

// Largest |state| compared with what the initial state, or one write to an empty state, explains.
double growth_of(const GdnReference& r) {
    const bool normalised = r.contract.value.l2norm != L2Norm::off;
    const double key = normalised ? 1 : largest(r.problem.k) * std::sqrt(static_cast<double>(r.problem.dims.dk));
    const bool logits = r.contract.value.beta_kind != BetaKind::prob;
    const double write = logits ? 1 : std::max(1.0, largest(r.problem.beta));
    const double explained = std::max(largest(r.problem.initial_state), largest(r.problem.v) * key * write);
    return explained > 0 ? r.truth.max_abs_state / explained : 0;
}

// Why no tensor can be judged.
std::string why_unstable(const GdnReference& r) {
    const auto unusable = [](double x) {
        return !(std::fabs(x) <= static_cast<double>(std::numeric_limits<float>::max()));
    };
    if (std::any_of(r.truth.out.begin(), r.truth.out.end(), unusable) ||
        std::any_of(r.truth.final_state.begin(), r.truth.final_state.end(), unusable)) {
        return "the exact result is not finite in fp32";
    }
    if (r.growth > k_growth_limit) {
        return fmt::format("the state grows {:.1e} times beyond the size of its inputs", r.growth);
    }
    return {};
}

std::string why_ill_conditioned(const GdnReference& r) {
    const double relative = std::max(r.out.relative, r.final_state.relative);
    if (can_judge(r.out) && can_judge(r.final_state)) return {};
    return fmt::format("a correct kernel is off by {:.0f} % on these inputs", 100 * relative);
}

// `truth` and `budgets` by (sequence, value head).
std::vector<double> widening_of(const GdnReference& r, const std::vector<GroupSums>& truth,
                                const std::vector<GroupBudget>& budgets, double roundoff, int threads) {
    const std::size_t count = r.problem.sequences.size() * static_cast<std::size_t>(r.problem.dims.Hv);
    std::vector<std::size_t> heads;
    for (std::size_t head = 0; head < count; ++head) {
        if (budgets[head].rms > k_many_roundoffs * roundoff * truth[head].truth_rms()) heads.push_back(head);
    }
    const std::vector<double> norms = inverse_norms(r.problem, r.contract.value, heads, threads);
    std::vector<double> widening(count, 1);
    for (std::size_t i = 0; i < heads.size(); ++i) {
        widening[heads[i]] = std::clamp(norms[i] / k_large_inverse, 1.0, k_most_widening);
    }
    return widening;
}

}  // namespace

GroupBudget usual_relative(const std::vector<GroupBudget>& budgets, const std::vector<GroupSize>& sizes) {
    // The better of two groups is the typical one: an extreme value in one head is no excuse for the other.
    const auto relative = [&](std::size_t g) { return budgets[g].rms / sizes[g].rms; };
    std::vector<std::size_t> groups;
    for (std::size_t g = 0; g < sizes.size(); ++g) {
        if (sizes[g].rms > 0) groups.push_back(g);
    }
    if (groups.empty()) return {};
    const auto middle = groups.begin() + static_cast<std::ptrdiff_t>((groups.size() - 1) / 2);
    std::nth_element(groups.begin(), middle, groups.end(),
                     [&](std::size_t a, std::size_t b) { return relative(a) < relative(b); });
    const double limit = k_unusual * relative(*middle);
    double error_squares = 0, squares = 0, max_error = 0, largest = 0;
    for (const std::size_t g : groups) {
        if (relative(g) > limit) continue;
        const auto count = static_cast<double>(sizes[g].count);
        error_squares += budgets[g].rms * budgets[g].rms * count;
        squares += sizes[g].rms * sizes[g].rms * count;
        max_error = std::max(max_error, budgets[g].max_abs);
        largest = std::max(largest, sizes[g].largest);
    }
    return {squares > 0 ? std::sqrt(error_squares / squares) : 0, largest > 0 ? max_error / largest : 0};
}

bool can_judge(const TensorBudget& budget) { return budget.relative <= k_condition_limit; }

void widen(TensorBudget& budget, const std::vector<double>& widening, bool by_value_head) {
    if (widening.empty()) return;
    const double most = *std::max_element(widening.begin(), widening.end());
    for (std::size_t g = 0; g < budget.groups.size(); ++g) {
        const double factor = by_value_head && g < widening.size() ? widening[g] : most;
        budget.groups[g].rms *= factor;
        budget.groups[g].max_abs *= factor;
    }
}

GdnReference make_reference(GdnProblem problem, ResolvedContract contract, int threads) {
    GdnReference r{std::move(problem), std::move(contract), {}, {}, {}, nullptr, 0, {}, {}};
    const GdnContract& c = r.contract.value;
    const double roundoff = roundoff_of(c);
    r.truth = run_recurrent64(r.problem, c, threads);
    r.growth = growth_of(r);

    const Groups out = groups_of_out(r.problem);
    const Groups state = groups_of_state(r.problem);
    Measured for_out;
    Measured for_state;
    const LocalSizes sizes = local_sizes(r.problem, c, threads);
    LocalMeasured local;
    // In parallel, because parts of each run on a single thread: conversions, sums. The longest first.
    const int inside = (threads + 3) / 4;
    const auto measure = [&](std::size_t which) {
        using Slot = std::vector<GroupSums> Measured::*;
        using Local = LocalErrors LocalMeasured::*;
        const auto [slot, here, run] = [&]() -> std::tuple<Slot, Local, GdnOutputs> {
            switch (which) {
                case 0:
                    return {&Measured::base_b, &LocalMeasured::base_b, run_perturbed(r.problem, c, roundoff, inside)};
                case 1: return {&Measured::base_a, &LocalMeasured::base_a, run_recurrent32(r.problem, c, inside)};
                case 2:
                    return {&Measured::chunk_a, &LocalMeasured::chunk_a,
                            c.state_dtype == StateDType::bf16_token
                                ? run_recurrent_rounded(r.problem, c, inside)
                                : run_chunk32(r.problem, c, {c.chunk, GateSum::fp32, c.matmul}, inside)};
                default: break;
            }
            const ChunkOptions exact_sums{c.chunk, GateSum::fp64_with_resets, c.matmul};
            return {&Measured::chunk_b, &LocalMeasured::chunk_b, run_chunk32(r.problem, c, exact_sums, inside)};
        }();
        constexpr NotFinite unmeasured = NotFinite::is_unmeasured;
        for_out.*slot = sum_groups(out, run.out, r.truth.out, inside, unmeasured);
        for_state.*slot = sum_groups(state, run.final_state, r.truth.final_state, inside, unmeasured);
        local.*here = local_errors(r.problem, sizes, run, r.truth, inside);
    };
    run_tasks(4, threads,
              [&] { return [&](std::size_t task) { measure(c.matmul == Matmul::f32 ? task : 3 - task); }; });
    for (const SumOrder order : narrow_orders(r.problem, c)) {
        const GdnOutputs run = run_summed(r.problem, c, order, threads);
        keep_larger(for_out.base_b, sum_groups(out, run.out, r.truth.out, threads, NotFinite::is_unmeasured));
        keep_larger(for_state.base_b,
                    sum_groups(state, run.final_state, r.truth.final_state, threads, NotFinite::is_unmeasured));
        const LocalErrors errors = local_errors(r.problem, sizes, run, r.truth, threads);
        keep_larger(local.base_b.out, errors.out);
        keep_larger(local.base_b.state, errors.state);
    }
    const GateSums sums = gate_sums_of(r.problem, c);
    r.out = combine(for_out, sums, false, roundoff, {sizes.largest_lost, sizes.out_age, sizes.out_drift});
    r.final_state = combine(for_state, sums, true, roundoff, {sizes.finally_lost, sizes.state_age, sizes.state_drift});
    r.unstable_reason = why_unstable(r);
    r.ill_conditioned = r.unstable_reason.empty() && !(can_judge(r.out) && can_judge(r.final_state));
    if (r.ill_conditioned) r.unstable_reason = why_ill_conditioned(r);
    r.widening = widening_of(r, for_out.base_a, r.out.groups, roundoff, threads);
    widen(r.out, r.widening, true);
    widen(r.final_state, r.widening, true);
    grant_locally(r.problem, c, local, sizes, r.widening, k_chunk_allowance, r.out, r.final_state);
    return r;
}

}  // namespace gdnctl::oracle
