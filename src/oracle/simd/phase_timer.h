// Times the phases of a task where somebody asked for them: else one comparison where a phase ends, never inside a
// loop over elements.
#pragma once

#include "oracle/simd/phases.h"

namespace gdnctl::oracle {
namespace {

class PhaseTimer {
public:
    // `times` may be nullptr.
    explicit PhaseTimer(PhaseTimes* times) : m_times(times) {
        if (m_times != nullptr) m_last = phase_ticks();
    }

    // All that was done since the phase before ended, with these floating-point operations and floats of the caller's
    // arrays.
    void end(Phase phase, std::size_t flop, std::size_t floats) {
        if (m_times == nullptr) return;
        const std::uint64_t now = phase_ticks();
        PhaseWork& work = m_times->of[static_cast<std::size_t>(phase)];
        work.ticks += now - m_last;
        work.flop += static_cast<double>(flop);
        work.bytes += static_cast<double>(floats * sizeof(float));
        m_last = now;
    }

private:
    PhaseTimes* m_times;
    std::uint64_t m_last = 0;
};

}  // namespace
}  // namespace gdnctl::oracle
