// Irregularly wrong entries of M, of its inverse, of P, or of Gamma: finds which of these makes the observed errors
// most likely, assuming relative changes of one size.
//
// The errors are L U with L lower triangular. With A = P (I + M)^-1 and relative changes D of the entries,
// to first order:
//   M: L = -A (M o D)    the inverse: L (I + M)^-1 = P (T o D)    P: L = P o D    Gamma: L = P o D - A (M o D)
// So each column of L is normally distributed, with a covariance that shows which of them it was.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "oracle/gdn/compare/stage_fit.h"
#include "oracle/gdn/compare/stage_spans.h"
#include "oracle/judge/sums.h"

namespace gdnctl::oracle {

namespace {

using Index = std::size_t;

class Entries {
public:
    explicit Entries(const Section& s) : m_c(s.honest[s.wrong]), m_n(m_c.rows) {
        Reals unit(m_n * m_n, 0);
        for (Index i = 0; i < m_n; ++i) unit[i * m_n + i] = 1;
        OpenChunk square = m_c;
        square.columns = m_n;
        m_inverse = solved(square, std::move(unit));
        m_a = times_p(square, m_inverse);
        m_rows = std::min(m_n, m_c.columns > 4 ? m_c.columns - 4 : 0);
        find_sums(s);
    }

    EntryPrices prices() const {
        // Column j of the map from changes of column j to column j of L.
        const auto of_m = [this](Index i, Index k, Index j) { return -m_a[i * m_n + k] * m_c.M[k * m_n + j]; };
        const auto of_p = [this](Index i, Index k, Index j) { return i == k ? m_c.P[i * m_n + j] : 0; };
        const auto of_inverse = [this](Index i, Index k, Index j) {
            return m_c.P[i * m_n + k] * m_inverse[k * m_n + j];
        };
        const auto of_both = [&](Index i, Index k, Index j) { return of_p(i, k, j) + of_m(i, k, j); };
        const Reals through = product(m_sums, m_inverse, m_n, m_n);
        return {std::min(price(m_sums, of_m), price(through, of_inverse)), price(m_sums, of_p), price(m_sums, of_both)};
    }

private:
    // Finds L, and the noise of its entries.
    void find_sums(const Section& s) {
        const Index width = m_c.columns;
        const Reals errors = honest_errors(s, s.wrong, s.truths[s.wrong]);
        const Reals U = solved(m_c, right_hand_side(m_c));
        const auto row = [&](const Reals& x, Index i) { return std::span(x).subspan(i * width, width); };
        m_sums.assign(m_n * m_n, 0);
        m_first = m_rows;
        for (Index i = 0; i < m_rows; ++i) {
            if (m_first == m_rows && rms_of({row(errors, i).begin(), row(errors, i).end()}) > k_ok_band) m_first = i;
            std::vector<Reals> a(i + 1, Reals(i + 1));
            Reals b(i + 1);
            for (Index j = 0; j <= i; ++j) {
                b[j] = -s.out_unit * inner(row(U, j), row(errors, i));  // the dump minus the truth
                for (Index k = 0; k <= j; ++k) a[j][k] = a[k][j] = inner(row(U, j), row(U, k));
            }
            const Reals x = damped_solution(a, b, 0);
            for (Index j = 0; j < x.size(); ++j) m_sums[i * m_n + j] = x[j];
        }
        m_noise = 4 * s.out_unit / std::max(rms_of(U) * std::sqrt(static_cast<double>(width)), 1e-300);
    }

    // Minus twice the log likelihood, for the size of the changes that maximises it.
    template <class Map>
    double price(const Reals& sums, const Map& map) const {
        constexpr std::array k_sizes = {1e-3, 4e-3, 0.015, 0.06, 0.25, 1.0, 4.0};
        std::array<double, k_sizes.size()> prices{};
        for (Index j = 0; j < m_rows; ++j) {
            const Index begin = std::max(j, m_first);
            const Index count = m_rows - begin;
            std::vector<Reals> rows(count, Reals(count, 0));
            Reals target(count);
            for (Index i = 0; i < count; ++i) {
                for (Index k = 0; k <= i; ++k) rows[i][k] = map(begin + i, begin + k, j);
                target[i] = sums[(begin + i) * m_n + j];
            }
            std::vector<Reals> squares(count, Reals(count));
            for (Index i = 0; i < count; ++i) {
                for (Index k = 0; k <= i; ++k) squares[i][k] = squares[k][i] = inner(rows[i], rows[k]);
            }
            for (Index size = 0; size < k_sizes.size(); ++size)
                prices[size] += column_price(squares, target, k_sizes[size]);
        }
        return *std::min_element(prices.begin(), prices.end());
    }

    double column_price(std::vector<Reals> covariance, const Reals& target, double size) const {
        // In units of the noise.
        const double scale = size * size / (m_noise * m_noise);
        for (Index i = 0; i < covariance.size(); ++i) {
            for (double& x : covariance[i]) x *= scale;
            covariance[i][i] += 1;
        }
        double log_determinant = 0;
        const Reals x = damped_solution(covariance, target, 0, &log_determinant);
        if (x.size() != target.size()) return 1e30;
        return log_determinant + inner(x, target) / (m_noise * m_noise);
    }

    const OpenChunk& m_c;
    Index m_n, m_rows = 0, m_first = 0;
    Reals m_inverse, m_a, m_sums;
    double m_noise = 1;
};

}  // namespace

EntryPrices entry_prices(const Section& s) { return Entries(s).prices(); }

}  // namespace gdnctl::oracle
