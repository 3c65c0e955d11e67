#include "oracle/kernels/simd/decode_body.h"

namespace gdnctl::oracle {

DecodeKernel decode_avx512() { return {VectorOf<float, 64>::k_lanes, decode<64, 8>}; }

}  // namespace gdnctl::oracle
