// The decode step: what its instruction sets share. T tokens t against a state S, alpha_t their decays, and A_tj the
// product of alpha over (j, t], a_t over [0, t]:
//   d_t = beta_t (v_t - a_t S^T k_t - sum over j < t of A_tj (k_j.k_t) d_j)
//   o_t = s (a_t S^T q_t + sum over j <= t of A_tj (k_j.q_t) d_j)
//   S' = a_last S + sum over j of k_j (A_last,j d_j)^T
// Deferred, S' is only noted down, and the next step's sweep begins with it.
#pragma once

#include <cstddef>

namespace gdnctl::oracle {

inline constexpr std::size_t k_decode_most = 8;

// One value head of one sequence. Rows of the state, of `pending_d` and of `d` are `state_stride` apart and aligned to
// 64 bytes when the step is deferred; `columns` of them are in use.
struct DecodeTask {
    const float* v = nullptr;  // [tokens, Hv, dv], at this head
    float* out = nullptr;
    std::size_t value_stride = 0;
    const float* read = nullptr;  // [dk][state_stride]
    float* write = nullptr;
    std::size_t state_stride = 0, dk = 0, columns = 0;
    const float* k = nullptr;  // [dk][tokens], normalised
    const float* q = nullptr;
    // What is pending: S' = keep S + sum of k d. Deferred steps only.
    const float* pending_k = nullptr;  // [dk][tokens]
    float* d = nullptr;                // [tokens][state_stride]: what is pending before, and after
    float keep = 1;
    // Factors of this step, [token][token]: of d_j in d_t and in o_t.
    float in_d[k_decode_most][k_decode_most];
    float in_o[k_decode_most][k_decode_most];
    float beta[k_decode_most];        // of v
    float from_state[k_decode_most];  // of S^T k in d: -beta_t a_t
    float out_state[k_decode_most];   // of S^T q in o: s a_t
    float later[k_decode_most];       // of d_j in S': A_last,j
    float decay = 1;                  // a_last
    std::size_t tokens = 1;           // of the step; those up to the kernel's number write and read nothing
};

// `tokens` is 1, 2, 4 or 8. The lanes divide `columns` (deferred: they divide state_stride, and the rest is zeros).
using DecodeFunction = void (*)(const DecodeTask& task, std::size_t tokens, bool deferred);

struct DecodeKernel {
    std::size_t lanes = 0;
    DecodeFunction run = nullptr;
};

DecodeKernel decode_scalar();
DecodeKernel decode_avx2();
DecodeKernel decode_avx512();

}  // namespace gdnctl::oracle
