// Which instructions the kernels are compiled for. Each kernel exists once per row; the widest that the processor has
// is taken at run time unless the caller names another.
#pragma once

#include <string_view>
#include <vector>

namespace gdnctl::oracle {

enum class Isa {
    scalar,  // what every processor of the architecture has
    avx2,    // AVX2 and FMA: 8 fp32 lanes
    avx512,  // AVX-512 F, VL, DQ, BW: 16 fp32 lanes
};

std::string_view name_of(Isa isa);  // "avx2"
// Whether this processor and this build can run it; scalar always.
bool has_isa(Isa isa);
Isa best_isa();
// All that has_isa, narrowest first.
std::vector<Isa> available_isas();

}  // namespace gdnctl::oracle
