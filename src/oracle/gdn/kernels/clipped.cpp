// Names as in docs/reference/oracle-methods.md, "Mathematics". Plain loops, because it only runs where a clip matters.
#include "oracle/gdn/kernels/clipped.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "oracle/gdn/kernels/prepare.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle {

namespace {

using Index = std::size_t;
using Reals = std::vector<double>;

// exp of a clipped exponent, and its derivative: 0 where it was clipped.
struct Factor {
    double value = 0, slope = 0;
};

struct Chunk {
    const ClippedHead& head;
    Index first, n;
    Reals S;                         // before the chunk
    std::vector<Factor> from_start;  // e^c_i
    std::vector<Factor> gamma;       // [n, n], e^(c_i - c_j) for i >= j
    Reals key_gram, M, P, KS, U;

    Chunk(const ClippedHead& clipped, Index begin, Reals state)
        : head(clipped), first(begin), n(std::min(clipped.chunk, clipped.tokens - begin)), S(std::move(state)) {
        from_start.resize(n);
        gamma.resize(n * n);
        key_gram.assign(n * n, 0);
        M.assign(n * n, 0);
        P.assign(n * n, 0);
        for (Index i = 0; i < n; ++i) {
            // Sums, not differences of sums: -inf - -inf would be NaN.
            double exponent = 0;
            for (Index j = i + 1; j-- > 0;) {
                gamma[i * n + j] = factor(exponent);
                key_gram[i * n + j] = dot(k(i), k(j), head.dk);
                if (j < i) M[i * n + j] = beta(i) * key_gram[i * n + j] * gamma[i * n + j].value;
                P[i * n + j] = head.scale * dot(q(i), k(j), head.dk) * gamma[i * n + j].value;
                exponent += g(j);
            }
            from_start[i] = factor(exponent);
        }
        KS.assign(n * head.dv, 0);
        U.assign(n * head.dv, 0);
        for (Index i = 0; i < n; ++i) {
            double* row = KS.data() + i * head.dv;
            for (Index x = 0; x < head.dk; ++x) add(row, k(i)[x], S.data() + x * head.dv, head.dv);
            double* u = U.data() + i * head.dv;
            for (Index y = 0; y < head.dv; ++y) u[y] = beta(i) * (v(i)[y] - from_start[i].value * row[y]);
            for (Index j = 0; j < i; ++j) add(u, -M[i * n + j], U.data() + j * head.dv, head.dv);
        }
    }

    static double dot(const double* a, const double* b, Index count) {
        double sum = 0;
        for (Index i = 0; i < count; ++i) sum += a[i] * b[i];
        return sum;
    }
    static void add(double* to, double factor, const double* from, Index count) {
        for (Index i = 0; i < count; ++i) to[i] += factor * from[i];
    }
    Factor factor(double exponent) const {
        const double value = std::exp(head.clip(exponent));
        return {value, head.clip.cuts(exponent) ? 0 : value};
    }
    const double* q(Index i) const { return head.q + (first + i) * head.key_stride; }
    const double* k(Index i) const { return head.k + (first + i) * head.key_stride; }
    const double* v(Index i) const { return head.v + (first + i) * head.value_stride; }
    double g(Index i) const { return head.g[(first + i) * head.gate_stride]; }
    double beta(Index i) const { return head.beta[(first + i) * head.gate_stride]; }
    Factor to_end(Index i) const { return gamma[(n - 1) * n + i]; }
    Factor whole() const { return from_start[n - 1]; }

    Reals state_after() const {
        Reals next(S.size());
        for (Index x = 0; x < S.size(); ++x) next[x] = whole().value * S[x];
        for (Index i = 0; i < n; ++i) {
            for (Index x = 0; x < head.dk; ++x)
                add(next.data() + x * head.dv, to_end(i).value * k(i)[x], U.data() + i * head.dv, head.dv);
        }
        return next;
    }

    void write_out() const {
        for (Index i = 0; i < n; ++i) {
            double* out = head.out + (first + i) * head.value_stride;
            std::fill_n(out, head.dv, 0.0);
            for (Index x = 0; x < head.dk; ++x)
                add(out, head.scale * from_start[i].value * q(i)[x], S.data() + x * head.dv, head.dv);
            for (Index j = 0; j <= i; ++j) add(out, P[i * n + j], U.data() + j * head.dv, head.dv);
        }
    }
};

// `row` [dv] times a transposed state: [dk].
Reals times_transposed(const double* row, const Reals& state, Index dk, Index dv) {
    Reals result(dk);
    for (Index x = 0; x < dk; ++x) result[x] = Chunk::dot(row, state.data() + x * dv, dv);
    return result;
}

// The adjoint of one chunk; D belongs to the state after it, and then to the state before it.
class ChunkAdjoint {
public:
    ChunkAdjoint(const Chunk& c, Reals& D) : m_c(c), m_head(c.head), m_D(D), m_Y(c.n * c.head.dv, 0), m_dc(c.n, 0) {
        solve();
    }

