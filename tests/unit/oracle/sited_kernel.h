// A chunked kernel in which any value can be changed on its way: each of its operands, coefficients and products, apart
// for each of their uses. Written from the formulas, without anything of the search that is tested with it.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "oracle/gdn/kernels/prepare.h"

namespace gdnctl::oracle::testing {

// clang-format off
enum class Site {
    q_state, q_intra, k_state, k_solve, k_intra, k_write,  // [rows, dk]: q, k in each product
    beta, sums_solve, sums_intra, sums_start, sums_write,  // [rows, 1]: sums of gates in M, in P, from the start, to the end
    M, P,                                                  // [rows, rows]
    write, forget, read, insert,                           // [rows, 1]: factors of v, K S, Q S and of what is written
    v, KS, QS, rhs, U, U_read, U_write, PU, out,           // [rows, dv]
    state_read, state, kept,                               // [dk, dv]: before the chunk, after it, before it in the sum after it
};
// clang-format on

struct SitedFault {
    std::vector<Site> sites;
    std::function<void(std::vector<double>& values, std::size_t rows, std::size_t width)> change;
    int chunk = -1, head = -1;  // this one alone; -1: all
};

class SitedKernel {
public:
    using Numbers = std::vector<double>;
    using Index = std::size_t;

    SitedKernel(const GdnProblem& p, const GdnContract& c, const SitedFault& fault)
        : m_in(prepare<double>(p, c, 1)), m_fault(fault), m_chunk(static_cast<Index>(c.chunk)) {}

    GdnOutputs run() {
        const GdnDims& d = m_in.problem->dims;
        GdnOutputs result{Numbers(m_in.problem->v.size()), m_in.state, 0};
        m_dk = static_cast<Index>(d.dk);
        m_dv = static_cast<Index>(d.dv);
        const auto heads = static_cast<Index>(d.Hv);
        for (Index n = 0; n < m_in.problem->sequences.size(); ++n) {
            const auto begin = static_cast<Index>(m_in.problem->sequences[n].begin);
            const auto end = static_cast<Index>(m_in.problem->sequences[n].end);
            for (Index h = 0; h < heads; ++h) {
                const auto at = result.final_state.begin() + static_cast<std::ptrdiff_t>((n * heads + h) * m_dk * m_dv);
                Numbers state(at, at + static_cast<std::ptrdiff_t>(m_dk * m_dv));
                for (Index first = begin; first < end; first += m_chunk) {
                    const bool here =
                        (m_fault.chunk < 0 || (first - begin) / m_chunk == static_cast<Index>(m_fault.chunk)) &&
                        (m_fault.head < 0 || h == static_cast<Index>(m_fault.head));
                    one_chunk(first, std::min(m_chunk, end - first), h, here, state, result.out);
                }
                std::copy(state.begin(), state.end(), at);
            }
        }
        return result;
    }

private:
    Numbers rows_of(const double* all, Index first, Index n, Index heads, Index head, Index width) const {
        Numbers rows;
        for (Index i = 0; i < n; ++i) {
            const double* row = all + ((first + i) * heads + head) * width;
            rows.insert(rows.end(), row, row + width);
        }
        return rows;
    }

    static double dot(const Numbers& a, Index i, const Numbers& b, Index j, Index width) {
        double sum = 0;
        for (Index x = 0; x < width; ++x) sum += a[i * width + x] * b[j * width + x];
        return sum;
    }

    // [rows, inner] times [inner, width].
    static Numbers product(const Numbers& a, const Numbers& b, Index inner, Index width) {
        Numbers c(a.size() / inner * width, 0);
        for (Index i = 0; i < c.size(); ++i) {
            for (Index x = 0; x < inner; ++x) c[i] += a[i / width * inner + x] * b[x * width + i % width];
        }
        return c;
    }

    static void scale_rows(Numbers& x, const Numbers& factors, Index width) {
        for (Index i = 0; i < x.size(); ++i) x[i] *= factors[i / width];
    }

