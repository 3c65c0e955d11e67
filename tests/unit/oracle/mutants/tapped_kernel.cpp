#include "unit/oracle/mutants/tapped_kernel.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "oracle/gdn/kernels/prepare.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle::testing {

namespace {

using Size = std::size_t;

class TappedHead {
public:
    TappedHead(PreparedHead head, Tap tap, const TapChange& change, int only)
        : m_head(std::move(head)), m_tap(tap), m_change(change), m_only(only), m_dk(m_head.dk), m_dv(m_head.columns) {
        m_state = m_head.state;
        m_out.reserve(m_head.tokens * m_dv);
    }

    HeadResult run() {
        for (Size first = 0; first < m_head.tokens; first += m_head.chunk) {
            m_n = std::min(m_head.chunk, m_head.tokens - first);
            m_spoilt = m_change && (m_only < 0 || first / m_head.chunk == static_cast<Size>(m_only));
            step(first);
        }
        return {std::move(m_out), std::move(m_state)};
    }

private:
    // The result of a step in fp32, with the change of this kernel applied.
    Reals stepped(Tap tap, Reals x, Size width) const {
        if (m_spoilt && tap == m_tap) m_change(x, x.size() / width, width);
        for (double& value : x) value = static_cast<double>(static_cast<float>(value));
        return x;
    }
    static Reals part(const Reals& all, Size first, Size rows, Size width) {
        const auto at = all.begin() + static_cast<std::ptrdiff_t>(first * width);
        return {at, at + static_cast<std::ptrdiff_t>(rows * width)};
    }
    // [rows, inner] times [inner, columns], or times its transpose.
    static Reals times(const Reals& a, const Reals& b, Size inner, Size columns, bool transposed = false) {
        const Size rows = a.size() / inner;
        Reals result(rows * columns, 0);
        for (Size i = 0; i < rows; ++i) {
            for (Size j = 0; j < columns; ++j) {
                double sum = 0;
                for (Size x = 0; x < inner; ++x)
                    sum += a[i * inner + x] * (transposed ? b[j * inner + x] : b[x * columns + j]);
                result[i * columns + j] = sum;
            }
        }
        return result;
    }
    static Reals rows_times(Reals x, Size width, const Reals& factors) {
        for (Size i = 0; i < x.size(); ++i) x[i] *= factors[i / width];
        return x;
    }

    Reals inverse(const Reals& M) const {
        Reals inverted(m_n * m_n, 0);
        for (Size i = 0; i < m_n; ++i) {
            inverted[i * m_n + i] = 1;
            for (Size j = 0; j < i; ++j) {
                for (Size x = j; x < i; ++x) inverted[i * m_n + j] -= M[i * m_n + x] * inverted[x * m_n + j];
            }
        }
        return inverted;
    }

    void step(Size first) {
        const Size n = m_n;
        const Reals q = part(m_head.q, first, n, m_dk);
        const Reals k = part(m_head.k, first, n, m_dk);
        const Reals beta = part(m_head.beta, first, n, 1);
        Reals sums = part(m_head.gate, first, n, 1);
        std::partial_sum(sums.begin(), sums.end(), sums.begin());
        const Reals c = stepped(Tap::c, std::move(sums), 1);
        Reals gamma(n * n, 0);
        for (Size i = 0; i < n; ++i) {
            for (Size j = 0; j <= i; ++j) gamma[i * n + j] = std::exp(c[i] - c[j]);
        }
        gamma = stepped(Tap::gamma, std::move(gamma), n);
        const Reals kk = stepped(Tap::kk, times(k, k, m_dk, n, true), n);
        Reals M(n * n, 0);
        for (Size i = 0; i < n; ++i) {
            for (Size j = 0; j < i; ++j) M[i * n + j] = beta[i] * kk[i * n + j] * gamma[i * n + j];
        }
        M = stepped(Tap::M, std::move(M), n);
        const Reals inverted = stepped(Tap::T, inverse(M), n);
        Reals from_start(n);
        Reals to_end(n);
        for (Size i = 0; i < n; ++i) {
            from_start[i] = std::exp(c[i]);
            to_end[i] = std::exp(c[n - 1] - c[i]);
        }
        const Reals bv = stepped(Tap::beta_v, rows_times(part(m_head.v, first, n, m_dv), m_dv, beta), m_dv);
        const Reals bk = stepped(Tap::beta_k, rows_times(rows_times(k, m_dk, beta), m_dk, from_start), m_dk);
        Reals U = stepped(Tap::Uu, times(inverted, bv, n, m_dv), m_dv);
        const Reals W = stepped(Tap::W, times(inverted, bk, n, m_dk), m_dk);
        const Reals WS = stepped(Tap::WS, times(W, m_state, m_dk, m_dv), m_dv);
        for (Size i = 0; i < U.size(); ++i) U[i] -= WS[i];
        U = stepped(Tap::U, std::move(U), m_dv);
        read(q, k, gamma, from_start, U);
        write(rows_times(k, m_dk, to_end), std::exp(c[n - 1]), U);
    }

