// The decode step: what its instruction sets share. T tokens t against a state S, alpha_t their decays, and A_tj the
// product of alpha over (j, t], a_t over [0, t]:
//   d_t = beta_t (v_t - a_t S^T k_t - sum over j < t of A_tj (k_j.k_t) d_j)
//   o_t = s (a_t S^T q_t + sum over j <= t of A_tj (k_j.q_t) d_j)
//   S' = a_last S + sum over j of k_j (A_last,j d_j)^T
// Deferred, S' is only noted down, and the next step's sweep begins with it; what is stored then is S / sigma with one
// sigma a head (see fused_task.h), so that a step need not multiply the state by its decay.
// In place, a panel's S' is written while the next panel is read: the first comes from the nearest cache, the second
// from wherever the states are.
#pragma once

#include <cstddef>

#include "gdnctl/oracle/values.h"

namespace gdnctl::oracle {

inline constexpr std::size_t k_decode_most = 8;
// A cache keeps its states in panels of so many columns, [panel][dk][64]; the last may be narrower.
inline constexpr std::size_t k_decode_panel = 64;

// Factors of one token of a step.
struct DecodeFactors {
    float beta;                 // of v
    float from_state;           // of S^T k in d: -beta_t a_t
    float out_state;            // of S^T q in o: s a_t
    float later;                // of d_t in S': A_last,t
    float in_d[k_decode_most];  // of d_j in d_t, j < t
    float in_o[k_decode_most];  // of d_j in o_t, j <= t
};

// One value head of one sequence. A row of the state has `state_stride` columns, of which `columns` are in use. When
// the step is deferred, the state lies in panels, and everything is aligned to 64 bytes.
struct DecodeTask {
    ConstValues v;  // [tokens, Hv, dv], at this head
    Values out;
    std::size_t value_stride = 0;
    const float* read = nullptr;  // [dk][state_stride], or panels
    float* write = nullptr;
    std::size_t state_stride = 0, dk = 0, columns = 0;
    const float* next = nullptr;  // the state of the next task, to be fetched meanwhile; nullptr: not worth it
    // Rows of so many bytes that a later task needs, to be fetched meanwhile; nullptr: none.
    const char* soon[2] = {};
    std::size_t soon_bytes = 0;
    const float* k = nullptr;  // [dk][tokens], normalised
    const float* q = nullptr;
    // What is pending: S' = keep S + sum of k d. Deferred steps only.
    const float* pending_k = nullptr;  // [dk][tokens]
    float* d = nullptr;                // [tokens][state_stride]: what is pending before, and after
    float keep = 1;
    float decay = 1;         // of S in S': a_last
    std::size_t tokens = 1;  // of the step; those up to `padded` write and read nothing
    std::size_t padded = 1;  // 1, 2, 4 or 8; 0: the task is none
    DecodeFactors factors[k_decode_most];
};

// A panel of a state that is still to be written, one-token steps only.
struct DecodePanel {
    static constexpr std::size_t k_most = k_decode_panel;  // columns

    const float* k = nullptr;  // [dk]; nullptr: there is none
    const float* read = nullptr;
    float* write = nullptr;
    std::size_t state_stride = 0, dk = 0;
    float decay = 1;
    alignas(64) float d[k_most] = {};
};

struct DecodeKernel {
    std::size_t lanes = 0;
    // The lanes divide `columns`.
    void (*in_place)(const DecodeTask* tasks, std::size_t count, DecodePanel& unwritten) = nullptr;
    // Writes that panel. Until then its task's k must stay.
    void (*finish)(DecodePanel& unwritten) = nullptr;
    // The lanes divide state_stride; columns beyond those in use are zeros.
    void (*deferred)(const DecodeTask* tasks, std::size_t count) = nullptr;
};

DecodeKernel decode_scalar();
DecodeKernel decode_avx2();
DecodeKernel decode_avx512();

}  // namespace gdnctl::oracle