    void one_chunk(Index first, Index n, Index h, bool here, Numbers& S, Numbers& out) const {
        const auto at = [&](Site site, Numbers x) {
            const auto& sites = m_fault.sites;
            if (here && std::find(sites.begin(), sites.end(), site) != sites.end()) {
                m_fault.change(x, site >= Site::state_read ? m_dk : n,
                               x.size() / (site >= Site::state_read ? m_dk : n));
            }
            return x;
        };
        const auto Hk = static_cast<Index>(m_in.problem->dims.Hk);
        const auto Hv = static_cast<Index>(m_in.problem->dims.Hv);
        const Numbers q = rows_of(m_in.q.data(), first, n, Hk, m_in.key_head[h], m_dk);
        const Numbers k = rows_of(m_in.k.data(), first, n, Hk, m_in.key_head[h], m_dk);
        const Numbers beta = at(Site::beta, rows_of(m_in.beta.data(), first, n, Hv, h, 1));
        Numbers sums = rows_of(m_in.g.data(), first, n, Hv, h, 1);
        for (Index i = 1; i < n; ++i) sums[i] += sums[i - 1];
        const Numbers start = at(Site::sums_start, sums);
        const Numbers end = at(Site::sums_write, sums);

        const Numbers before = at(Site::state_read, S);
        Numbers KS = at(Site::KS, product(at(Site::k_state, k), before, m_dk, m_dv));
        Numbers QS = at(Site::QS, product(at(Site::q_state, q), before, m_dk, m_dv));
        Numbers write = beta;
        Numbers forget(n);
        Numbers read(n);
        Numbers insert(n);
        for (Index i = 0; i < n; ++i) {
            forget[i] = beta[i] * std::exp(start[i]);
            read[i] = m_in.scale * std::exp(start[i]);
            insert[i] = std::exp(end[n - 1] - end[i]);
        }
        Numbers rhs = at(Site::v, rows_of(m_in.v.data(), first, n, Hv, h, m_dv));
        scale_rows(rhs, at(Site::write, write), m_dv);
        scale_rows(KS, at(Site::forget, forget), m_dv);
        for (Index i = 0; i < rhs.size(); ++i) rhs[i] -= KS[i];
        const Numbers M =
            at(Site::M, matrix(at(Site::k_solve, k), at(Site::k_solve, k), at(Site::sums_solve, sums), beta, n, 0));
        const Numbers P = at(Site::P, matrix(at(Site::q_intra, q), at(Site::k_intra, k), at(Site::sums_intra, sums),
                                             Numbers(n, m_in.scale), n, 1));
        const Numbers U = at(Site::U, solved(M, at(Site::rhs, std::move(rhs)), n));
        Numbers o = at(Site::PU, product(P, at(Site::U_read, U), n, m_dv));
        scale_rows(QS, at(Site::read, read), m_dv);
        for (Index i = 0; i < o.size(); ++i) o[i] += QS[i];
        o = at(Site::out, std::move(o));
        for (Index i = 0; i < n; ++i) {
            std::copy_n(o.begin() + static_cast<std::ptrdiff_t>(i * m_dv), m_dv,
                        out.begin() + static_cast<std::ptrdiff_t>(((first + i) * Hv + h) * m_dv));
        }
        Numbers keys = at(Site::k_write, k);
        scale_rows(keys, at(Site::insert, insert), m_dk);
        const Numbers written = at(Site::U_write, U);
        Numbers after = at(Site::kept, before);
        for (Index x = 0; x < m_dk * m_dv; ++x) {
            after[x] *= std::exp(end[n - 1]);
            for (Index i = 0; i < n; ++i) after[x] += keys[i * m_dk + x / m_dv] * written[i * m_dv + x % m_dv];
        }
        S = at(Site::state, std::move(after));
    }

    // factors[i] a_i.b_j exp(sums[i] - sums[j]) for j < i + diagonal.
    Numbers matrix(const Numbers& a, const Numbers& b, const Numbers& sums, const Numbers& factors, Index n,
                   Index diagonal) const {
        Numbers m(n * n, 0);
        for (Index i = 0; i < n; ++i) {
            for (Index j = 0; j < i + diagonal; ++j)
                m[i * n + j] = factors[i] * dot(a, i, b, j, m_dk) * std::exp(sums[i] - sums[j]);
        }
        return m;
    }

    Numbers solved(const Numbers& M, Numbers x, Index n) const {
        for (Index i = 0; i < n; ++i) {
            for (Index j = 0; j < i; ++j) {
                for (Index c = 0; c < m_dv; ++c) x[i * m_dv + c] -= M[i * n + j] * x[j * m_dv + c];
            }
        }
        return x;
    }

    Prepared<double> m_in;
    const SitedFault& m_fault;
    Index m_chunk, m_dk = 0, m_dv = 0;
};

}  // namespace gdnctl::oracle::testing
