// Times the phases of a task on request. Otherwise it costs one comparison at the end of a phase, and nothing inside
// loops over elements.
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

    // Ends a phase: everything since the end of the previous one, with its floating-point operations and the floats of
    // the caller's arrays that it moved.
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
