#include "oracle/linear_ce/judge/limits.h"

#include <algorithm>
#include <cmath>

#include "oracle/simd/tasks.h"

namespace gdnctl::oracle::linear_ce {

namespace {

double bf16_spacing(double x) {
    const double size = std::fabs(x);
    if (size == 0 || !std::isfinite(size)) return 0;
    return std::ldexp(1.0, std::ilogb(size) - 7);
}

double largest_of(const Tensor& tensor) {
    double largest = 0;
    for (std::size_t i = 0; i < tensor.count(); ++i) largest = std::max(largest, std::fabs(element(tensor, i)));
    return largest;
}

double largest_of(const std::vector<double>& values) {
    double largest = 0;
    for (const double x : values) largest = std::max(largest, std::fabs(x));
    return largest;
}

double row_tolerance(ErrorClass error_class) {
    return error_class == ErrorClass::tpu_default || error_class == ErrorClass::tf32 ? 1e-4 : 1e-5;
}

// Of the arithmetic, without storage.
double relative_gradient_limit(const Problem& problem) {
    if (is_narrow(problem.x_dtype) || is_narrow(problem.w_dtype)) return 5e-2;
    switch (problem.c().matmul) {
        case Matmul::bf16: return 5e-2;
        case Matmul::tf32: return 1e-3;  // a tie between two operands can be rounded up or to even
        case Matmul::exact: break;
    }
    return problem.c().logits == Logits::bf16 ? 5e-3 : 1e-4;  // kernels keep delta where they had the logits
}

// |d_loss| + |d_lse| of each row.
std::vector<double> cotangent_sizes(const Problem& problem, const std::vector<double>& lse) {
    std::vector<double> sizes = problem.lse_cotangents(lse);
    for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] = std::fabs(problem.d_loss[i]) + std::fabs(sizes[i]);
    return sizes;
}

// What a row's probabilities may change by in all, if its logsumexp may by so much.
double probability_slack(double lse_slack) { return 2 * std::min(1.0, std::expm1(lse_slack)); }

GradientLimit gradient_limit(const Problem& problem, const Tensor& gradient, double largest) {
    GradientLimit limit;
    limit.flat = relative_gradient_limit(problem) * largest;
    if (class_of(problem, gradient) == ErrorClass::stored_bf16) {
        limit.storage = gradient.dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
        if (gradient.dtype == DType::f16) limit.flat += 0x1p-25;  // half of its smallest number
    }
    return limit;
}

// The rounding of a logsumexp in fp32 as it reaches delta.
double lse_rounding(const std::vector<double>& lse) {
    double largest = 0;
    for (const double x : lse) largest = std::max(largest, std::fabs(x));
    return 2e-7 * (1 + largest);
}

}  // namespace

std::string_view name_of(ErrorClass error_class) {
    switch (error_class) {
        case ErrorClass::f32: return "f32";
        case ErrorClass::bf16_inputs: return "bf16 inputs";
        case ErrorClass::stored_bf16: return "stored bf16";
        case ErrorClass::tpu_default: return "default TPU precision";
        case ErrorClass::tf32: return "tf32";
    }
    return "";
}

