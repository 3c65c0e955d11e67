#include "oracle/tensor/checks.h"

#include <cstring>
#include <limits>

#include <fmt/format.h>

namespace gdnctl::oracle {

tl::unexpected<Error> wrong_tensor(std::string_view name, const std::string& expected, const Tensor& got) {
    return fail(
        ErrorKind::bad_input,
        fmt::format("tensor '{}': expected {}, got {} {}", name, expected, text_of(got.shape), name_of(got.dtype)),
        got.dtype == DType::u16 ? "if a NumPy file holds bfloat16 as uint16, use --u2-as-bf16" : "");
}

Result<std::vector<double>> floating_values(const Tensor& tensor, std::string_view name, const Shape& shape) {
    if (tensor.shape != shape) {
        return wrong_tensor(
            name, fmt::format("{} {}", text_of(shape), is_floating(tensor.dtype) ? name_of(tensor.dtype) : "float32"),
            tensor);
    }
    if (!is_floating(tensor.dtype)) return wrong_tensor(name, text_of(shape) + " of a floating dtype", tensor);
    return to_f64(tensor);
}

Result<std::vector<std::int64_t>> integer_values(const Tensor& tensor, std::string_view name,
                                                 const std::string& expected) {
    if (!is_integer(tensor.dtype)) return wrong_tensor(name, expected, tensor);
    for (std::size_t i = 0; tensor.dtype == DType::u64 && i < tensor.count(); ++i) {
        std::uint64_t value = 0;
        std::memcpy(&value, tensor.bytes.data() + i * sizeof value, sizeof value);
        if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
            return fail(ErrorKind::bad_input,
                        fmt::format("tensor '{}': element {} is {}, beyond the range of int64", name, i, value));
        }
    }
    return to_i64(tensor);
}

}  // namespace gdnctl::oracle
