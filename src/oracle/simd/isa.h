// The instruction sets that kernels are compiled for. Each kernel exists once per entry. The widest one that the
// processor supports is chosen at run time, unless the caller names another.
#pragma once

#include <string_view>
#include <vector>

namespace gdnctl::oracle {

enum class Isa {
    scalar,  // supported by every processor of the architecture
    avx2,    // AVX2 and FMA: 8 fp32 lanes
    avx512,  // AVX-512 F, VL, DQ, BW: 16 fp32 lanes
};

std::string_view name_of(Isa isa);  // "avx2"
// Whether this processor and this build support it; scalar is always supported.
bool has_isa(Isa isa);
Isa best_isa();
// All supported ones, narrowest first.
std::vector<Isa> available_isas();

}  // namespace gdnctl::oracle
