// What to declare about a dump that is right under another contract than the one it was judged by.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "oracle/gdn/compare/compare.h"

namespace gdnctl::oracle {

struct Declaration {
    std::vector<std::string> sets;  // "l2norm=rsqrt(sum+eps)", in addition to those given
    std::string meaning;            // "q and k are normalised in the kernel"
    double improvement = 1;         // how many times nearer the dump is to the exact result; 1: not measured
    std::string widens;             // "widens the budget of out 900 times"; empty: no budget
    std::string stage;              // where the dump seems wrong without it
};

// By how much the budgets of `wide` are wider, as a phrase; empty: they are not.
std::string widened(const GdnReference& narrow, const GdnReference& wide);

// The fewest fields that make every tensor of `dump` OK if they are declared too. `sets` are those of the command line,
// which stay. `as_declared` was judged and is not OK. A precision that merely hides an error is none: the error must be
// near the new budget in every head.

// One or two fields that change the operation, with at most one of precision; nullopt: none.
std::optional<Declaration> find_operation(const TensorFile& inputs, const TensorFile& dump,
                                          const GdnReference& as_declared, std::span<const std::string> sets,
                                          int threads);
// The narrowest precision; nullopt: none. Only for errors that look like roundings: others can be hidden by one.
std::optional<Declaration> find_precision(const TensorFile& inputs, const TensorFile& dump,
                                          const GdnReference& as_declared, std::span<const std::string> sets,
                                          const Hint& hint, int threads);

// Kernels with longer chunks than the contract's default, which lose more where gates are large.

struct LongerChunks {
    GdnReference reference;  // with that chunk length
    GdnReport report;        // OK; its reason names the chunk length
    int chunk = 0;
};

// Judges `dump` with the budgets of chunks of up to 512 tokens, if `report`, made from `reference`, is not OK and
// nobody declared a chunk length. nullopt: it is not near any of these budgets either.
std::optional<LongerChunks> judge_with_longer_chunks(const GdnReference& reference, const GdnReport& report,
                                                     const TensorFile& inputs, const TensorFile& dump, int threads);

}  // namespace gdnctl::oracle
