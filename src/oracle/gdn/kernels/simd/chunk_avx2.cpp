#include "oracle/gdn/kernels/simd/chunk_body.h"

namespace gdnctl::oracle {

ChunkKernel chunk_avx2() { return chunk_kernel<32, 4>(); }

}  // namespace gdnctl::oracle
