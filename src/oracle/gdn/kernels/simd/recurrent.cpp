// Token by token. Per token and row i of the panel, with u = beta (v - Sb^T k) of the previous token:
//   S = row + k'_i u,  out' += q'_i S,  Sb = alpha S,  r -= k_i Sb,  row = Sb      (' = the previous token)
// Each row is loaded and stored once per token: a token's write and output are done during the pass of the next token.
#include "oracle/gdn/kernels/simd/recurrent_panel.h"
#include "oracle/simd/vector.h"

namespace gdnctl::oracle {
namespace {

template <class Real, int Bytes>
class RecurrentSweep {
    using Vector = typename VectorOf<Real, Bytes>::type;
    static constexpr std::size_t k_lanes = VectorOf<Real, Bytes>::k_lanes;
    static constexpr std::size_t k_columns = k_recurrent_columns<Real>;
    static constexpr std::size_t k_vectors = k_columns / k_lanes;
    // Vectors of a row processed together; more would not fit in the registers.
    static constexpr std::size_t k_group = k_vectors < 2 ? 1 : 2;

public:
    explicit RecurrentSweep(RecurrentPanel<Real>& panel) : m_p(panel) {}

    void run() {
        copy_in();
        for (std::size_t column = 0; column < k_columns && m_p.tokens > 0; column += k_group * k_lanes) {
            run_columns(column);
        }
        copy_out();
    }

private:
    // What a token needs from the previous one: u = beta (v - Sb^T k).
    struct Columns {
        Vector u[k_group], high[k_group], low[k_group];
    };

    void run_columns(std::size_t column) {
        Columns c = {};
        pass<false, true>(0, column, c);
        for (std::size_t t = 1; t < m_p.tokens; ++t) {
            prefetch(t, column);
            pass<true, true>(t, column, c);
        }
        pass<true, false>(m_p.tokens, column, c);
        for (std::size_t x = 0; x < k_group; ++x) {
            for (std::size_t lane = 0; lane < k_lanes; ++lane) {
                const Real high = c.high[x][lane];
                const Real low = -c.low[x][lane];
                m_p.largest = high > m_p.largest ? high : m_p.largest;
                m_p.largest = low > m_p.largest ? low : m_p.largest;
            }
        }
    }

    // Rows of v are kilobytes apart, so the processor does not prefetch them, and r waits for v.
    void prefetch(std::size_t t, std::size_t column) const {
        constexpr std::size_t k_line = 64 / sizeof(Real);
        const Real* v = m_p.v + (t + 4) * m_p.value_stride + column;
        for (std::size_t j = 0; j < k_group * k_lanes; j += k_line) __builtin_prefetch(v + j);
    }

    // Finishes token t - 1 (`Before`) and starts token t (`Here`).
    template <bool Before, bool Here>
    void pass(std::size_t t, std::size_t column, Columns& c) {
        const Real* k_before = m_p.k + (Before ? t - 1 : 0) * m_p.key_stride;
        const Real* q_before = m_p.q + (Before ? t - 1 : 0) * m_p.key_stride;
        const Real* k = m_p.k + (Here ? t : 0) * m_p.key_stride;
        const Real alpha = Here ? m_p.alpha[t * m_p.gate_stride] : 0;
        const std::size_t dk = m_p.dk;
        Vector u[k_group], o[k_group], r[k_group], high[k_group], low[k_group];
        for (std::size_t x = 0; x < k_group; ++x) {
            u[x] = c.u[x];
            high[x] = c.high[x];
            low[x] = c.low[x];
            o[x] = Vector{};
            r[x] = Vector{};
            if constexpr (Here) r[x] = read(m_p.v + t * m_p.value_stride, column + x * k_lanes);
        }
        Real* row = m_p.scratch + column;
        for (std::size_t i = 0; i < dk; ++i, row += k_columns) {
            for (std::size_t x = 0; x < k_group; ++x) {
                Vector s = load<Real, Bytes>(row + x * k_lanes);
                if constexpr (Before) {
                    s += k_before[i] * u[x];
                    o[x] += q_before[i] * s;
                    high[x] = s > high[x] ? s : high[x];
                    low[x] = s < low[x] ? s : low[x];
                }
                if constexpr (Here) {
                    s *= alpha;
                    r[x] -= k[i] * s;
                }
                store<Real, Bytes>(row + x * k_lanes, s);
            }
        }
        for (std::size_t x = 0; x < k_group; ++x) {
            if constexpr (Before) {
                write(m_p.out + (t - 1) * m_p.value_stride, column + x * k_lanes, o[x] * m_p.scale);
            }
            if constexpr (Here) c.u[x] = r[x] * m_p.beta[t * m_p.gate_stride];
            c.high[x] = high[x];
            c.low[x] = low[x];
        }
    }

    // A vector of a row of v or out; columns beyond the panel's last read as 0 and are not touched.
    Vector read(const Real* row, std::size_t column) const {
        if (column + k_lanes <= m_p.columns) return load<Real, Bytes>(row + column);
        Vector x = {};
        for (std::size_t lane = 0; column + lane < m_p.columns; ++lane) x[lane] = row[column + lane];
        return x;
    }

    void write(Real* row, std::size_t column, Vector x) const {
        if (column + k_lanes <= m_p.columns) {
            store<Real, Bytes>(row + column, x);
            return;
        }
        for (std::size_t lane = 0; column + lane < m_p.columns; ++lane) row[column + lane] = x[lane];
    }

    void copy_in() {
        for (std::size_t i = 0; i < m_p.dk; ++i) {
            Real* row = m_p.scratch + i * k_columns;
            for (std::size_t j = 0; j < k_columns; ++j) {
                row[j] = j < m_p.columns ? m_p.state[i * m_p.state_stride + j] : 0;
            }
        }
    }

    void copy_out() {
        for (std::size_t i = 0; i < m_p.dk; ++i) {
            for (std::size_t j = 0; j < m_p.columns; ++j) {
                m_p.state[i * m_p.state_stride + j] = m_p.scratch[i * k_columns + j];
            }
        }
    }

    RecurrentPanel<Real>& m_p;
};

}  // namespace

void GDNCTL_KERNEL(recurrent64)(RecurrentPanel<double>& panel) { RecurrentSweep<double, GDNCTL_BYTES>(panel).run(); }
void GDNCTL_KERNEL(recurrent32)(RecurrentPanel<float>& panel) { RecurrentSweep<float, GDNCTL_BYTES>(panel).run(); }

}  // namespace gdnctl::oracle
