#include "oracle/simd/phases.h"

#include <chrono>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace gdnctl::oracle {

std::string_view name_of(Phase phase) {
    switch (phase) {
        case Phase::packing: return "packing";
        case Phase::gram: return "gram";
        case Phase::decay: return "decay";
        case Phase::trsm: return "trsm";
        case Phase::output: return "output";
        case Phase::sweep: return "sweep";
        case Phase::scores: return "scores";
        case Phase::dq: return "dq";
        case Phase::dk_from_state: return "dk_from_state";
        case Phase::dk_from_gradient: return "dk_from_gradient";
        case Phase::state: return "state";
        case Phase::saving: return "saving";
        case Phase::restoring: return "restoring";
    }
    return "";
}

std::uint64_t phase_ticks() {
#if defined(__x86_64__)
    return __rdtsc();
#else
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

void PhaseSums::add(const PhaseTimes& times) {
    const std::lock_guard lock(m_mutex);
    for (std::size_t i = 0; i < k_phases; ++i) {
        m_times.of[i].ticks += times.of[i].ticks;
        m_times.of[i].flop += times.of[i].flop;
        m_times.of[i].bytes += times.of[i].bytes;
    }
}

}  // namespace gdnctl::oracle
