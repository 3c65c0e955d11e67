#include "oracle/gdn/kernels/simd/chunk_body.h"

namespace gdnctl::oracle {

ChunkKernel chunk_avx512() { return chunk_kernel<64, 8>(); }

}  // namespace gdnctl::oracle
