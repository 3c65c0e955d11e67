// How much the inputs themselves amplify an error: numbers reported with the verdict. Budgets measure the effect of one
// roundoff, and only use the norm of the inverse where much is lost.
#include "oracle/gdn/compare/condition.h"

#include <algorithm>
#include <cmath>

#include "oracle/gdn/kernels/prepare.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle {

namespace {

// One value head of one sequence, with its keys contiguous.
struct Keys {
    std::size_t tokens = 0, dk = 0;
    std::vector<double> k, g, beta;

    // In four sums, which a processor can add in parallel.
    double product(std::size_t i, std::size_t j) const {
        const double *a = k.data() + i * dk, *b = k.data() + j * dk;
        double sums[4] = {};
        std::size_t x = 0;
        for (; x + 4 <= dk; x += 4) {
            for (std::size_t y = 0; y < 4; ++y) sums[y] += a[x + y] * b[x + y];
        }
        for (; x < dk; ++x) sums[0] += a[x] * b[x];
        return sums[0] + sums[1] + (sums[2] + sums[3]);
    }
};

Keys keys_of(const GdnProblem& p, const Prepared<double>& in, std::size_t n, std::size_t head) {
    Keys keys;
    const auto begin = static_cast<std::size_t>(p.sequences[n].begin);
    const auto Hk = static_cast<std::size_t>(p.dims.Hk);
    const auto Hv = static_cast<std::size_t>(p.dims.Hv);
    keys.tokens = static_cast<std::size_t>(p.sequences[n].end) - begin;
    keys.dk = static_cast<std::size_t>(p.dims.dk);
    for (std::size_t row = begin; row < begin + keys.tokens; ++row) {
        const auto at = in.k.begin() + static_cast<std::ptrdiff_t>((row * Hk + in.key_head[head]) * keys.dk);
        keys.k.insert(keys.k.end(), at, at + static_cast<std::ptrdiff_t>(keys.dk));
        keys.g.push_back(in.g[row * Hv + head]);
        keys.beta.push_back(in.beta[row * Hv + head]);
    }
    return keys;
}

// The largest product of alpha max(1, |1 - beta k.k|) over any run of tokens: an upper bound on the growth of the
// state.
double growth_of(const Keys& keys) {
    double log = 0;
    double largest = 0;
    for (std::size_t t = 0; t < keys.tokens; ++t) {
        const double factor = std::max(1.0, std::fabs(1 - keys.beta[t] * keys.product(t, t)));
        log = std::max(0.0, log + keys.g[t] + std::log(factor));
        largest = std::max(largest, log);
    }
    return std::exp(largest);
}

// The largest row sum of |.| of (I + M)^-1 for one chunk; its rows are e_i - sum_j M_ij row_j.
double inverse_norm(const Keys& keys, std::size_t first, std::size_t rows) {
    std::vector<double> inverse(rows * rows, 0);
    double largest = 0;
    for (std::size_t i = 0; i < rows; ++i) {
        double* row = inverse.data() + i * rows;
        row[i] = 1;
        double decay = 0;
        for (std::size_t j = i; j-- > 0;) {
            decay += keys.g[first + j + 1];
            const double M = keys.beta[first + i] * keys.product(first + i, first + j) * std::exp(decay);
            if (M == 0) continue;
            for (std::size_t x = 0; x <= j; ++x) row[x] -= M * inverse[j * rows + x];
        }
        double sum = 0;
        for (std::size_t x = 0; x <= i; ++x) sum += std::fabs(row[x]);
        largest = std::isnan(sum) ? HUGE_VAL : std::max(largest, sum);
    }
    return largest;
}

double inverse_norm_of(const Keys& keys, int chunk) {
    // Longer chunks would dominate the run time.
    const auto C = std::min<std::size_t>(static_cast<std::size_t>(chunk), 256);
    double norm = 1;
    for (std::size_t first = 0; first < keys.tokens; first += C) {
        norm = std::max(norm, inverse_norm(keys, first, std::min(C, keys.tokens - first)));
    }
    return norm;
}

}  // namespace

std::vector<double> inverse_norms(const GdnProblem& p, const GdnContract& c, const std::vector<std::size_t>& lanes,
                                  int threads) {
    std::vector<double> norms(lanes.size());
    if (lanes.empty()) return norms;
    const auto heads = static_cast<std::size_t>(p.dims.Hv);
    const Prepared<double> in = prepare<double>(p, c, threads);
    run_tasks(lanes.size(), threads, [&] {
        return [&](std::size_t i) {
            norms[i] = inverse_norm_of(keys_of(p, in, lanes[i] / heads, lanes[i] % heads), c.chunk);
        };
    });
    return norms;
}

Condition condition_of(const GdnReference& r, int threads) {
    const GdnProblem& p = r.problem;
    const auto heads = static_cast<std::size_t>(p.dims.Hv);
    const Prepared<double> in = prepare<double>(p, r.contract.value, threads);
    std::vector<Condition> lanes(p.sequences.size() * heads);
    run_tasks(lanes.size(), threads, [&] {
        return [&](std::size_t lane) {
            const Keys keys = keys_of(p, in, lane / heads, lane % heads);
            Condition& c = lanes[lane];
            c.growth_factor = growth_of(keys);
            c.inverse_norm = inverse_norm_of(keys, r.contract.value.chunk);
        };
    });
    Condition worst;
    for (const Condition& c : lanes) {
        worst.growth_factor = std::max(worst.growth_factor, c.growth_factor);
        worst.inverse_norm = std::max(worst.inverse_norm, c.inverse_norm);
    }
    return worst;
}

}  // namespace gdnctl::oracle
