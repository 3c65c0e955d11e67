#include "oracle/linear_ce/judge/problem.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

namespace gdnctl::oracle::linear_ce {

namespace {

tl::unexpected<Error> wrong(std::string_view name, const std::string& expected, const Tensor& got) {
    return fail(ErrorKind::bad_input, fmt::format("tensor '{}': expected {}, got {} {}", name, expected,
                                                  text_of(got.shape), name_of(got.dtype)));
}

Result<const Tensor*> need(const TensorFile& file, std::string_view name) {
    if (const Tensor* found = file.find(name)) return found;
    for (const UnreadTensor& unread : file.unread) {
        if (unread.name == name) {
            return fail(ErrorKind::bad_input,
                        fmt::format("tensor '{}' has dtype {}, which gdnctl cannot read", name, unread.dtype));
        }
    }
    return fail(ErrorKind::bad_input, fmt::format("there is no tensor '{}'", name),
                "an inputs file holds x, w and labels; weight, d_loss and d_lse are optional");
}

Tensor as_operand(const Tensor& from, Matmul matmul) {
    if (from.dtype == DType::bf16 || matmul == Matmul::exact) return from;
    std::vector<double> values = to_f64(from);
    if (matmul == Matmul::bf16) return from_f64(values, from.shape, DType::bf16);
    for (double& x : values) x = static_cast<double>(rounded_to_tf32(static_cast<float>(x)));
    return from_f64(values, from.shape, DType::f32);
}

// As the kernels take it. fp16 fits into fp32; fp64 only where no value is lost.
Result<Tensor> matrix(const TensorFile& file, std::string_view name, Matmul matmul, DType& stored) {
    GDNCTL_TRY_ASSIGN(const Tensor* found, need(file, name));
    if (!is_floating(found->dtype) || found->shape.size() != 2) {
        return wrong(name, "a matrix of floating-point numbers", *found);
    }
    if (found->shape[0] < 1 || found->shape[1] < 1) return wrong(name, "at least one row and one column", *found);
    stored = found->dtype;
    if (stored == DType::f32 || stored == DType::bf16) return as_operand(*found, matmul);
    const std::vector<double> values = to_f64(*found);
    Tensor result = from_f64(values, found->shape, DType::f32);
    if (matmul != Matmul::exact || stored != DType::f64) return as_operand(result, matmul);
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (element(result, i) != values[i] && !std::isnan(values[i])) {
            return fail(ErrorKind::bad_input,
                        fmt::format("tensor '{}' is float64, and its values do not fit into float32", name),
                        "store the values that the kernel received");
        }
    }
    return result;
}

Result<std::vector<double>> vector_of(const Tensor& tensor, std::string_view name, std::size_t batch) {
    if (tensor.shape != Shape{static_cast<std::int64_t>(batch)} ||
        (!is_floating(tensor.dtype) && !is_integer(tensor.dtype))) {
        return wrong(name, fmt::format("[{}] numbers", batch), tensor);
    }
    return to_f64(tensor);
}

Status read_labels(const TensorFile& file, Problem& p) {
    GDNCTL_TRY_ASSIGN(const Tensor* found, need(file, "labels"));
    if (!is_integer(found->dtype) || found->shape != Shape{static_cast<std::int64_t>(p.batch)}) {
        return wrong("labels", fmt::format("[{}] of an integer dtype", p.batch), *found);
    }
    p.labels = to_i64(*found);
    p.ignored.assign(p.batch, false);
    const auto vocab = static_cast<std::int64_t>(p.vocab);
    for (std::size_t i = 0; i < p.batch; ++i) {
        if (p.c().ignore_index && p.labels[i] == *p.c().ignore_index) {
            p.ignored[i] = true;
            p.labels[i] = 0;
            ++p.ignored_count;
        } else if (p.labels[i] < 0 || p.labels[i] >= vocab) {
            return fail(ErrorKind::bad_input,
                        fmt::format("labels[{}] = {} is outside [0, {})", i, p.labels[i], p.vocab),
                        fmt::format("if {} marks rows to ignore, pass --ignore-index {}", p.labels[i], p.labels[i]));
        }
    }
    return {};
}

Status read_weight(const TensorFile& file, Problem& p) {
    p.weight.assign(p.batch, 1);
    if (const Tensor* found = file.find("weight")) {
        GDNCTL_TRY_ASSIGN(p.weight, vector_of(*found, "weight", p.batch));
        p.weighted = true;
    }
    for (std::size_t i = 0; i < p.batch; ++i) {
        if (p.ignored[i]) p.weight[i] = 0;
        if (!std::isfinite(p.weight[i])) {
            return fail(ErrorKind::bad_input, fmt::format("weight[{}] is not finite", i));
        }
    }
    p.weighted = p.weighted || p.ignored_count > 0;
    for (const double x : p.weight) {
        p.total_weight += x;
        p.rows_with_weight += x != 0 ? 1 : 0;
    }
    return {};
}

// Those of the reduction.
void set_cotangents(Problem& p) {
    p.d_loss = p.weight;
    if (p.c().reduction != Reduction::mean) return;
    for (double& x : p.d_loss) x = p.total_weight == 0 ? 0 : x / p.total_weight;
}

Status read_cotangents(const TensorFile& file, Problem& p) {
    const Tensor* d_loss = file.find("d_loss");
    const Tensor* d_lse = file.find("d_lse");
    p.own_cotangents = d_loss != nullptr || d_lse != nullptr;
    if (p.own_cotangents) {
        p.d_loss.assign(p.batch, 0);
        p.d_lse.emplace(p.batch, 0.0);
        if (d_loss != nullptr) {
            GDNCTL_TRY_ASSIGN(p.d_loss, vector_of(*d_loss, "d_loss", p.batch));
        }
        if (d_lse != nullptr) {
            GDNCTL_TRY_ASSIGN(*p.d_lse, vector_of(*d_lse, "d_lse", p.batch));
        }
        for (std::size_t i = 0; i < p.batch; ++i) {
            if (p.ignored[i]) p.d_loss[i] = (*p.d_lse)[i] = 0;
        }
        return {};
    }
    set_cotangents(p);
    return {};
}

// "x[3] is not finite": the first row of x or column of w with an infinity or NaN.
std::string first_non_finite(const Problem& p) {
    const auto finite = [](const Tensor& t, std::size_t i) {
        return std::isfinite(t.dtype == DType::f32 ? reinterpret_cast<const float*>(t.bytes.data())[i]
                                                   : widened(reinterpret_cast<const Bf16*>(t.bytes.data())[i]));
    };
    for (std::size_t i = 0; i < p.x.count(); ++i) {
        if (!finite(p.x, i)) return fmt::format("row {} of x is not finite", i / p.hidden);
    }
    std::size_t first = p.vocab;
    for (std::size_t i = 0; i < p.w.count(); ++i) {
        if (!finite(p.w, i)) first = std::min(first, p.c().layout == Layout::hv ? i % p.vocab : i / p.hidden);
    }
    return first == p.vocab ? std::string() : fmt::format("column {} of w is not finite", first);
}

constexpr std::array k_inputs = {"x", "w", "labels", "weight", "d_loss", "d_lse"};
constexpr std::array k_outputs = {"loss", "lse", "gx", "gw", "argmax", "reduced"};

}  // namespace

