// The recurrence as in decoders that keep their state in bf16: token by token, and slow.
#include <algorithm>
#include <cmath>

#include "oracle/gdn/kernels/chunk_rounded.h"
#include "oracle/gdn/kernels/prepare.h"
#include "oracle/simd/tasks.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

namespace {

struct Lane {
    std::size_t dk, dv;
    float* S;

    void step(const float* q, const float* k, const float* v, float alpha, float beta, float scale, float* out) {
        for (std::size_t x = 0; x < dk * dv; ++x) S[x] *= alpha;
        std::vector<float> write(v, v + dv);
        for (std::size_t x = 0; x < dk; ++x) {
            for (std::size_t j = 0; j < dv; ++j) write[j] -= k[x] * S[x * dv + j];
        }
        std::fill_n(out, dv, 0.0F);
        for (std::size_t x = 0; x < dk; ++x) {
            for (std::size_t j = 0; j < dv; ++j) {
                float& s = S[x * dv + j];
                s += k[x] * beta * write[j];
                s = static_cast<float>(rounded_to(static_cast<double>(s), DType::bf16));
                out[j] += scale * q[x] * s;
            }
        }
    }
};

}  // namespace

GdnOutputs run_recurrent_rounded(const GdnProblem& p, const GdnContract& c, int threads) {
    Prepared<float> in = prepare<float>(p, c, threads);
    std::vector<float> out(p.v.size());
    const auto Hk = static_cast<std::size_t>(p.dims.Hk);
    const auto Hv = static_cast<std::size_t>(p.dims.Hv);
    const auto dk = static_cast<std::size_t>(p.dims.dk);
    const auto dv = static_cast<std::size_t>(p.dims.dv);
    run_tasks(p.sequences.size() * Hv, threads, [&] {
        return [&](std::size_t task) {
            const std::size_t head = task % Hv;
            const GdnSequence s = p.sequences[task / Hv];
            Lane lane{dk, dv, in.state.data() + task * dk * dv};
            for (auto row = static_cast<std::size_t>(s.begin); row < static_cast<std::size_t>(s.end); ++row) {
                const std::size_t key = (row * Hk + in.key_head[head]) * dk;
                const std::size_t gate = row * Hv + head;
                lane.step(in.q.data() + key, in.k.data() + key, in.v.data() + gate * dv, std::exp(in.g[gate]),
                          in.beta[gate], in.scale, out.data() + gate * dv);
            }
        };
    });
    apply_empty_policy(p, c.empty, in.state);
    return {{out.begin(), out.end()}, {in.state.begin(), in.state.end()}, 0};
}

}  // namespace gdnctl::oracle
