// A token-by-token recurrence with planted mistakes, which knows nothing of the chunked form that hints are simulated
// out in.
#pragma once

#include <cmath>
#include <functional>

#include "oracle/gdn/kernels/prepare.h"
#include "unit/oracle/judging.h"

namespace gdnctl::oracle::testing {

struct Quirks {
    bool decay_after_write = false;
    bool read_old_state = false;
    bool undecayed_residual = false;
    bool exclusive_sums = false;
    bool sums_never_restart = false;
    bool bf16_state_per_chunk = false;
    bool strict_mask = false;
    bool no_handover = false;
    bool gate_is_factor = false;
};

// The recurrence with quirks, of one problem that has no packed sequences. `change` acts on the prepared inputs.
inline GdnOutputs quirky_recurrence(const GdnProblem& p, const GdnContract& c, const Quirks& quirks,
                                    const std::function<void(Prepared<double>&)>& change = {}) {
    Prepared<double> in = prepare<double>(p, c, 1);
    if (change) change(in);
    const auto T = static_cast<std::size_t>(p.dims.T);
    const auto Hv = static_cast<std::size_t>(p.dims.Hv);
    const auto Hk = static_cast<std::size_t>(p.dims.Hk);
    const auto dk = static_cast<std::size_t>(p.dims.dk);
    const auto dv = static_cast<std::size_t>(p.dims.dv);
    const auto C = static_cast<std::size_t>(c.chunk);
    GdnOutputs result{std::vector<double>(p.v.size()), in.state, 0};
    for (std::size_t b = 0; b < static_cast<std::size_t>(p.dims.B); ++b) {
        for (std::size_t h = 0; h < Hv; ++h) {
            double* S = result.final_state.data() + (b * Hv + h) * dk * dv;
            double before = 0;  // gates of earlier chunks
            double inside = 0;
            for (std::size_t t = 0; t < T; ++t) {
                const std::size_t row = b * T + t;
                const double* q = in.q.data() + (row * Hk + in.key_head[h]) * dk;
                const double* k = in.k.data() + (row * Hk + in.key_head[h]) * dk;
                const double* v = in.v.data() + (row * Hv + h) * dv;
                double* out = result.out.data() + (row * Hv + h) * dv;
                double g = in.g[row * Hv + h];
                const double own = g;
                if (t % C == 0) {
                    before += inside;
                    inside = 0;
                    if (quirks.sums_never_restart) g += before;
                    if (quirks.bf16_state_per_chunk && t > 0) {
                        for (std::size_t i = 0; i < dk * dv; ++i) S[i] = rounded_to(S[i], DType::bf16);
                    }
                    if (quirks.no_handover && t > 0) std::fill_n(S, dk * dv, 0.0);
                }
                inside += own;
                if (quirks.exclusive_sums) g = t % C == 0 ? 0 : in.g[(row - 1) * Hv + h];
                const double alpha = quirks.gate_is_factor ? g : std::exp(g);
                for (std::size_t j = 0; j < dv; ++j) {
                    double kS = 0;
                    double old = 0;
                    for (std::size_t x = 0; x < dk; ++x) {
                        kS += k[x] * S[x * dv + j];
                        old += q[x] * S[x * dv + j];
                    }
                    const bool undecayed = quirks.undecayed_residual || quirks.decay_after_write;
                    const double d = in.beta[row * Hv + h] * (v[j] - (undecayed ? 1 : alpha) * kS);
                    double read = 0;
                    for (std::size_t x = 0; x < dk; ++x) {
                        double& s = S[x * dv + j];
                        s = quirks.decay_after_write ? alpha * (s + k[x] * d) : alpha * s + k[x] * d;
                        read += q[x] * s;
                    }
                    out[j] = in.scale * (quirks.read_old_state ? old : quirks.strict_mask ? alpha * old : read);
                }
            }
            if (quirks.bf16_state_per_chunk) {
                for (std::size_t i = 0; i < dk * dv; ++i) S[i] = rounded_to(S[i], DType::bf16);
            }
        }
    }
    return result;
}

}  // namespace gdnctl::oracle::testing
