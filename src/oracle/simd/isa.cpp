#include "oracle/simd/isa.h"

namespace gdnctl::oracle {

std::string_view name_of(Isa isa) {
    switch (isa) {
        case Isa::scalar: return "scalar";
        case Isa::avx2: return "avx2";
        case Isa::avx512: return "avx512";
    }
    return "";
}

bool has_isa(Isa isa) {
    if (isa == Isa::scalar) return true;
#if defined(__x86_64__)
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (isa == Isa::avx2) return avx2;
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
#else
    return false;
#endif
}

Isa best_isa() {
    static const Isa k_best = available_isas().back();
    return k_best;
}

std::vector<Isa> available_isas() {
    std::vector<Isa> isas;
    for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512}) {
        if (has_isa(isa)) isas.push_back(isa);
    }
    return isas;
}

}  // namespace gdnctl::oracle
