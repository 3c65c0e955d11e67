// A kernel that the oracle judges: named by one spelling everywhere, called through one function.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gdnctl/oracle/gdn_contract.h"
#include "gdnctl/oracle/tensor.h"

namespace gdnctl::oracle {

// Takes the tensors of an inputs file (names of docs/oracle.md), returns `out` and `final_state` in the contract's
// layout and dtypes. Must be a function of its inputs alone.
using GdnForward = std::function<Result<TensorFile>(const TensorFile& inputs, const ResolvedContract& contract)>;

struct KernelUnderTest {
    std::string name;  // as spelled: "builtin:chunk"
    GdnForward forward;
};

std::vector<std::string> builtin_kernel_names();  // "chunk", "fused", "recurrent32", "recurrent64"

// `builtin:NAME`. Usage errors: another kind, an unknown name.
Result<KernelUnderTest> find_kernel(std::string_view spelling, int threads);

}  // namespace gdnctl::oracle
