#include "oracle/gdn/kernels/simd/decode_body.h"

namespace gdnctl::oracle {

DecodeKernel decode_avx512() { return decode_kernel<64, 4, 4, 4>(); }

}  // namespace gdnctl::oracle
