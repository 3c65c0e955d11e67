// The recurrence that defines the result. A task is a panel of columns of one value head of one sequence: columns of
// the state do not know of each other, so results do not depend on who computes which.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "gdnctl/oracle/gdn_kernels.h"
#include "oracle/kernels/prepare.h"
#include "oracle/kernels/simd/recurrent_panel.h"
#include "oracle/kernels/tasks.h"

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

template <class Real>
struct Job {
    Prepared<Real> inputs;
    std::vector<Real> alpha;  // [B*T, Hv]
    std::vector<Real> out;    // [B*T, Hv, dv]
    std::vector<Real> largest;
    std::size_t panels = 0;  // of a head

    void run(std::size_t task, RecurrentFunction<Real> function, Real* scratch) {
        const GdnDims& d = inputs.problem->dims;
        const auto Hv = static_cast<std::size_t>(d.Hv);
        const auto Hk = static_cast<std::size_t>(d.Hk);
        const auto dk = static_cast<std::size_t>(d.dk);
        const auto dv = static_cast<std::size_t>(d.dv);
        const std::size_t column = task % panels * k_recurrent_columns<Real>;
        const std::size_t head = task / panels % Hv;
        const std::size_t n = task / panels / Hv;
        const GdnSequence sequence = inputs.problem->sequences[n];
        const auto begin = static_cast<std::size_t>(sequence.begin);
        const std::size_t key = (begin * Hk + inputs.key_head[head]) * dk;
        const std::size_t gate = begin * Hv + head;
        const std::size_t value = gate * dv + column;
        RecurrentPanel<Real> panel;
        panel.q = inputs.q.data() + key;
        panel.k = inputs.k.data() + key;
        panel.v = inputs.v.data() + value;
        panel.alpha = alpha.data() + gate;
        panel.beta = inputs.beta.data() + gate;
        panel.out = out.data() + value;
        panel.key_stride = Hk * dk;
        panel.value_stride = Hv * dv;
        panel.gate_stride = Hv;
        panel.tokens = static_cast<std::size_t>(sequence.end) - begin;
        panel.dk = dk;
        panel.columns = std::min(k_recurrent_columns<Real>, dv - column);
        panel.state = inputs.state.data() + (n * Hv + head) * dk * dv + column;
        panel.state_stride = dv;
        panel.scale = inputs.scale;
        panel.scratch = scratch;
        function(panel);
        largest[task] = panel.largest;
    }
};

template <class Real>
GdnOutputs run_recurrent(const GdnProblem& p, const GdnContract& c, int threads, Isa isa) {
    Job<Real> job{prepare<Real>(p, c, threads), {}, {}, {}, 0};
    job.alpha.resize(job.inputs.g.size());
    std::transform(job.inputs.g.begin(), job.inputs.g.end(), job.alpha.begin(), [](Real g) { return std::exp(g); });
    job.out.resize(p.v.size());
    const auto dv = static_cast<std::size_t>(p.dims.dv);
    job.panels = (dv + k_recurrent_columns<Real> - 1) / k_recurrent_columns<Real>;
    const std::size_t tasks = p.sequences.size() * static_cast<std::size_t>(p.dims.Hv) * job.panels;
    job.largest.resize(tasks);
    const RecurrentFunction<Real> function = function_for<Real>(isa);
    run_tasks(tasks, threads, [&] {
        return [&, scratch = std::vector<Real>(static_cast<std::size_t>(p.dims.dk) * k_recurrent_columns<Real>)](
                   std::size_t task) mutable { job.run(task, function, scratch.data()); };
    });
    apply_empty_policy(p, c.empty, job.inputs.state);
    GdnOutputs outputs{widened(std::move(job.out)), widened(std::move(job.inputs.state)), 0};
    for (const Real x : job.largest) outputs.max_abs_state = std::max(outputs.max_abs_state, static_cast<double>(x));
    return outputs;
}

}  // namespace

GdnOutputs run_recurrent64(const GdnProblem& problem, const GdnContract& contract, int threads, Isa isa) {
    return run_recurrent<double>(problem, contract, threads, isa);
}

GdnOutputs run_recurrent32(const GdnProblem& problem, const GdnContract& contract, int threads, Isa isa) {
    return run_recurrent<float>(problem, contract, threads, isa);
}

}  // namespace gdnctl::oracle
