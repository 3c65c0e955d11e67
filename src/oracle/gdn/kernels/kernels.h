// The oracle's own forward kernels. recurrent64 is the truth. The fp32 ones measure the error of correct fp32
// arithmetic, and are kernels under test themselves. Results do not depend on the number of threads, bit for bit: a
// task is some columns of one value head of one sequence, and no sum crosses tasks.
#pragma once

#include "oracle/gdn/contract/problem.h"
#include "oracle/gdn/kernels/forward32.h"
#include "oracle/simd/isa.h"

namespace gdnctl::oracle {

// S_t = alpha_t S_{t-1} + k_t (beta_t (v_t - (alpha_t S_{t-1})^T k_t))^T, o_t = s S_t^T q_t, in fp64. Every product and
// sum is rounded separately, so the bits do not depend on the instruction set either.
GdnOutputs run_recurrent64(const GdnProblem& problem, const GdnContract& contract, int threads, Isa isa = best_isa());

// The same in fp32, with inputs first rounded to fp32.
GdnOutputs run_recurrent32(const GdnProblem& problem, const GdnContract& contract, int threads, Isa isa = best_isa());

// How an fp32 kernel gets q, k and v, and writes an `out` that is bf16: as fp32 or as bf16. bf16 is only possible if
// the problem's tensors were stored in it. Budgets are measured with f32.
Storage storage_of(const GdnProblem& problem);

// The fused recurrence in fp32: as robust as the recurrence, and the fastest kernel here.
GdnOutputs run_fused32(const GdnProblem& problem, const GdnContract& contract, int threads, Isa isa = best_isa(),
                       Storage storage = Storage::f32);

struct ChunkOptions {
    int chunk = 64;
    GateSum gate_sum = GateSum::fp64_with_resets;
    Matmul matmul = Matmul::f32;
    Storage storage = Storage::f32;  // values other than f32 require matmul f32
};

// Chunked form in fp32 with forward substitution (no inverse); see docs/reference/oracle-methods.md, "Chunked form".
GdnOutputs run_chunk32(const GdnProblem& problem, const GdnContract& contract, const ChunkOptions& options, int threads,
                       Isa isa = best_isa());

// Kernel forms that round matrix operands, or the state, as a device does.

// Like run_chunk32, for any `options.matmul`.
GdnOutputs run_chunk_rounded(const GdnProblem& problem, const GdnContract& contract, const ChunkOptions& options,
                             int threads);

// The fp32 recurrence with the state rounded to bf16 after each token.
GdnOutputs run_recurrent_rounded(const GdnProblem& problem, const GdnContract& contract, int threads);

}  // namespace gdnctl::oracle
