#include "oracle/kernels/simd/decode_body.h"

namespace gdnctl::oracle {

DecodeKernel decode_avx2() { return {VectorOf<float, 32>::k_lanes, decode<32, 4>}; }

}  // namespace gdnctl::oracle
