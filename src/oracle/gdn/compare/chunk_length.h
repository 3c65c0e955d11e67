// Kernels with longer chunks than the contract's default, which lose more where gates are large.
#pragma once

#include <optional>

#include "oracle/gdn/compare/compare.h"

namespace gdnctl::oracle {

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
