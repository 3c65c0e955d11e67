#include "oracle/gdn/kernels/simd/decode_body.h"

namespace gdnctl::oracle {

DecodeKernel decode_scalar() { return decode_kernel<16, 2, 2, 2>(); }

}  // namespace gdnctl::oracle
