// Two small samples of step times: how far apart they are, and whether chance explains it.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "trace/diff/diff.h"

namespace gdnctl::trace {

namespace {

// Sums of sums of picoseconds do not fit into 64 bits.
__extension__ using Wide = __int128;

constexpr double k_most_splits = 200'000;  // of the exact test
constexpr int k_draws = 20'000;            // of the Monte Carlo test

// The number of pairs (i, j) with b[j] - a[i] <= `limit`. Both lists are sorted.
std::int64_t pairs_up_to(const std::vector<Ps>& a, const std::vector<Ps>& b, Ps limit) {
    std::int64_t pairs = 0;
    std::size_t j = 0;
    for (const Ps low : a) {
        while (j < b.size() && b[j] - low <= limit) ++j;
        pairs += static_cast<std::int64_t>(j);
    }
    return pairs;
}

// The `rank`-th smallest (from 1) of all differences b[j] - a[i] of two sorted lists, in time O((n + m) log range) and
// without storing them.
Ps difference_at(const std::vector<Ps>& a, const std::vector<Ps>& b, std::int64_t rank) {
    Ps low = b.front() - a.back();
    Ps high = b.back() - a.front();
    while (low < high) {
        const Ps middle = static_cast<Ps>((static_cast<Wide>(low) + high) >> 1);
        if (pairs_up_to(a, b, middle) >= rank) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

// (a + b) / 2, halves away from zero, so that the mean of -a and -b is the negative of it.
Ps rounded_middle(Ps a, Ps b) {
    const Wide sum = static_cast<Wide>(a) + b;
    return static_cast<Ps>((sum + (sum < 0 ? -1 : 1)) / 2);
}

// The largest k with P(U < k) <= 2.5 % under the null hypothesis, where U is the Mann-Whitney statistic of samples of
// size n and m: the ends of a 95 % interval are the k-th smallest and the k-th largest difference. At least 1: with 3 a
// side no interval reaches 95 %, and the widest one is given.
std::int64_t interval_rank(std::size_t n, std::size_t m) {
    constexpr double k_tail = 0.025, k_normal_quantile = 1.959963984540054;
    const auto pairs = static_cast<double>(n) * static_cast<double>(m);
    if (pairs > 400) {
        const double sd = std::sqrt(pairs * static_cast<double>(n + m + 1) / 12);
        return std::max<std::int64_t>(1, std::llround(pairs / 2 - k_normal_quantile * sd));
    }
    // ways[i][u]: orders of i values of one sample and j of the other with U = u, for the current j.
    std::vector<std::vector<double>> ways(n + 1, std::vector<double>(n * m + 1, 0));
    for (auto& row : ways) row[0] = 1;
    for (std::size_t j = 1; j <= m; ++j) {
        for (std::size_t i = 1; i <= n; ++i) {
            // The largest value belongs to the first sample, and exceeds all j of the other, or to the second one.
            for (std::size_t u = n * m; u >= j; --u) ways[i][u] += ways[i - 1][u - j];
        }
    }
    double all = 0;
    for (const double count : ways[n]) all += count;
    std::int64_t k = 0;
    double below = 0;
    for (const double count : ways[n]) {
        below += count;
        if (below > k_tail * all) break;
        ++k;
    }
    return std::max<std::int64_t>(1, k);
}

// The permutation test of the difference of means. A split gives `m_size` of the pooled values to one sample; the
// difference of means is (sum * N - total * size) / (size * (N - size)), of which only the numerator varies.
class Splits {
public:
    Splits(const std::vector<Ps>& before, const std::vector<Ps>& after) {
        const std::vector<Ps>& smaller = before.size() <= after.size() ? before : after;
        m_size = smaller.size();
        m_pool = before;
        m_pool.insert(m_pool.end(), after.begin(), after.end());
        // The same order and base whichever sample comes first, so that the test is symmetric.
        std::sort(m_pool.begin(), m_pool.end());
        const Ps base = m_pool.front();
        for (Ps& value : m_pool) m_total += (value -= base);
        Wide sum = 0;
        for (const Ps value : smaller) sum += value - base;
        m_observed = distance(sum);
    }

    std::optional<double> p() {
        if (m_pool.size() < 3) return std::nullopt;
        const double all = count();
        if (all <= k_most_splits) {
            visit(0, m_size, 0);
            return static_cast<double>(m_hits) / all;
        }
        draw();
        return static_cast<double>(m_hits + 1) / (k_draws + 1);
    }

private:
    double count() const {
        double all = 1;
        for (std::size_t i = 1; i <= m_size && all <= k_most_splits; ++i) {
            all = std::round(all * static_cast<double>(m_pool.size() - m_size + i) / static_cast<double>(i));
        }
        return all;
    }
    Wide distance(Wide sum) const {
        const Wide d = sum * static_cast<Wide>(m_pool.size()) - m_total * static_cast<Wide>(m_size);
        return d < 0 ? -d : d;
    }
    void judge(Wide sum) {
        if (distance(sum) >= m_observed) ++m_hits;
    }
    void visit(std::size_t from, std::size_t wanted, Wide sum) {
        if (wanted == 0) return judge(sum);
        for (std::size_t i = from; i + wanted <= m_pool.size(); ++i) visit(i + 1, wanted - 1, sum + m_pool[i]);
    }
    void draw() {
        std::uint64_t state = 0x9e3779b97f4a7c15;  // xorshift64: the same draws on every machine
        for (int n = 0; n < k_draws; ++n) {
            Wide sum = 0;
            for (std::size_t i = 0; i < m_size; ++i) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                const std::uint64_t left = m_pool.size() - i;
                std::swap(m_pool[i], m_pool[i + ((state >> 32) * left >> 32)]);
                sum += m_pool[i];
            }
            judge(sum);
        }
    }

    std::vector<Ps> m_pool;
    std::size_t m_size = 0;
    Wide m_total = 0, m_observed = 0;
    std::int64_t m_hits = 0;
};

}  // namespace

DiffStats shift_of(const std::vector<Ps>& before, const std::vector<Ps>& after) {
    DiffStats stats;
    stats.n_before = static_cast<std::int64_t>(before.size());
    stats.n_after = static_cast<std::int64_t>(after.size());
    if (before.empty() || after.empty()) return stats;
    std::vector<Ps> a = before;
    std::vector<Ps> b = after;
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    const std::int64_t pairs = stats.n_before * stats.n_after;
    const std::int64_t k = interval_rank(a.size(), b.size());
    stats.shift_ps = rounded_middle(difference_at(a, b, (pairs + 1) / 2), difference_at(a, b, pairs / 2 + 1));
    stats.ci_low_ps = difference_at(a, b, k);
    stats.ci_high_ps = difference_at(a, b, pairs + 1 - k);
    stats.p = Splits(before, after).p();
    return stats;
}

}  // namespace gdnctl::trace
