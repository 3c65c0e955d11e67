// What a kernel is declared to compute, and what that makes of a case's inputs.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "core/result.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle::linear_ce {

// Changes the metadata of inputs, and the layout of w, to what is declared ("field=value"). Fields of precision apply
// to all inputs. All others are fixed: inputs that need another value are left as they are, and the value that they
// need is returned ("layout=vh"); else nothing is. Usage errors: an unknown field or value.
Result<std::optional<std::string>> declare(TensorFile& inputs, std::span<const std::string> sets);

}  // namespace gdnctl::oracle::linear_ce
