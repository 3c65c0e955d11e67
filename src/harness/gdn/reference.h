// From the shape or a file of inputs of gdn to the truth about them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "oracle/gdn/compare/compare.h"

namespace gdnctl::harness {

// "B,Hk,Hv,T,dk,dv", as --shape takes it.
Result<oracle::GdnDims> parse_shape(const std::string& text);

// How to choose the contract, in addition to the file's metadata.
struct ContractChoice {
    std::string contract = "marin";
    std::vector<std::string> sets;  // FIELD=VALUE
};

// A file of inputs as the operator's row reads it, with the truth about it. Errors: of the reading; bad_input, too
// large.
using TruthOf = std::function<Result<oracle::GdnReference>(const oracle::TensorFile& inputs, int threads)>;

}  // namespace gdnctl::harness
