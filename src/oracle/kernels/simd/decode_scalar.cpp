#include "oracle/kernels/simd/decode_body.h"

namespace gdnctl::oracle {

DecodeKernel decode_scalar() { return decode_kernel<16, 4, 2>(); }

}  // namespace gdnctl::oracle
