// A decode kernel for one instruction set.
#pragma once

#include "oracle/gdn/kernels/simd/decode_body.h"
#include "oracle/gdn/kernels/simd/deferred_body.h"

namespace gdnctl::oracle {
namespace {

// Piped: vectors of a panel that is written during the next. MostWrites, Most: see decode_deferred.
template <int Bytes, std::size_t Piped, std::size_t MostWrites, std::size_t Most>
DecodeKernel decode_kernel() {
    DecodeKernel kernel;
    kernel.lanes = VectorOf<float, Bytes>::k_lanes;
    kernel.in_place = decode_in_place<Bytes, Piped>;
    kernel.finish = DecodeSweep<Bytes, 1, Piped>::write;
    kernel.most_writes = MostWrites;
    kernel.panel = DeferredPanel<Bytes>::k_columns;
    kernel.deferred = decode_deferred<Bytes, MostWrites, Most>;
    kernel.fold = fold_panel<Bytes>;
    kernel.products = row_products<Bytes>;
    return kernel;
}

}  // namespace
}  // namespace gdnctl::oracle
