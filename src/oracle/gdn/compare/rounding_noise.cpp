// Faults recognised by the size and shape of their rounding errors: an undeclared precision, an inverse by doubling.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include <fmt/format.h>

#include "oracle/gdn/compare/localise.h"
#include "oracle/gdn/compare/stage_search.h"

namespace gdnctl::oracle {

// The precision that leaves errors of this relative size, and how to declare it.
std::string precision_of(double error) {
    constexpr double k_bf16_error = 6e-4;  // smaller errors come from finer operands
    constexpr double k_tf32_error = 4e-5;
    if (error > k_bf16_error) {
        return "operands of products in bf16, or a state kept in bf16 (2^-9): declare it with --set matmul=bf16 or "
               "--set state_dtype=bf16, or state_dtype=bf16-token";
    }
    return error > k_tf32_error ? "operands in tf32 or fp16 (2^-11): declare it with --set matmul=tf32 or matmul=f16"
                                : "three bf16 passes (2^-16): declare it with --set matmul=bf16x3";
}

// The same for a final state whose out is right, because out's own rounding may hide what the state shows. Rounding
// errors are spread over the whole matrix; the write of a few tokens is a matrix of low rank, and a wrong decay is a
// multiple of the truth.
std::optional<Diagnosis> match_hidden_rounding(const GdnReference& r, const ForwardEvidence& evidence,
                                               const HeadErrors& errors) {
    constexpr double k_most = 0.02;  // two bf16 roundings hide no more
    const bool out_wrong =
        std::any_of(errors.chunks.begin(), errors.chunks.end(), [](double x) { return !(x <= k_ok_band); });
    const bool narrow = evidence.out && (evidence.out->judged == DType::bf16 || evidence.out->judged == DType::f16);
    if ((out_wrong && !narrow) || !evidence.state) return std::nullopt;
    const auto dk = static_cast<std::size_t>(r.problem.dims.dk);
    const auto dv = static_cast<std::size_t>(r.problem.dims.dv);
    const auto head = static_cast<std::size_t>(errors.sequence * r.problem.dims.Hv + errors.head);
    const double* got = evidence.state->got->data() + head * dk * dv;
    const double* want = evidence.state->want->data() + head * dk * dv;
    std::vector<std::vector<double>> rows(dk, std::vector<double>(dv));
    double squares = 0;
    double truth = 0;
    double along = 0;
    for (std::size_t x = 0; x < dk; ++x) {
        for (std::size_t j = 0; j < dv; ++j) {
            const double y = want[x * dv + j];
            rows[x][j] = got[x * dv + j] - y;
            squares += rows[x][j] * rows[x][j];
            truth += y * y;
            along += rows[x][j] * y;
        }
    }
    const double whole = truth > 0 ? std::sqrt(squares / truth) : HUGE_VAL;
    if (!(whole <= k_most) || std::fabs(along) > 0.5 * std::sqrt(squares * truth)) return std::nullopt;
    double gram = 0;  // sum of the fourth powers of the singular values
    for (const auto& a : rows) {
        for (const auto& b : rows) {
            const double product = std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
            gram += product * product;
        }
    }
    if (std::min(dk, dv) < 4 || std::sqrt(gram) > 0.7 * squares) return std::nullopt;
    const std::string text =
        fmt::format("final_state is off by {:.1g}, evenly{}: consistent with {}", whole,
                    evidence.out ? ", and out is right as far as its own rounding shows" : "", precision_of(whole));
    return Diagnosis{"rounding", {"rounding", "carry"}, {{"rounding", text, 1}}};
}

// Inverses by doubling lose accuracy if keys are similar: powers of M grow like binomials while the inverse stays
// small. What remains is rounding noise, so no result can be predicted, but its size in each row can.

namespace {

using Index = std::size_t;
using Floats = std::vector<float>;

Floats square(const Floats& a, Index n) {
    Floats result(n * n, 0);
    for (Index i = 0; i < n; ++i) {
        for (Index k = 0; k < i; ++k) {
            for (Index j = 0; j < k; ++j) result[i * n + j] += a[i * n + k] * a[k * n + j];
        }
    }
    return result;
}

// (I + M)^-1 of `rhs` in fp32: block by block, each by (I + A)(I + A^2)(I + A^4)... with A = -M.
Reals by_doubling(const OpenChunk& c, const Reals& rhs, Index block) {
    const Index width = c.columns;
    Floats u(rhs.begin(), rhs.end());
    const auto subtract = [&](Index i, Index j) {
        const auto factor = static_cast<float>(c.M[i * c.rows + j]);
        for (Index y = 0; y < width; ++y) u[i * width + y] -= factor * u[j * width + y];
    };
    for (Index first = 0; first < c.rows; first += block) {
        const Index n = std::min(block, c.rows - first);
        for (Index i = first; i < first + n; ++i) {
            for (Index j = 0; j < first; ++j) subtract(i, j);
        }
        Floats power(n * n, 0);
        for (Index i = 0; i < n; ++i) {
            for (Index j = 0; j < i; ++j) power[i * n + j] = -static_cast<float>(c.M[(first + i) * c.rows + first + j]);
        }
        for (Index reach = 1; reach < n; reach *= 2) {
            for (Index i = n; i-- > 0;) {
                for (Index j = 0; j < i; ++j) {
                    for (Index y = 0; y < width; ++y)
                        u[(first + i) * width + y] += power[i * n + j] * u[(first + j) * width + y];
                }
            }
            power = square(power, n);
        }
    }
    return {u.begin(), u.end()};
}

Reals sizes_of_rows(std::span<const double> errors, Index rows, Index width) {
    Reals sizes(rows, 0);
    for (Index i = 0; i < rows; ++i) {
        for (Index j = 0; j < width; ++j) sizes[i] += errors[i * width + j] * errors[i * width + j];
        sizes[i] = std::sqrt(sizes[i] / static_cast<double>(width));
    }
    return sizes;
}

// Whether two errors by row, in units of the budget, rise and fall together and have about the same size.
bool alike(const Reals& seen, const Reals& expected) {
    constexpr Index k_rows = 6;
    std::vector<std::pair<double, double>> logs;
    for (Index i = 0; i < seen.size(); ++i) {
        if (!std::isfinite(seen[i]) || !std::isfinite(expected[i]) || std::max(seen[i], expected[i]) < k_ok_band)
            continue;
        logs.emplace_back(std::log10(std::max(seen[i], 1.0)), std::log10(std::max(expected[i], 1.0)));
    }
    if (logs.size() < k_rows) return false;
    double x = 0;
    double y = 0;
    for (const auto& [a, b] : logs) {
        x += a / static_cast<double>(logs.size());
        y += b / static_cast<double>(logs.size());
    }
    double xx = 0;
    double yy = 0;
    double xy = 0;
    for (const auto& [a, b] : logs) {
        xx += (a - x) * (a - x);
        yy += (b - y) * (b - y);
        xy += (a - x) * (b - y);
    }
    return std::fabs(x - y) < 1 && xy > 0.95 * std::sqrt(xx * yy);
}

}  // namespace

std::optional<Diagnosis> match_doubling(const GdnReference& r, const ForwardEvidence& evidence,
                                        const HeadErrors& errors) {
    const auto heads = wrong_heads(r, {errors});
    const bool out_wrong =
        std::any_of(errors.chunks.begin(), errors.chunks.end(), [](double x) { return !(x <= k_ok_band); });
    if (heads.empty() || !out_wrong) return std::nullopt;
    const HeadSearch search(r, evidence);
    const auto s = make_section(search, r, evidence, heads.front(), out_wrong, k_columns);
    if (!s || s->out.empty() || s->wrong >= s->parts.size()) return std::nullopt;
    const OpenChunk& c = s->honest[s->wrong];
    const Reals rhs = right_hand_side(c);
    const Reals U = solved(c, rhs);
    Reals all;
    add_out_errors(*s, s->wrong, out_of(c, U), all);
    const Reals seen = sizes_of_rows(all, c.rows, c.columns);
    for (const Index block : {c.rows, Index{32}, Index{16}}) {
        Reals lost = by_doubling(c, rhs, block);
        for (Index i = 0; i < lost.size(); ++i) lost[i] -= U[i];
        Reals effect = times_p(c, lost);
        for (double& x : effect) x /= s->out_unit;
        if (!alike(seen, sizes_of_rows(effect, c.rows, c.columns))) continue;
        const std::string text = fmt::format(
            "the keys of a chunk are alike, and row by row out is off by as much as an inverse by doubling (repeated "
            "squaring of M, in blocks of {} rows) is in fp32: consistent with that; substitution is not off",
            block);
        return Diagnosis{"solve", {"solve", "wu"}, {{"solve", text, 1}}};
    }
    return std::nullopt;
}

}  // namespace gdnctl::oracle