    void read(const Reals& q, const Reals& k, const Reals& gamma, const Reals& from_start, const Reals& U) {
        const Size n = m_n;
        const Reals qk = stepped(Tap::qk, times(q, k, m_dk, n, true), n);
        Reals P(n * n, 0);
        for (Size i = 0; i < n; ++i) {
            for (Size j = 0; j <= i; ++j) P[i * n + j] = m_head.scale * qk[i * n + j] * gamma[i * n + j];
        }
        P = stepped(Tap::P, std::move(P), n);
        Reals QS = rows_times(times(q, m_state, m_dk, m_dv), m_dv, from_start);
        for (double& x : QS) x *= m_head.scale;
        Reals out = stepped(Tap::QS, std::move(QS), m_dv);
        const Reals PU = stepped(Tap::PU, times(P, U, n, m_dv), m_dv);
        for (Size i = 0; i < out.size(); ++i) out[i] += PU[i];
        out = stepped(Tap::out, std::move(out), m_dv);
        m_out.insert(m_out.end(), out.begin(), out.end());
    }

    void write(Reals keys, double decay, const Reals& U) {
        keys = stepped(Tap::write_keys, std::move(keys), m_dk);
        Reals kept = m_state;
        for (double& s : kept) s *= decay;
        kept = stepped(Tap::kept, std::move(kept), m_dv);
        Reals added(m_dk * m_dv, 0);
        for (Size i = 0; i < m_n; ++i) {
            for (Size at = 0; at < added.size(); ++at)
                added[at] += keys[i * m_dk + at / m_dv] * U[i * m_dv + at % m_dv];
        }
        added = stepped(Tap::added, std::move(added), m_dv);
        for (Size at = 0; at < added.size(); ++at) kept[at] += added[at];
        m_state = stepped(Tap::state, std::move(kept), m_dv);
    }

    PreparedHead m_head;
    Tap m_tap;
    const TapChange& m_change;
    int m_only;
    Size m_dk, m_dv, m_n = 0;
    bool m_spoilt = false;
    Reals m_state, m_out;
};

}  // namespace

const std::vector<TapPoint>& tap_points() {
    static const std::vector<TapPoint> k_all = {
        {Tap::c, "sums of gates", {"gate", "decay"}},
        {Tap::gamma, "Gamma", {"decay", "gate"}},
        {Tap::kk, "K K^T", {"solve"}},
        {Tap::M, "M", {"solve"}},
        {Tap::T, "the inverse", {"solve"}},
        {Tap::beta_v, "beta V", {"wu", "beta"}, true},
        {Tap::beta_k, "beta e^c K", {"wu", "beta"}},
        {Tap::Uu, "T beta V", {"wu"}, true},
        {Tap::W, "W", {"wu"}},
        {Tap::WS, "W S", {"wu"}, true},
        {Tap::U, "U", {"wu", "solve"}, true},
        {Tap::qk, "Q K^T", {"intra"}},
        {Tap::P, "P", {"intra"}},
        {Tap::QS, "Q S", {"output"}, true},
        {Tap::PU, "P U", {"intra", "output"}, true},
        {Tap::out, "out", {"output", "tile", "layout", "order"}, true},
        {Tap::write_keys, "the keys that are written", {"carry"}},
        {Tap::kept, "the state that is kept", {"carry"}, true},
        {Tap::added, "what is added to the state", {"carry"}, true},
        {Tap::state, "the state after a chunk", {"carry"}, true},
    };
    return k_all;
}

GdnOutputs run_tapped(const GdnReference& r, Tap tap, const TapChange& change, const MutantScope& scope, int threads) {
    const GdnProblem& p = r.problem;
    const auto heads = static_cast<Size>(p.dims.Hv);
    const auto dk = static_cast<Size>(p.dims.dk);
    const auto dv = static_cast<Size>(p.dims.dv);
    GdnOutputs x;
    x.out.assign(static_cast<Size>(p.rows()) * heads * dv, 0);
    x.final_state.assign(p.sequences.size() * heads * dk * dv, 0);
    run_tasks(p.sequences.size() * heads, threads, [&] {
        return [&](Size task) {
            const Size n = task / heads;
            const Size head = task % heads;
            const auto begin = static_cast<Size>(p.sequences[n].begin);
            HeadSlice place{&r, n, head, 0, static_cast<Size>(p.sequences[n].end) - begin, std::vector<Size>(dv)};
            std::iota(place.columns.begin(), place.columns.end(), 0);
            const auto key = key_head_of(static_cast<std::int64_t>(head), p.dims, r.contract.value.head_map);
            const HeadInputs in = head_inputs(place, static_cast<Size>(key), static_cast<Size>(r.contract.value.chunk),
                                              state_before(place));
            const bool faulty = scope.heads.empty() || std::find(scope.heads.begin(), scope.heads.end(),
                                                                 static_cast<std::int64_t>(head)) != scope.heads.end();
            static const TapChange k_none;
            const HeadResult result =
                TappedHead(prepare_head(in, r.contract.value), tap, faulty ? change : k_none, scope.chunk).run();
            for (Size t = 0; t < place.tokens; ++t) {
                std::copy_n(result.out.begin() + static_cast<std::ptrdiff_t>(t * dv), dv,
                            x.out.begin() + static_cast<std::ptrdiff_t>(((begin + t) * heads + head) * dv));
            }
            std::copy(result.state.begin(), result.state.end(),
                      x.final_state.begin() + static_cast<std::ptrdiff_t>(task * dk * dv));
        };
    });
    apply_empty_policy(p, r.contract.value.empty, x.final_state);
    return x;
}

}  // namespace gdnctl::oracle::testing
