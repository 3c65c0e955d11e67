// Where the time of a fast kernel goes: its phases, what each executes, and what it moves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>

namespace gdnctl::oracle {

// The steps of the formulas of chunk_task.h and backward_task.h. A kernel has some of them.
enum class Phase {
    packing,           // rows of q, k and the values into the kernel's own order, and gradients back
    gram,              // K K^T and Q K^T
    decay,             // exponentials, M and P, and what only gates need
    trsm,              // right-hand side and substitution: U of the forward, Y and dV of the backward
    output,            // Q S and P U
    sweep,             // the fused form's pass over a panel of S: everything but packing
    scores,            // dP, dM and their weights
    dq,                // from S and from dP
    dk_from_state,     // Y S^T
    dk_from_gradient,  // U D^T, and what dP and dM give
    state,             // S or its gradient, handed on to the next chunk
    saving,            // states written for the backward
    restoring,         // states of a segment computed again
};
inline constexpr std::size_t k_phases = 13;

std::string_view name_of(Phase phase);  // "dk_from_state"

struct PhaseWork {
    std::uint64_t ticks = 0;  // of phase_ticks()
    double flop = 0;          // executed, padding included
    double bytes = 0;         // of the caller's arrays, read or written
};
struct PhaseTimes {
    PhaseWork of[k_phases];
};

// A clock that takes a few nanoseconds to read; how fast it runs is for the caller to find out.
std::uint64_t phase_ticks();

// Collects the phases of all threads of a kernel.
class PhaseSums {
public:
    void add(const PhaseTimes& times);
    // Not while a kernel runs.
    const PhaseTimes& times() const { return m_times; }

private:
    std::mutex m_mutex;
    PhaseTimes m_times;
};

}  // namespace gdnctl::oracle
