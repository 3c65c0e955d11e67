// The decode step: what its instruction sets share. T tokens t against a state S, alpha_t their decays, and A_tj the
// product of alpha over (j, t], a_t over [0, t]:
//   d_t = beta_t (v_t - a_t S^T k_t - sum over j < t of A_tj (k_j.k_t) d_j)
//   o_t = s (a_t S^T q_t + sum over j <= t of A_tj (k_j.q_t) d_j)
//   S' = a_last S + sum over j of k_j (A_last,j d_j)^T
// Deferred, S' is only noted down: the state stays as it is for some tokens, and is S = base (what is stored) + sum
// over the writes j since then of w_j k_j d_j^T. They are sources of the sums above like the tokens before t, with
// w_j for A_tj. So a step only reads the state, with two multiply-adds an element; a third one a token, and
// storing it, happen once for several tokens, when the writes are folded in.
// In place, a panel's S' is written while the next panel is read: the first comes from the nearest cache, the second
// from wherever the states are. (With AVX-512, states that lie far are swept twice instead.)
#pragma once

#include <cstddef>

#include "oracle/simd/values.h"

namespace gdnctl::oracle {

inline constexpr std::size_t k_decode_most = 8;

// Factors of one token of a step. Its sources are the writes that are pending, then the tokens of the step.
struct DecodeFactors {
    float beta;                 // of v
    float from_state;           // of S^T k in d: -beta_t a_t
    float out_state;            // of S^T q in o: s a_t
    float later;                // of d_t in S': A_last,t; in place only
    float in_d[k_decode_most];  // of each source's d in d_t, itself not counted
    float in_o[k_decode_most];  // of each source's d in o_t, itself counted
};

// What was written since the state was: write j is w_j k_j d_j^T.
struct DecodeWrites {
    const float* k = nullptr;      // [8][dk]
    float* d = nullptr;            // [8][state_stride]; this step's tokens add theirs from row `count` on
    std::size_t count = 0;         // of them, as sources of this step
    std::size_t folded = 0;        // of them, to be folded into the state before this step, which then has no other
    float keep = 1;                // of the state, when they are
    float weights[k_decode_most];  // of each, when they are
};

// One value head of one sequence. A row of the state has `state_stride` columns, of which `columns` are in use. When
// the step is deferred, the state lies in the kernel's panels, [panel][dk][columns of a panel], which divide
// state_stride; columns beyond those in use are zeros.
struct alignas(64) DecodeTask {
    ConstValues v;  // [tokens, Hv, dv], at this head
    Values out;
    std::size_t value_stride = 0;
    const float* read = nullptr;  // [dk][state_stride], or panels
    float* write = nullptr;
    std::size_t state_stride = 0, dk = 0, columns = 0;
    bool far = false;             // states lie beyond the second-level cache
    const float* next = nullptr;  // the state of the next task, if it is far and to be fetched meanwhile
    // Rows of so many bytes that later tasks need, to be fetched meanwhile: k, q, and the keys of what is pending.
    const void* soon[3] = {};
    std::size_t soon_bytes[3] = {};
    const float* k = nullptr;  // [dk][tokens], normalised
    const float* q = nullptr;
    DecodeWrites writes;     // deferred steps only
    float decay = 1;         // of S in S': a_last; in place only
    std::size_t tokens = 1;  // of the step; those up to `padded` write and read nothing
    std::size_t padded = 1;  // 1, 2, 4 or 8; 0: the task is none
    DecodeFactors factors[k_decode_most];
};

// A panel of a state that is still to be written, one-token steps only.
struct DecodePanel {
    static constexpr std::size_t k_most = 64;  // columns

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
    std::size_t panel = 0;        // columns of a panel of deferred steps
    std::size_t most_writes = 0;  // that wait, where steps have one token each
    // sums: room for 2 * padded * state_stride floats.
    void (*deferred)(const DecodeTask* tasks, std::size_t count, float* sums) = nullptr;
    // Folds writes.folded writes into one panel, that of columns `column` on.
    void (*fold)(const DecodeWrites& writes, std::size_t state_stride, std::size_t column, std::size_t dk,
                 float* panel) = nullptr;
    // Of each of some rows, [rows][dk], with x and with y.
    void (*products)(const float* from, std::size_t rows, std::size_t dk, const float* x, const float* y, float* with_x,
                     float* with_y) = nullptr;
};

DecodeKernel decode_scalar();
DecodeKernel decode_avx2();
DecodeKernel decode_avx512();

}  // namespace gdnctl::oracle