    void run() {
        for (Index i = 0; i < m_c.n; ++i) row(i);
        for (Index i = 0; i < m_c.n; ++i) pairs(i);
        m_dc.back() += m_c.whole().slope * Chunk::dot(m_D.data(), m_c.S.data(), m_D.size());
        double sum = 0;
        for (Index i = m_c.n; i-- > 0;) m_head.dg[(m_c.first + i) * m_head.gate_stride] = sum += m_dc[i];
        state();
    }

private:
    const double* d_out(Index i) const { return m_head.d_out + (m_c.first + i) * m_head.value_stride; }
    double* dq(Index i) const { return m_head.dq + (m_c.first + i) * m_head.gradient_stride; }
    double* dk(Index i) const { return m_head.dk_out + (m_c.first + i) * m_head.gradient_stride; }
    double* Y(Index i) { return m_Y.data() + i * m_head.dv; }
    const double* U(Index i) const { return m_c.U.data() + i * m_head.dv; }

    // (I + M)^T Y = dU = P^T dO + diag(e^(c_last - c)) K D
    void solve() {
        const Index n = m_c.n;
        for (Index j = n; j-- > 0;) {
            for (Index x = 0; x < m_head.dk; ++x)
                Chunk::add(Y(j), m_c.to_end(j).value * m_c.k(j)[x], m_D.data() + x * m_head.dv, m_head.dv);
            for (Index i = j; i < n; ++i) Chunk::add(Y(j), m_c.P[i * n + j], d_out(i), m_head.dv);
            for (Index i = j + 1; i < n; ++i) Chunk::add(Y(j), -m_c.M[i * n + j], Y(i), m_head.dv);
        }
    }

    // Contributions between each token and the states before and after the chunk.
    void row(Index i) {
        const Index width = m_head.dv;
        const Index at = m_c.first + i;
        const double beta = m_c.beta(i);
        const Factor start = m_c.from_start[i];
        const Reals read = times_transposed(d_out(i), m_c.S, m_head.dk, width);
        const Reals forgotten = times_transposed(Y(i), m_c.S, m_head.dk, width);
        const Reals written = times_transposed(U(i), m_D, m_head.dk, width);
        const double* KS = m_c.KS.data() + i * width;
        for (Index y = 0; y < width; ++y) m_head.dv_out[at * m_head.value_stride + y] = beta * Y(i)[y];
        const double lost = Chunk::dot(Y(i), KS, width);
        m_head.dbeta[at * m_head.gate_stride] = Chunk::dot(Y(i), m_c.v(i), width) - start.value * lost;
        Chunk::add(dq(i), m_head.scale * start.value, read.data(), m_head.dk);
        Chunk::add(dk(i), -beta * start.value, forgotten.data(), m_head.dk);
        Chunk::add(dk(i), m_c.to_end(i).value, written.data(), m_head.dk);
        m_dc[i] += start.slope * (m_head.scale * Chunk::dot(m_c.q(i), read.data(), m_head.dk) - beta * lost);
        const double w = m_c.to_end(i).slope * Chunk::dot(m_c.k(i), written.data(), m_head.dk);
        m_dc[i] -= w;
        m_dc.back() += w;
    }

    // Contributions between token i and the earlier tokens of the chunk.
    void pairs(Index i) {
        for (Index j = 0; j <= i; ++j) {
            const Index at = i * m_c.n + j;
            const Factor gamma = m_c.gamma[at];
            const double dP = Chunk::dot(d_out(i), U(j), m_head.dv);
            const double dM = j < i ? -Chunk::dot(Y(i), U(j), m_head.dv) : 0;
            const double of_query = m_head.scale * dP;
            const double of_key = m_c.beta(i) * dM;
            Chunk::add(dq(i), of_query * gamma.value, m_c.k(j), m_head.dk);
            Chunk::add(dk(j), of_query * gamma.value, m_c.q(i), m_head.dk);
            Chunk::add(dk(i), of_key * gamma.value, m_c.k(j), m_head.dk);
            Chunk::add(dk(j), of_key * gamma.value, m_c.k(i), m_head.dk);
            m_head.dbeta[(m_c.first + i) * m_head.gate_stride] += dM * m_c.key_gram[at] * gamma.value;
            const double H = gamma.slope == 0 ? 0 : dP * m_c.P[at] + dM * m_c.M[at];
            m_dc[i] += H;
            m_dc[j] -= H;
        }
    }

