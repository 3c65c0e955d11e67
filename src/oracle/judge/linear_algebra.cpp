#include "oracle/judge/linear_algebra.h"

#include <numeric>

namespace gdnctl::oracle {

namespace {

double inner(const std::vector<double>& a, const std::vector<double>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

}  // namespace

// Gaussian elimination on the normal equations.
std::vector<double> least_squares(const std::vector<std::vector<double>>& terms, const std::vector<double>& target) {
    const std::size_t n = terms.size();
    std::vector<std::vector<double>> a(n, std::vector<double>(n + 1, 0));
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < n; ++j) a[i][j] = inner(terms[i], terms[j]);
        a[i][n] = inner(terms[i], target);
        if (a[i][i] == 0) a[i][i] = a[i][n] = 1;
    }
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t row = i + 1; row < n; ++row) {
            const double factor = a[i][i] == 0 ? 0 : a[row][i] / a[i][i];
            for (std::size_t j = i; j <= n; ++j) a[row][j] -= factor * a[i][j];
        }
    }
    std::vector<double> x(n, 1);
    for (std::size_t i = n; i-- > 0;) {
        x[i] = a[i][n];
        for (std::size_t j = i + 1; j < n; ++j) x[i] -= a[i][j] * x[j];
        x[i] = a[i][i] == 0 ? 1 : x[i] / a[i][i];
    }
    return x;
}

std::vector<double> combined(const std::vector<std::vector<double>>& terms, const std::vector<double>& factors) {
    std::vector<double> sum(terms.front().size(), 0);
    for (std::size_t t = 0; t < terms.size(); ++t) {
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += factors[t] * terms[t][i];
    }
    return sum;
}

}  // namespace gdnctl::oracle
