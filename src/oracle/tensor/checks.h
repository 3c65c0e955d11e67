// Checks that readers of inputs make on tensors, with uniform messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

// bad_input: "tensor 'q': expected ..., got [2,3] float32".
tl::unexpected<Error> wrong_tensor(std::string_view name, const std::string& expected, const Tensor& got);
// Values of a floating-point tensor with the required shape; bad_input.
Result<std::vector<double>> floating_values(const Tensor& tensor, std::string_view name, const Shape& shape);

// Values of a tensor of any integer dtype and shape; bad_input, also for a value beyond int64.
Result<std::vector<std::int64_t>> integer_values(const Tensor& tensor, std::string_view name,
                                                 const std::string& expected);

}  // namespace gdnctl::oracle
