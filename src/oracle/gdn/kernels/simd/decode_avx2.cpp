#include "oracle/gdn/kernels/simd/decode_body.h"

namespace gdnctl::oracle {

DecodeKernel decode_avx2() { return decode_kernel<32, 4, 2, 2>(); }

}  // namespace gdnctl::oracle
