#include "oracle/linear_ce/kernels/row_body.h"

namespace gdnctl::oracle::linear_ce {

RowKernel<float> row_kernel32_scalar() { return kernel32<16, 4, 2>(); }
RowKernel<double> row_kernel64_scalar() { return kernel64<16, 4, 2>(); }

}  // namespace gdnctl::oracle::linear_ce
