#include "oracle/kernels/simd/decode_body.h"

namespace gdnctl::oracle {

DecodeKernel decode_scalar() { return {VectorOf<float, 16>::k_lanes, decode<16, 4>}; }

}  // namespace gdnctl::oracle
