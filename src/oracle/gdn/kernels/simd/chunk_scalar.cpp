#include "oracle/gdn/kernels/simd/chunk_body.h"

namespace gdnctl::oracle {

ChunkKernel chunk_scalar() { return chunk_kernel<16, 4>(); }

}  // namespace gdnctl::oracle
