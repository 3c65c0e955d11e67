// Both forms of the chunked forward for one instruction set.
#pragma once

#include "oracle/gdn/kernels/simd/chunk_body.h"

namespace gdnctl::oracle {
namespace {

template <int Bytes, std::size_t Rows>
ChunkKernel chunk_kernel() {
    using Plain = ChunkSweep<Bytes, Rows, false>;
    using Stored = ChunkSweep<Bytes, Rows, true>;
    return {Plain::k_columns, Plain::scratch, [](const ChunkTask& task) {
                const FusedTask& t = task.what;
                const bool plain = t.q.storage == Storage::f32 && t.k.storage == Storage::f32 &&
                                   t.v.storage == Storage::f32 && t.out.storage == Storage::f32;
                plain ? Plain(task).run() : Stored(task).run();
            }};
}

}  // namespace
}  // namespace gdnctl::oracle
