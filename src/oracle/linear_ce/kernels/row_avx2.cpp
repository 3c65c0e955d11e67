#include "oracle/linear_ce/kernels/row_body.h"

namespace gdnctl::oracle::linear_ce {

RowKernel<float> row_kernel32_avx2() { return kernel32<32, 6, 2>(); }
RowKernel<double> row_kernel64_avx2() { return kernel64<32, 6, 2>(); }

}  // namespace gdnctl::oracle::linear_ce
