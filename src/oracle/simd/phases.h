// Where a fast kernel spends its time: its phases, their operations, and the data they move.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>

namespace gdnctl::oracle {

// The steps of the formulas in chunk_task.h and backward_task.h. Each kernel has some of them.
enum class Phase {
    packing,           // copies rows of q, k and v into the kernel's own order, and gradients back
    gram,              // K K^T and Q K^T
    decay,             // exponentials, M and P, and everything else that only depends on gates
    trsm,              // right-hand side and substitution: U in the forward, Y and dV in the backward
    output,            // Q S and P U
    sweep,             // the fused form's pass over a panel of S: everything but packing
    scores,            // dP, dM and their weights
    dq,                // from S and from dP
    dk_from_state,     // Y S^T
    dk_from_gradient,  // U D^T, and the contributions of dP and dM
    state,             // S or its gradient, passed on to the next chunk
    saving,            // states saved for the backward
    restoring,         // states of a segment, recomputed
};
inline constexpr std::size_t k_phases = 13;

std::string_view name_of(Phase phase);  // "dk_from_state"

struct PhaseWork {
    std::uint64_t ticks = 0;  // of phase_ticks()
    double flop = 0;          // executed, including padding
    double bytes = 0;         // of the caller's arrays, read or written
};
struct PhaseTimes {
    PhaseWork of[k_phases];
};

// A clock that takes a few nanoseconds to read. The caller must determine its frequency.
std::uint64_t phase_ticks();

// Collects the phases of all threads of a kernel.
class PhaseSums {
public:
    void add(const PhaseTimes& times);
    // Must not be called while a kernel runs.
    const PhaseTimes& times() const { return m_times; }

private:
    std::mutex m_mutex;
    PhaseTimes m_times;
};

// Times the phases of a task on request. Otherwise it costs one comparison at the end of a phase, and nothing inside
// loops over elements.

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