    void state() {
        for (double& d : m_D) d *= m_c.whole().value;
        for (Index i = 0; i < m_c.n; ++i) {
            const double start = m_c.from_start[i].value;
            for (Index x = 0; x < m_head.dk; ++x) {
                Chunk::add(m_D.data() + x * m_head.dv, m_head.scale * start * m_c.q(i)[x], d_out(i), m_head.dv);
                Chunk::add(m_D.data() + x * m_head.dv, -m_c.beta(i) * start * m_c.k(i)[x], Y(i), m_head.dv);
            }
        }
    }

    const Chunk& m_c;
    const ClippedHead& m_head;
    Reals& m_D;
    Reals m_Y, m_dc;
};

}  // namespace

bool clips_sums(const GdnProblem& p, const GdnContract& c) {
    if (!c.exp_clip || c.exp_clip->of_gates) return false;
    const Reals gates = log_gates(p, c);
    const auto heads = static_cast<Index>(p.dims.Hv);
    for (const GdnSequence& s : p.sequences) {
        for (Index h = 0; h < heads; ++h) {
            double sizes = 0;
            for (std::int64_t row = s.begin; row < s.end; ++row) {
                if ((row - s.begin) % c.chunk == 0) sizes = 0;
                sizes += std::fabs(gates[static_cast<Index>(row) * heads + h]);
                if (sizes >= c.exp_clip->limit) return true;
            }
        }
    }
    return false;
}

void clipped_forward(const ClippedHead& head) {
    Reals S(head.state, head.state + head.dk * head.dv);
    for (Index first = 0; first < head.tokens; first += head.chunk) {
        const Chunk chunk(head, first, std::move(S));
        chunk.write_out();
        S = chunk.state_after();
    }
    std::copy(S.begin(), S.end(), head.state);
}

void clipped_backward(const ClippedHead& head) {
    std::vector<Reals> states = {Reals(head.state, head.state + head.dk * head.dv)};
    for (Index first = 0; first < head.tokens; first += head.chunk)
        states.push_back(Chunk(head, first, states.back()).state_after());
    Reals D(head.d_state, head.d_state + head.dk * head.dv);
    for (Index index = states.size() - 1; index-- > 0;) {
        const Chunk chunk(head, index * head.chunk, std::move(states[index]));
        ChunkAdjoint(chunk, D).run();
    }
    std::copy(D.begin(), D.end(), head.d_state);
}

GdnOutputs run_clipped64(const GdnProblem& p, const GdnContract& c, int threads) {
    Prepared<double> in = prepare<double>(p, c, threads);
    GdnOutputs r;
    r.out.assign(p.v.size(), 0);
    const auto Hk = static_cast<Index>(p.dims.Hk);
    const auto Hv = static_cast<Index>(p.dims.Hv);
    const auto dk = static_cast<Index>(p.dims.dk);
    const auto dv = static_cast<Index>(p.dims.dv);
    run_tasks(p.sequences.size() * Hv, threads, [&] {
        return [&](Index task) {
            const GdnSequence s = p.sequences[task / Hv];
            const auto begin = static_cast<Index>(s.begin);
            const Index head = task % Hv;
            const Index gate = begin * Hv + head;
            ClippedHead clipped;
            clipped.q = in.q.data() + (begin * Hk + in.key_head[head]) * dk;
            clipped.k = in.k.data() + (begin * Hk + in.key_head[head]) * dk;
            clipped.v = in.v.data() + gate * dv;
            clipped.g = in.g.data() + gate;
            clipped.beta = in.beta.data() + gate;
            clipped.key_stride = Hk * dk;
            clipped.value_stride = Hv * dv;
            clipped.gate_stride = Hv;
            clipped.tokens = static_cast<Index>(s.end) - begin;
            clipped.dk = dk;
            clipped.dv = dv;
            clipped.chunk = static_cast<Index>(c.chunk);
            clipped.scale = in.scale;
            clipped.clip = *c.exp_clip;
            clipped.state = in.state.data() + task * dk * dv;
            clipped.out = r.out.data() + gate * dv;
            clipped_forward(clipped);
        };
    });
    apply_empty_policy(p, c.empty, in.state);
    r.final_state = std::move(in.state);
    // States inside a chunk are never computed; those that gates shrink are not the largest.
    for (const Reals* states : {&p.initial_state, &std::as_const(r.final_state), &std::as_const(r.out)}) {
        for (const double x : *states) r.max_abs_state = std::max(r.max_abs_state, std::fabs(x));
    }
    return r;
}

}  // namespace gdnctl::oracle
