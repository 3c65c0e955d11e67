// The decode step; shared by its instruction sets. T tokens t and a state S, with alpha_t the decays, A_tj the product
// of alpha over (j, t], and a_t over [0, t]:
//   d_t = beta_t (v_t - a_t S^T k_t - sum over j < t of A_tj (k_j.k_t) d_j)
//   o_t = s (a_t S^T q_t + sum over j <= t of A_tj (k_j.q_t) d_j)
//   S' = a_last S + sum over j of k_j (A_last,j d_j)^T
// A panel's S' is written while the next panel is read; the former is in the nearest cache, the latter
// wherever the states are. (With AVX-512, states in main memory are swept twice instead.)
#pragma once

#include <cstddef>

#include "oracle/simd/values.h"

namespace gdnctl::oracle {

inline constexpr std::size_t k_decode_most = 8;

// Factors of one token of a step. Its sources are the tokens up to itself.
struct DecodeFactors {
    float beta;                 // on v
    float from_state;           // on S^T k in d: -beta_t a_t
    float out_state;            // on S^T q in o: s a_t
    float later;                // on d_t in S': A_last,t
    float in_d[k_decode_most];  // on each source's d in d_t, excluding itself
    float in_o[k_decode_most];  // on each source's d in o_t, including itself
};

// One value head of one sequence.
struct alignas(64) DecodeTask {
    ConstValues v;  // [tokens, Hv, dv], at this head
    Values out;
    std::size_t value_stride = 0;
    const float* read = nullptr;  // [dk][columns]
    float* write = nullptr;
    std::size_t dk = 0, columns = 0;
    bool far = false;             // states exceed the second-level cache
    const float* next = nullptr;  // the state of the next task, if it is far and should be prefetched
    // Rows of this many bytes to prefetch for later tasks: k and q.
    const void* soon[2] = {};
    std::size_t soon_bytes[2] = {};
    const float* k = nullptr;  // [dk][tokens], normalised
    const float* q = nullptr;
    float decay = 1;         // factor on S in S': a_last
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
    std::size_t columns = 0, dk = 0;  // of the state
    float decay = 1;
    alignas(64) float d[k_most] = {};
};

struct DecodeKernel {
    std::size_t lanes = 0;
    // The number of lanes divides `columns`.
    void (*in_place)(const DecodeTask* tasks, std::size_t count, DecodePanel& unwritten) = nullptr;
    // Writes that panel. Its task's k must stay valid until then.
    void (*finish)(DecodePanel& unwritten) = nullptr;
    // Products of each of some rows, [rows][dk], with x and with y.
    void (*products)(const float* from, std::size_t rows, std::size_t dk, const float* x, const float* y, float* with_x,
                     float* with_y) = nullptr;
};

DecodeKernel decode_scalar();
DecodeKernel decode_avx2();
DecodeKernel decode_avx512();

}  // namespace gdnctl::oracle
