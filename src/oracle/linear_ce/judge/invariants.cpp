#include "oracle/linear_ce/judge/invariants.h"

#include <algorithm>
#include <cmath>

#include "oracle/linear_ce/judge/limits.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle::linear_ce {

namespace {

// Products and sums of two matrices of one shape, by row and by column.
struct MatrixSums {
    double product = 0, product_size = 0, product_squares = 0;
    std::vector<double> by_row, size_by_row, by_column, size_by_column;  // of the first matrix
};

MatrixSums sums_of(const Tensor& a, const Tensor& b, std::size_t rows, std::size_t columns, int threads) {
    constexpr std::size_t k_chunks = 32;  // fixed, so that sums do not depend on the number of threads
    const std::size_t chunks = std::min(k_chunks, rows);
    std::vector<MatrixSums> parts(chunks);
    MatrixSums all;
    all.by_row.resize(rows);
    all.size_by_row.resize(rows);
    run_tasks(chunks, threads, [&] {
        return
            [&, line = std::vector<double>(columns), other = std::vector<double>(columns)](std::size_t chunk) mutable {
                MatrixSums& s = parts[chunk];
                s.by_column.resize(columns);
                s.size_by_column.resize(columns);
                for (std::size_t r = chunk * rows / chunks; r < (chunk + 1) * rows / chunks; ++r) {
                    read_elements(a, r * columns, columns, line.data());
                    read_elements(b, r * columns, columns, other.data());
                    for (std::size_t i = 0; i < columns; ++i) {
                        s.product += line[i] * other[i];
                        s.product_size += std::fabs(line[i] * other[i]);
                        s.product_squares += line[i] * other[i] * line[i] * other[i];
                        s.by_column[i] += line[i];
                        s.size_by_column[i] += std::fabs(line[i]);
                        all.by_row[r] += line[i];
                        all.size_by_row[r] += std::fabs(line[i]);
                    }
                }
            };
    });
    all.by_column.resize(columns);
    all.size_by_column.resize(columns);
    for (const MatrixSums& s : parts) {
        all.product += s.product;
        all.product_size += s.product_size;
        all.product_squares += s.product_squares;
        for (std::size_t i = 0; i < columns; ++i) {
            all.by_column[i] += s.by_column[i];
            all.size_by_column[i] += s.size_by_column[i];
        }
    }
    return all;
}

// What rounding a gradient to its storage does to its sum of products, with a probability of next to 1: three times
// the square root of the squares, each with half a spacing. In small matrices that is beyond the limit of I1.
double storage_noise(const Tensor& gradient, const MatrixSums& sums) {
    const double spacing = gradient.dtype == DType::bf16 ? 0x1p-8 : gradient.dtype == DType::f16 ? 0x1p-11 : 0;
    return 3 * spacing / 2 * std::sqrt(sums.product_squares);
}

double part_of(double difference, double size) {
    if (difference == 0) return 0;
    return size > 0 ? difference / size : HUGE_VAL;
}

}  // namespace

Invariants invariants_of(const Problem& problem, const Dump& dump, const std::vector<double>& lse, int threads) {
    const InvariantLimits limits = invariant_limits(problem, dump);
    const bool hv = problem.c().layout == Layout::hv;
    const MatrixSums gx = sums_of(*dump.gx, problem.x, problem.batch, problem.hidden, threads);
    const MatrixSums gw =
        sums_of(*dump.gw, problem.w, hv ? problem.hidden : problem.vocab, hv ? problem.vocab : problem.hidden, threads);
    Invariants result;
    const double noise = std::hypot(storage_noise(*dump.gx, gx), storage_noise(*dump.gw, gw));
    result.products = {part_of(std::fabs(gx.product - gw.product), gx.product_size),
                       limits.products + (gx.product_size > 0 ? noise / gx.product_size : 0), 0, gx.product,
                       gw.product};
    if (problem.c().soft_cap > 0) return result;
    const std::vector<double> d_lse = problem.lse_cotangents(lse);
    std::vector<double> want(problem.hidden), floor(problem.hidden), line(problem.hidden);
    for (std::size_t b = 0; b < problem.batch; ++b) {
        read_elements(problem.x, b * problem.hidden, problem.hidden, line.data());
        const double cotangent = std::fabs(problem.d_loss[b]) + std::fabs(d_lse[b]);
        for (std::size_t h = 0; h < problem.hidden; ++h) {
            want[h] += line[h] * d_lse[b];
            floor[h] += std::fabs(line[h]) * cotangent;
        }
    }
    const double rounding = lse_rounding(lse);
    result.columns.limit = limits.columns;
    double worst = -1;
    for (std::size_t h = 0; h < problem.hidden; ++h) {
        const double size = hv ? gw.size_by_row[h] : gw.size_by_column[h];
        const double got = hv ? gw.by_row[h] : gw.by_column[h];
        const double value = part_of(std::fabs(got - want[h]), size);
        const double limit = limits.columns + (size > 0 ? rounding * floor[h] / size : 0);
        const double excess = std::isnan(value) ? HUGE_VAL : value / limit;
        if (excess <= worst) continue;
        worst = excess;
        result.columns = {value, limit, h, got, want[h]};
    }
    return result;
}

}  // namespace gdnctl::oracle::linear_ce
