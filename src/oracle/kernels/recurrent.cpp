// The recurrence that defines the result, one token after another.
#include <cmath>

#include "gdnctl/oracle/gdn_kernels.h"
#include "oracle/kernels/prepare.h"
#include "oracle/kernels/tasks.h"

namespace gdnctl::oracle {

namespace {

// One value head of one sequence. S is [dk, dv], row i belongs to key dimension i.
template <class Real>
class RecurrentHead {
public:
    RecurrentHead(Prepared<Real>& inputs, std::vector<Real>& out, std::vector<Real>& growth)
        : m_in(inputs),
          m_out(out),
          m_growth(growth),
          m_dk(static_cast<std::size_t>(inputs.problem->dims.dk)),
          m_dv(static_cast<std::size_t>(inputs.problem->dims.dv)),
          m_residual(m_dv) {}

    void operator()(std::size_t task) {
        const GdnDims& dims = m_in.problem->dims;
        const auto Hv = static_cast<std::size_t>(dims.Hv);
        const auto Hk = static_cast<std::size_t>(dims.Hk);
        const std::size_t head = task % Hv;
        const GdnSequence sequence = m_in.problem->sequences[task / Hv];
        Real* S = m_in.state.data() + task * m_dk * m_dv;
        Real largest = 0;
        for (auto row = static_cast<std::size_t>(sequence.begin); row < static_cast<std::size_t>(sequence.end); ++row) {
            const std::size_t key_row = (row * Hk + m_in.key_head[head]) * m_dk;
            const std::size_t value_row = row * Hv + head;
            step(S, m_in.k.data() + key_row, m_in.q.data() + key_row, value_row, largest);
        }
        m_growth[task] = largest;
    }

private:
    void step(Real* S, const Real* k, const Real* q, std::size_t value_row, Real& largest) {
        const Real alpha = std::exp(m_in.g[value_row]);
        const Real beta = m_in.beta[value_row];
        const Real* v = m_in.v.data() + value_row * m_dv;
        Real* out = m_out.data() + value_row * m_dv;
        Real* r = m_residual.data();
        std::copy_n(v, m_dv, r);
        for (std::size_t i = 0; i < m_dk; ++i) {
            Real* row = S + i * m_dv;
            for (std::size_t j = 0; j < m_dv; ++j) {
                row[j] *= alpha;
                r[j] -= k[i] * row[j];
            }
        }
        for (std::size_t j = 0; j < m_dv; ++j) {
            r[j] *= beta;
            out[j] = 0;
        }
        for (std::size_t i = 0; i < m_dk; ++i) {
            Real* row = S + i * m_dv;
            for (std::size_t j = 0; j < m_dv; ++j) {
                row[j] += k[i] * r[j];
                out[j] += q[i] * row[j];
            }
            for (std::size_t j = 0; j < m_dv; ++j) {
                const Real magnitude = std::fabs(row[j]);
                largest = magnitude > largest ? magnitude : largest;
            }
        }
        for (std::size_t j = 0; j < m_dv; ++j) out[j] *= m_in.scale;
    }

    Prepared<Real>& m_in;
    std::vector<Real>& m_out;
    std::vector<Real>& m_growth;
    std::size_t m_dk, m_dv;
    std::vector<Real> m_residual;
};

template <class Real>
GdnOutputs run_recurrent(const GdnProblem& p, const GdnContract& c, int threads) {
    Prepared<Real> inputs = prepare<Real>(p, c);
    std::vector<Real> out(p.v.size());
    const std::size_t tasks = p.sequences.size() * static_cast<std::size_t>(p.dims.Hv);
    std::vector<Real> growth(tasks);
    run_tasks(tasks, threads, [&] { return RecurrentHead<Real>(inputs, out, growth); });
    apply_empty_policy(p, c.empty, inputs.state);
    GdnOutputs outputs{{out.begin(), out.end()}, {inputs.state.begin(), inputs.state.end()}, 0};
    for (const Real g : growth) outputs.max_abs_state = std::max(outputs.max_abs_state, static_cast<double>(g));
    return outputs;
}

}  // namespace

GdnOutputs run_recurrent64(const GdnProblem& problem, const GdnContract& contract, int threads) {
    return run_recurrent<double>(problem, contract, threads);
}

GdnOutputs run_recurrent32(const GdnProblem& problem, const GdnContract& contract, int threads) {
    return run_recurrent<float>(problem, contract, threads);
}

}  // namespace gdnctl::oracle
