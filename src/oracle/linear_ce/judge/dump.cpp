#include "oracle/linear_ce/judge/dump.h"

#include <fmt/format.h>

namespace gdnctl::oracle::linear_ce {

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
