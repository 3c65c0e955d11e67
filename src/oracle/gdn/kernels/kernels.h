// The oracle's own forward kernels. recurrent64 is the truth; the fp32 ones say what honest fp32 arithmetic costs and
// are kernels under test themselves. Results do not depend on the number of threads, bit for bit: a task is some
// columns of one value head of one sequence, and no sum crosses tasks.
#pragma once

#include "oracle/gdn/contract/problem.h"
#include "oracle/gdn/kernels/forward32.h"
#include "oracle/simd/isa.h"

namespace gdnctl::oracle {

// S_t = alpha_t S_{t-1} + k_t (beta_t (v_t - (alpha_t S_{t-1})^T k_t))^T, o_t = s S_t^T q_t, in fp64. Every product and
// sum is rounded by itself, so the instruction set does not change a bit either.
GdnOutputs run_recurrent64(const GdnProblem& problem, const GdnContract& contract, int threads, Isa isa = best_isa());

// The same in fp32, inputs rounded to fp32 first.
GdnOutputs run_recurrent32(const GdnProblem& problem, const GdnContract& contract, int threads, Isa isa = best_isa());

// How a fp32 kernel gets q, k and v, and how it writes an `out` that is bf16: as fp32, or (what only a problem whose
// tensors were stored so can ask for) as bf16. f32 is what budgets are measured with.
Storage storage_of(const GdnProblem& problem);

// The fused recurrence in fp32: as robust as the recurrence, and the fastest kernel here.
GdnOutputs run_fused32(const GdnProblem& problem, const GdnContract& contract, int threads, Isa isa = best_isa(),
                       Storage storage = Storage::f32);

struct ChunkOptions {
    int chunk = 64;
    GateSum gate_sum = GateSum::fp64_with_resets;
    Matmul matmul = Matmul::f32;
    Storage storage = Storage::f32;  // other than f32 with matmul f32 only
};

// Chunked form in fp32 with forward substitution (no inverse); see docs/reference/oracle-methods.md, "Chunked form".
GdnOutputs run_chunk32(const GdnProblem& problem, const GdnContract& contract, const ChunkOptions& options, int threads,
                       Isa isa = best_isa());

}  // namespace gdnctl::oracle
