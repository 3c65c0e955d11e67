// The recurrence that defines the result. A task is several panels of columns of one value head of one sequence.
// Columns of the state are independent, so results do not depend on who computes which.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "oracle/gdn/kernels/clipped.h"
#include "oracle/gdn/kernels/kernels.h"
#include "oracle/gdn/kernels/prepare.h"
#include "oracle/gdn/kernels/simd/recurrent_panel.h"
#include "oracle/simd/aligned.h"
#include "oracle/simd/tasks.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

namespace {

template <class Real>
RecurrentFunction<Real> function_for(Isa isa) {
    if constexpr (std::is_same_v<Real, double>) {
        return isa == Isa::avx512 ? recurrent64_avx512 : isa == Isa::avx2 ? recurrent64_avx2 : recurrent64_scalar;
    } else {
        return isa == Isa::avx512 ? recurrent32_avx512 : isa == Isa::avx2 ? recurrent32_avx2 : recurrent32_scalar;
    }
}

template <class Real>
std::vector<double> widened(std::vector<Real>&& values) {
    if constexpr (std::is_same_v<Real, double>) {
        return std::move(values);
    } else {
        return {values.begin(), values.end()};
    }
}

constexpr std::size_t k_block = 64;    // columns per task: several panels
constexpr std::size_t k_segment = 64;  // tokens

template <class Real>
struct Job {
    Prepared<Real> inputs;
    std::vector<Real> alpha;    // [B*T, Hv]
    std::vector<Real> out;      // [B*T, Hv, dv]
    std::vector<Real> largest;  // per task
    std::size_t blocks = 0;     // tasks per head

    static std::size_t scratch_size(std::size_t dk) { return dk * (k_recurrent_columns<Real> + 2 * k_segment); }

    // Segment by segment, so that all panels of a task find its rows of q and k together in the second-level cache.
    void run(std::size_t task, RecurrentFunction<Real> function, Real* scratch) {
        const GdnDims& d = inputs.problem->dims;
        const auto Hv = static_cast<std::size_t>(d.Hv);
        const auto Hk = static_cast<std::size_t>(d.Hk);
        const auto dk = static_cast<std::size_t>(d.dk);
        const std::size_t panel_size = dk * k_recurrent_columns<Real>;
        const std::size_t block = task % blocks;
        const std::size_t head = task / blocks % Hv;
        const std::size_t n = task / blocks / Hv;
        const GdnSequence sequence = inputs.problem->sequences[n];
        const auto end = static_cast<std::size_t>(sequence.end);
        const std::size_t first = block * k_block;
        const std::size_t last = std::min(first + k_block, static_cast<std::size_t>(d.dv));
        for (auto row = static_cast<std::size_t>(sequence.begin); row < end; row += k_segment) {
            const std::size_t tokens = std::min(k_segment, end - row);
            Real* q = scratch + panel_size;
            Real* k = q + k_segment * dk;
            for (std::size_t t = 0; t < tokens; ++t) {
                const std::size_t from = ((row + t) * Hk + inputs.key_head[head]) * dk;
                std::copy_n(inputs.q.data() + from, dk, q + t * dk);
                std::copy_n(inputs.k.data() + from, dk, k + t * dk);
            }
            for (std::size_t column = first; column < last; column += k_recurrent_columns<Real>) {
                RecurrentPanel<Real> panel = panel_of(n, head, row, column);
                panel.q = q;
                panel.k = k;
                panel.key_stride = dk;
                panel.tokens = tokens;
                panel.scratch = scratch;
                function(panel);
                largest[task] = std::max(largest[task], panel.largest);
            }
        }
    }

    // Starts at token `row`; the caller sets q and k.
    RecurrentPanel<Real> panel_of(std::size_t n, std::size_t head, std::size_t row, std::size_t column) {
        const GdnDims& d = inputs.problem->dims;
        const auto Hv = static_cast<std::size_t>(d.Hv);
        const auto dk = static_cast<std::size_t>(d.dk);
        const auto dv = static_cast<std::size_t>(d.dv);
        const std::size_t gate = row * Hv + head;
        const std::size_t value = gate * dv + column;
        RecurrentPanel<Real> panel;
        panel.v = inputs.v.data() + value;
        panel.alpha = alpha.data() + gate;
        panel.beta = inputs.beta.data() + gate;
        panel.out = out.data() + value;
        panel.value_stride = Hv * dv;
        panel.gate_stride = Hv;
        panel.dk = dk;
        panel.columns = std::min(k_recurrent_columns<Real>, dv - column);
        panel.state = inputs.state.data() + (n * Hv + head) * dk * dv + column;
        panel.state_stride = dv;
        panel.scale = inputs.scale;
        return panel;
    }
};

template <class Real>
GdnOutputs run_recurrent(const GdnProblem& p, const GdnContract& c, int threads, Isa isa) {
    Job<Real> job{prepare<Real>(p, c, threads), {}, {}, {}, 0};
    job.alpha.resize(job.inputs.g.size());
    std::transform(job.inputs.g.begin(), job.inputs.g.end(), job.alpha.begin(), [](Real g) { return std::exp(g); });
    job.out.resize(p.v.size());
    job.blocks = (static_cast<std::size_t>(p.dims.dv) + k_block - 1) / k_block;
    const std::size_t tasks = p.sequences.size() * static_cast<std::size_t>(p.dims.Hv) * job.blocks;
    job.largest.resize(tasks);
    const RecurrentFunction<Real> function = function_for<Real>(isa);
    run_tasks(tasks, threads, [&] {
        // Rows that straddle cache lines would double the time.
        return [&, scratch = aligned<Real>(Job<Real>::scratch_size(static_cast<std::size_t>(p.dims.dk)))](
                   std::size_t task) { job.run(task, function, scratch.get()); };
    });
    apply_empty_policy(p, c.empty, job.inputs.state);
    GdnOutputs outputs{widened(std::move(job.out)), widened(std::move(job.inputs.state)), 0};
    for (const Real x : job.largest) outputs.max_abs_state = std::max(outputs.max_abs_state, static_cast<double>(x));
    return outputs;
}

}  // namespace

GdnOutputs run_recurrent64(const GdnProblem& problem, const GdnContract& contract, int threads, Isa isa) {
    if (clips_sums(problem, contract)) return run_clipped64(problem, contract, threads);
    return run_recurrent<double>(problem, contract, threads, isa);
}

GdnOutputs run_recurrent32(const GdnProblem& problem, const GdnContract& contract, int threads, Isa isa) {
    return run_recurrent<float>(problem, contract, threads, isa);
}

// The recurrence as in decoders that keep their state in bf16: token by token, and slow.

namespace {

struct PreparedHead {
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
            PreparedHead prepared{dk, dv, in.state.data() + task * dk * dv};
            for (auto row = static_cast<std::size_t>(s.begin); row < static_cast<std::size_t>(s.end); ++row) {
                const std::size_t key = (row * Hk + in.key_head[head]) * dk;
                const std::size_t gate = row * Hv + head;
                prepared.step(in.q.data() + key, in.k.data() + key, in.v.data() + gate * dv, std::exp(in.g[gate]),
                              in.beta[gate], in.scale, out.data() + gate * dv);
            }
        };
    });
    apply_empty_policy(p, c.empty, in.state);
    return {{out.begin(), out.end()}, {in.state.begin(), in.state.end()}, 0};
}

}  // namespace gdnctl::oracle
