// Inputs after preprocessing, in the precision of the kernel that reads them.
#pragma once

#include <span>
#include <vector>

#include "oracle/gdn/contract/problem.h"
#include "oracle/gdn/kernels/forward32.h"

namespace gdnctl::oracle {

template <class Real>
struct Prepared {
    const GdnProblem* problem = nullptr;
    std::vector<Real> q, k;   // [B*T, Hk, dk], l2-normalised if the contract says so; the scale is not applied
    std::span<const Real> v;  // [B*T, Hv, dv]: the problem's own values if they are fp64, else `converted_v`
    std::vector<Real> converted_v;
    std::vector<Real> g;                // [B*T, Hv], log decay, clamped if exp_clip is for gates
    std::vector<Real> beta;             // [B*T, Hv]
    std::vector<Real> state;            // [N, Hv, dk, dv], S0 or zeros
    std::vector<std::size_t> key_head;  // of each value head
    Real scale = 0;

    Prepared() = default;
    Prepared(Prepared&&) noexcept = default;  // moving a vector keeps its elements in place, so `v` stays valid
    Prepared& operator=(Prepared&&) noexcept = default;
    Prepared(const Prepared&) = delete;
    Prepared& operator=(const Prepared&) = delete;
    ~Prepared() = default;
};

// q^ = q / sqrt(|q|^2 + eps), k^ likewise; g = -exp(A_log) softplus(a + dt_bias); beta = sigmoid(b).
// `problem` must outlive the result.
template <class Real>
Prepared<Real> prepare(const GdnProblem& problem, const GdnContract& contract, int threads);

// The inputs of an fp32 kernel, without its outputs. All three must outlive the result.
Forward32 forward_inputs(const GdnProblem& problem, const GdnContract& contract, const Prepared<float>& prepared);

// q, k and v of a problem stored in bf16. If q and k are normalised and not rounded afterwards, the kernel does that.
struct NarrowInputs {
    std::vector<Bf16> q, k, v;
    bool normalised = false;  // whether q and k are

    NarrowInputs(const GdnProblem& problem, const GdnContract& contract, const Prepared<float>& prepared);
    // Replaces the fp32 inputs. This object must outlive the call.
    void place(const GdnContract& contract, Forward32& forward) const;
};

// Only the gates, as log decay in fp64: [B*T, Hv].
std::vector<double> log_gates(const GdnProblem& problem, const GdnContract& contract);

// Sets final states of sequences without tokens by the contract's policy; leaves all others alone.
template <class Real>
void apply_empty_policy(const GdnProblem& problem, EmptySequence policy, std::vector<Real>& state);

extern template Prepared<float> prepare(const GdnProblem&, const GdnContract&, int);
extern template Prepared<double> prepare(const GdnProblem&, const GdnContract&, int);
extern template void apply_empty_policy(const GdnProblem&, EmptySequence, std::vector<float>&);
extern template void apply_empty_policy(const GdnProblem&, EmptySequence, std::vector<double>&);

}  // namespace gdnctl::oracle