bool is_output_name(std::string_view name) {
    return std::find(k_outputs.begin(), k_outputs.end(), name) != k_outputs.end();
}

ConstValues values_of(const Tensor& tensor) {
    if (tensor.dtype == DType::bf16) return reinterpret_cast<const Bf16*>(tensor.bytes.data());
    return reinterpret_cast<const float*>(tensor.bytes.data());
}

Operands Problem::operands() const {
    return {batch,      hidden,        vocab,        values_of(x),     values_of(w),
            c().layout, labels.data(), c().soft_cap, forward_rounds(), nullptr};
}

std::vector<double> Problem::lse_cotangents(const std::vector<double>& lse) const {
    if (d_lse) return *d_lse;
    std::vector<double> result(batch);
    for (std::size_t i = 0; i < batch; ++i) {
        // A row without weight has no penalty, whatever its logsumexp.
        result[i] = d_loss[i] == 0 || c().logsumexp_weight == 0 ? 0 : 2 * c().logsumexp_weight * lse[i] * d_loss[i];
    }
    return result;
}

Result<Problem> read_problem(const TensorFile& file, ResolvedContract contract) {
    Problem p;
    p.contract = std::move(contract);
    GDNCTL_TRY_ASSIGN(p.x, matrix(file, "x", p.c().matmul, p.x_dtype));
    GDNCTL_TRY_ASSIGN(p.w, matrix(file, "w", p.c().matmul, p.w_dtype));
    const bool hv = p.c().layout == Layout::hv;
    p.batch = static_cast<std::size_t>(p.x.shape[0]);
    p.hidden = static_cast<std::size_t>(p.x.shape[1]);
    p.vocab = static_cast<std::size_t>(p.w.shape[hv ? 1 : 0]);
    if (p.w.shape[hv ? 0 : 1] != p.x.shape[1]) {
        return wrong("w",
                     hv ? fmt::format("[{},V] for layout hv", p.hidden) : fmt::format("[V,{}] for layout vh", p.hidden),
                     p.w);
    }
    GDNCTL_TRY(read_labels(file, p));
    GDNCTL_TRY(read_weight(file, p));
    GDNCTL_TRY(read_cotangents(file, p));
    p.unstable_reason = first_non_finite(p);
    for (const NamedTensor& entry : file.tensors) {
        const bool known = std::find(k_inputs.begin(), k_inputs.end(), entry.name) != k_inputs.end();
        if (!known && !is_output_name(entry.name)) p.unknown.push_back(entry.name);
    }
    return p;
}

