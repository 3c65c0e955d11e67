// How far the inputs themselves can carry an error: figures beside the verdict. The budgets do not need them; they
// measure what an error of one roundoff does.
#include <algorithm>
#include <cmath>

#include "gdnctl/oracle/gdn_compare.h"
#include "oracle/kernels/prepare.h"
#include "oracle/kernels/tasks.h"

namespace gdnctl::oracle {

namespace {

// One value head of one sequence, with its keys side by side.
struct Keys {
    std::size_t tokens = 0, dk = 0;
    std::vector<double> k, g, beta;

    double product(std::size_t i, std::size_t j) const {
        double sum = 0;
        for (std::size_t x = 0; x < dk; ++x) sum += k[i * dk + x] * k[j * dk + x];
        return sum;
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

// The largest product of alpha max(1, |1 - beta k.k|) over any run of tokens: no state grows by more between two.
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

// The largest sum of |.| over a row of (I + M)^-1 of one chunk, whose rows are e_i - sum_j M_ij row_j.
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

}  // namespace

Condition condition_of(const GdnReference& r, int threads) {
    const GdnProblem& p = r.problem;
    const auto heads = static_cast<std::size_t>(p.dims.Hv);
    // Longer chunks would take longer than all the rest.
    const auto chunk = std::min<std::size_t>(static_cast<std::size_t>(r.contract.value.chunk), 256);
    const Prepared<double> in = prepare<double>(p, r.contract.value, threads);
    std::vector<Condition> lanes(p.sequences.size() * heads);
    run_tasks(lanes.size(), threads, [&] {
        return [&](std::size_t lane) {
            const Keys keys = keys_of(p, in, lane / heads, lane % heads);
            Condition& c = lanes[lane];
            c.growth_factor = growth_of(keys);
            for (std::size_t first = 0; first < keys.tokens; first += chunk) {
                c.inverse_norm =
                    std::max(c.inverse_norm, inverse_norm(keys, first, std::min(chunk, keys.tokens - first)));
            }
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
