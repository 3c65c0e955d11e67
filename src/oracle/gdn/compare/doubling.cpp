// Inverses by doubling lose accuracy if keys are similar: powers of M grow like binomials while the inverse stays
// small. What remains is rounding noise, so no result can be predicted, but its size in each row can.
#include <algorithm>
#include <cmath>
#include <span>

#include <fmt/format.h>

#include "oracle/gdn/compare/localise.h"
#include "oracle/gdn/compare/stage_search.h"

namespace gdnctl::oracle {

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
                                        const LaneErrors& errors) {
    const auto lanes = wrong_lanes(r, {errors});
    const bool out_wrong =
        std::any_of(errors.chunks.begin(), errors.chunks.end(), [](double x) { return !(x <= k_ok_band); });
    if (lanes.empty() || !out_wrong) return std::nullopt;
    const LaneSearch search(r, evidence);
    const auto s = make_section(search, r, evidence, lanes.front(), out_wrong, k_columns);
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