bool is_narrow(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

ErrorClass class_of(const Problem& problem, const Tensor& tensor) {
    if (is_narrow(problem.x_dtype) || is_narrow(problem.w_dtype)) {
        // Gradients of narrow inputs are stored as those are.
        const bool row = tensor.shape.size() <= 1;  // or `reduced`
        return row && is_narrow(tensor.dtype) ? ErrorClass::stored_bf16 : ErrorClass::bf16_inputs;
    }
    if (is_narrow(tensor.dtype)) return ErrorClass::stored_bf16;
    switch (problem.c().matmul) {
        case Matmul::bf16: return ErrorClass::tpu_default;
        case Matmul::tf32: return ErrorClass::tf32;
        case Matmul::exact: break;
    }
    return ErrorClass::f32;
}

double row_limit(ErrorClass error_class, double lse, double loss) {
    if (error_class == ErrorClass::stored_bf16) {
        return 1e-2 + bf16_spacing(std::max(std::fabs(lse), std::fabs(loss)));
    }
    const double a = row_tolerance(error_class);
    return a + a * std::fabs(lse);
}

double reduced_limit(const Problem& problem, const Dump& dump, double want, const std::vector<double>& loss,
                     const std::vector<double>& lse, const std::vector<double>& slack) {
    const ErrorClass error_class = class_of(problem, *dump.reduced);
    const double a = row_tolerance(error_class);
    const auto narrow = [](const Tensor* tensor) { return tensor != nullptr && is_narrow(tensor->dtype); };
    double limit = a * std::fabs(want);
    for (std::size_t i = 0; i < problem.batch; ++i) {
        double part = std::fabs(problem.weight[i]);
        if (problem.c().reduction == Reduction::mean)
            part = problem.total_weight == 0 ? 0 : std::fabs(problem.weight[i] / problem.total_weight);
        if (part == 0) continue;
        double row = a + a * std::fabs(lse[i]) + (slack.empty() ? 0 : slack[i]);
        // Of rows that were stored before they were reduced.
        if (narrow(dump.loss) || narrow(dump.lse)) row += bf16_spacing(std::max(std::fabs(lse[i]), std::fabs(loss[i])));
        // The penalty's own error is that of lse, 2 lambda lse times.
        limit += part * (1 + 2 * std::fabs(problem.c().logsumexp_weight * lse[i])) * row;
    }
    if (error_class == ErrorClass::stored_bf16) limit += 1e-2 * std::fabs(want) + 1e-2;
    return limit;
}

double argmax_excess(const Problem& problem, const RowTruth& rows, std::size_t at, std::int64_t got) {
    if (got == rows.argmax[at]) return 0;
    if (got < 0 || got >= static_cast<std::int64_t>(problem.vocab)) return HUGE_VAL;
    const auto column = static_cast<std::size_t>(got);
    const double cap = problem.c().soft_cap;
    const std::vector<double> z = logits_of(problem, rows.rows[at], 0, column + 1);
    if (std::find(z.begin(), z.end() - 1, z.back()) != z.end() - 1) return HUGE_VAL;
    double largest = z.back();
    if (problem.forward_rounds()) {
        const double error = product_errors(problem, {rows.rows[at]}).front();
        largest = static_cast<double>(widened(narrowed(static_cast<float>(z.back() + error))));
    }
    const double s = cap > 0 ? cap * std::tanh(largest / cap) : largest;
    return (rows.largest[at] - s) / row_limit(ErrorClass::f32, rows.lse[at], 0);
}

GradientLimit gx_limit(const Problem& problem, const Dump& dump, const RowTruth& rows, const std::vector<double>& lse) {
    const std::vector<double> cotangents = cotangent_sizes(problem, lse);
    const double w = largest_of(problem.w);
    GradientLimit limit = gradient_limit(problem, *dump.gx, largest_of(rows.gx));
    limit.flat += lse_rounding(lse) * largest_of(cotangents) * w;
    for (std::size_t i = 0; i < rows.rows.size() && problem.forward_rounds(); ++i) {
        limit.of_line.push_back(cotangents[rows.rows[i]] * probability_slack(rows.lse_slack[i]) * w);
    }
    return limit;
}

GradientLimit gw_limit(const Problem& problem, const Dump& dump, const RowTruth& rows, const std::vector<double>& lse,
                       const std::vector<double>& want) {
    const std::vector<double> cotangents = cotangent_sizes(problem, lse);
    const double x = largest_of(problem.x);
    GradientLimit limit = gradient_limit(problem, *dump.gw, largest_of(want));
    limit.flat += lse_rounding(lse) * largest_of(cotangents) * x;
    double slack = 0;
    for (std::size_t i = 0; i < rows.rows.size(); ++i) {
        slack += cotangents[rows.rows[i]] * probability_slack(rows.lse_slack[i]);
    }
    // What is known of some rows is taken for that of all.
    if (slack > 0) limit.flat += slack * x * static_cast<double>(problem.batch) / static_cast<double>(rows.rows.size());
    return limit;
}

namespace {

// Of I1 and I2, as parts of the sums of absolute values.
struct InvariantLimits {
    double products = 1e-5, columns = 1e-5;
};

InvariantLimits invariant_limits(const Problem& problem, const Dump& dump) {
    const auto both = [&](ErrorClass c) {
        return class_of(problem, *dump.gx) == c && class_of(problem, *dump.gw) == c;
    };
    if (both(ErrorClass::f32) && problem.c().logits == Logits::f32) return {};
    return both(ErrorClass::tf32) ? InvariantLimits{1e-4, 1e-3} : InvariantLimits{1e-3, 5e-3};
}

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
    const auto part_of_sum = [&](double noise) { return gx.product_size > 0 ? noise / gx.product_size : 0; };
    result.gx_noise = part_of_sum(storage_noise(*dump.gx, gx));
    result.gw_noise = part_of_sum(storage_noise(*dump.gw, gw));
    result.products = {part_of(std::fabs(gx.product - gw.product), gx.product_size), limits.products, 0, gx.product,
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
