// The decode step; shared by its instruction sets. T tokens t and a state S, with alpha_t the decays, A_tj the product
// of alpha over (j, t], and a_t over [0, t]:
//   d_t = beta_t (v_t - a_t S^T k_t - sum over j < t of A_tj (k_j.k_t) d_j)
//   o_t = s (a_t S^T q_t + sum over j <= t of A_tj (k_j.q_t) d_j)
//   S' = a_last S + sum over j of k_j (A_last,j d_j)^T
// Deferred: S' is only recorded. The stored state does not change for several tokens, and S = base (stored state) + sum
// over the writes j since then of w_j k_j d_j^T. These writes are sources of the sums above, like the tokens before t,
// with w_j for A_tj. So a step only reads the state, with two multiply-adds per element. Folding in the writes (a third
// multiply-add per token) and storing the state happen once for several tokens.
// In place: a panel's S' is written while the next panel is read; the former is in the nearest cache, the latter
// wherever the states are. (With AVX-512, states in main memory are swept twice instead.)
#pragma once

#include <cstddef>

#include "oracle/simd/values.h"

namespace gdnctl::oracle {

inline constexpr std::size_t k_decode_most = 8;

// Factors of one token of a step. Its sources are the pending writes, then the tokens of the step.
struct DecodeFactors {
    float beta;                 // on v
    float from_state;           // on S^T k in d: -beta_t a_t
    float out_state;            // on S^T q in o: s a_t
    float later;                // on d_t in S': A_last,t; in place only
    float in_d[k_decode_most];  // on each source's d in d_t, excluding itself
    float in_o[k_decode_most];  // on each source's d in o_t, including itself
};

// Writes since the state was stored: write j is w_j k_j d_j^T.
struct DecodeWrites {
    const float* k = nullptr;      // [8][dk]
    float* d = nullptr;            // [8][state_stride]; this step's tokens are added from row `count` on
    std::size_t count = 0;         // writes that are sources of this step
    std::size_t folded = 0;        // writes to fold into the state before this step, which then has no others
    float keep = 1;                // factor on the state when folding
    float weights[k_decode_most];  // of each write when folding
};

// One value head of one sequence. A row of the state has `state_stride` columns, of which `columns` are used. For
// deferred steps, the state is in the kernel's panels, [panel][dk][columns of a panel], whose width divides
// state_stride; unused columns are zeros.
struct alignas(64) DecodeTask {
    ConstValues v;  // [tokens, Hv, dv], at this head
    Values out;
    std::size_t value_stride = 0;
    const float* read = nullptr;  // [dk][state_stride], or panels
    float* write = nullptr;
    std::size_t state_stride = 0, dk = 0, columns = 0;
    bool far = false;             // states exceed the second-level cache
    const float* next = nullptr;  // the state of the next task, if it is far and should be prefetched
    // Rows of this many bytes to prefetch for later tasks: k, q, and the keys of pending writes.
    const void* soon[3] = {};
    std::size_t soon_bytes[3] = {};
    const float* k = nullptr;  // [dk][tokens], normalised
    const float* q = nullptr;
    DecodeWrites writes;     // deferred steps only
    float decay = 1;         // factor on S in S': a_last; in place only
    std::size_t tokens = 1;  // of the step; tokens beyond, up to `padded`, write and read nothing
    std::size_t padded = 1;  // 1, 2, 4 or 8; 0: an empty task
    DecodeFactors factors[k_decode_most];
};

// A panel of a state that is not written yet; one-token steps only.
struct DecodePanel {
    static constexpr std::size_t k_most = 64;  // columns

    const float* k = nullptr;  // [dk]; nullptr: no panel
    const float* read = nullptr;
    float* write = nullptr;
    std::size_t state_stride = 0, dk = 0;
    float decay = 1;
    alignas(64) float d[k_most] = {};
};

struct DecodeKernel {
    std::size_t lanes = 0;
    // The number of lanes divides `columns`.
    void (*in_place)(const DecodeTask* tasks, std::size_t count, DecodePanel& unwritten) = nullptr;
    // Writes that panel. Its task's k must stay valid until then.
    void (*finish)(DecodePanel& unwritten) = nullptr;
    std::size_t panel = 0;        // columns of a panel of deferred steps
    std::size_t most_writes = 0;  // maximum of pending writes for one-token steps
    // sums: room for 2 * padded * state_stride floats.
    void (*deferred)(const DecodeTask* tasks, std::size_t count, float* sums) = nullptr;
    // Folds writes.folded writes into one panel, which starts at `column`.
    void (*fold)(const DecodeWrites& writes, std::size_t state_stride, std::size_t column, std::size_t dk,
                 float* panel) = nullptr;
    // Products of each of some rows, [rows][dk], with x and with y.
    void (*products)(const float* from, std::size_t rows, std::size_t dk, const float* x, const float* y, float* with_x,
                     float* with_y) = nullptr;
};

DecodeKernel decode_scalar();
DecodeKernel decode_avx2();
DecodeKernel decode_avx512();

}  // namespace gdnctl::oracle