Problem redeclared(const Problem& problem, const Contract& contract) {
    Problem p = problem;
    p.contract.value = contract;
    p.x = as_operand(problem.x, contract.matmul);
    p.w = as_operand(problem.w, contract.matmul);
    if (!p.own_cotangents) set_cotangents(p);
    return p;
}

std::optional<std::size_t> memory_estimate(std::size_t batch, std::size_t hidden, std::size_t vocab, bool exact) {
    const double matrices = static_cast<double>(batch + vocab) * static_cast<double>(hidden);
    // The tensors of both files as read, then fp64 gradients.
    const double bytes = matrices * (exact ? 4 * 4 + 8 : 4 * 4) + 256e6;
    if (!(bytes < 9e18)) return std::nullopt;
    return static_cast<std::size_t>(bytes);
}

namespace {

enum class Holds { numbers, ids };

Result<const Tensor*> find(const TensorFile& file, const char* name, const Shape& shape, Holds holds) {
    const Tensor* found = file.find(name);
    if (found == nullptr) return nullptr;
    const bool right_dtype = holds == Holds::ids ? is_integer(found->dtype) : is_floating(found->dtype);
    if (found->shape == shape && right_dtype) return found;
    return fail(ErrorKind::bad_input, fmt::format("tensor '{}': expected {} {}, got {} {}", name, text_of(shape),
                                                  holds == Holds::ids ? "integers" : "floating-point numbers",
                                                  text_of(found->shape), name_of(found->dtype)));
}

}  // namespace

Result<Dump> read_dump(const Problem& problem, const TensorFile& file) {
    const auto B = static_cast<std::int64_t>(problem.batch);
    const auto H = static_cast<std::int64_t>(problem.hidden);
    const auto V = static_cast<std::int64_t>(problem.vocab);
    Dump dump;
    GDNCTL_TRY_ASSIGN(dump.loss, find(file, "loss", {B}, Holds::numbers));
    GDNCTL_TRY_ASSIGN(dump.lse, find(file, "lse", {B}, Holds::numbers));
    GDNCTL_TRY_ASSIGN(dump.gx, find(file, "gx", {B, H}, Holds::numbers));
    GDNCTL_TRY_ASSIGN(dump.gw,
                      find(file, "gw", problem.c().layout == Layout::hv ? Shape{H, V} : Shape{V, H}, Holds::numbers));
    GDNCTL_TRY_ASSIGN(dump.argmax, find(file, "argmax", {B}, Holds::ids));
    if (const Tensor* reduced = file.find("reduced"); reduced != nullptr && problem.c().reduction != Reduction::none) {
        const Shape shape = reduced->shape == Shape{1} ? Shape{1} : Shape{};
        GDNCTL_TRY_ASSIGN(dump.reduced, find(file, "reduced", shape, Holds::numbers));
    }
    return dump;
}

void read_elements(const Tensor& tensor, std::size_t at, std::size_t count, double* to) {
    if (tensor.dtype == DType::f32) {
        const auto* from = reinterpret_cast<const float*>(tensor.bytes.data()) + at;
        for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<double>(from[i]);
    } else if (tensor.dtype == DType::bf16) {
        const auto* from = reinterpret_cast<const Bf16*>(tensor.bytes.data()) + at;
        for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<double>(widened(from[i]));
    } else {
        for (std::size_t i = 0; i < count; ++i) to[i] = element(tensor, at + i);
    }
}

double gw_element(const Problem& problem, const Tensor& gw, std::size_t h, std::size_t v) {
    return element(gw, problem.c().layout == Layout::hv ? h * problem.vocab + v : v * problem.hidden + h);
}

}  // namespace gdnctl::oracle::linear_ce
