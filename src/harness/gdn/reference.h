// From the shape or a file of inputs of gdn to the truth about them.
#pragma once

#include <string>
#include <vector>

#include "oracle/gdn/compare/compare.h"

namespace gdnctl::harness {

// "B,Hk,Hv,T,dk,dv", as --shape takes it.
Result<oracle::GdnDims> parse_shape(const std::string& text);

// How a contract is chosen, besides by what the file says.
struct ContractChoice {
    std::string contract = "marin";
    std::vector<std::string> sets;  // FIELD=VALUE
};

// Resolves the contract for these inputs, checks them and their size (with that of gradients, if they are to follow),
// and computes truth and budget.
Result<oracle::GdnReference> make_reference(const oracle::TensorFile& inputs, const ContractChoice& choice, int threads,
                                            oracle::Passes passes = oracle::Passes::forward);

}  // namespace gdnctl::harness
