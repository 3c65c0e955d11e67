#include "oracle/linear_ce/kernels/row_body.h"

namespace gdnctl::oracle::linear_ce {

RowKernel<float> row_kernel32_avx512() { return kernel32<64, 12, 2>(); }
RowKernel<double> row_kernel64_avx512() { return kernel64<64, 12, 2>(); }

}  // namespace gdnctl::oracle::linear_ce
