// What to declare about a dump that is right under another contract than the one it was judged by.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "oracle/linear_ce/judge/compare.h"

namespace gdnctl::oracle::linear_ce {

struct Declaration {
    std::vector<std::string> sets;  // "logits=bf16"
    bool is_precision = false;      // nothing else: where the operation is right, and its rounding was not declared
    std::string stage, meaning;     // "rounding", "the logits are rounded to bf16"
};

// The fewest fields that make all of `dump` OK if they are declared too; nullopt: none do. A precision must explain the
// errors of `as_declared`, not merely allow them.
std::optional<Declaration> find_declaration(const Problem& problem, const TensorFile& dump,
                                            const CompareOptions& options, const Report& as_declared);

void apply(const Declaration& declaration, const Problem& problem, Report& report);

}  // namespace gdnctl::oracle::linear_ce
