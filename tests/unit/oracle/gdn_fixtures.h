// Golden Gated DeltaNet problems with closed-form inputs, and small helpers around them.
#pragma once

#include <cmath>
#include <vector>

#include "oracle/gdn/contract/problem.h"
#include "oracle/gdn/kernels/kernels.h"

namespace gdnctl::oracle::testing {

// Fills a row-major array from a function of its indices.
template <class F>
std::vector<double> filled(std::size_t a, std::size_t b, std::size_t c, const F& f) {
    std::vector<double> values;
    for (std::size_t i = 0; i < a; ++i) {
        for (std::size_t j = 0; j < b; ++j) {
            for (std::size_t k = 0; k < c; ++k) {
                values.push_back(f(static_cast<double>(i), static_cast<double>(j), static_cast<double>(k)));
            }
        }
    }
    return values;
}

// Three tokens worked out by hand: dk=2, dv=3, scale 1, no l2norm, gates given as alpha.
inline GdnProblem hand_problem(bool with_state) {
    GdnProblem p;
    p.dims = {1, 3, 1, 1, 2, 3};
    p.sequences = {{0, 3}};
    p.q = {1, 1, 1, 0, 2, -1};
    p.k = {1, 0, .6, .8, 0, 1};
    p.v = {2, 0, 1, 1, -1, 0, 0, 4, 2};
    p.gate = {.5, .5, 1};
    p.beta = {1, .5, .75};
    if (with_state) p.initial_state = {1, 0, 0, 0, 2, 0};
    return p;
}

inline GdnContract hand_contract() {
    GdnContract c;
    c.g_kind = GateKind::alpha;
    c.l2norm = L2Norm::off;
    c.scale = 1;
    return c;
}

// T=70, Hk=2, Hv=4, dk=16, dv=8, raw gates.
inline GdnProblem g1_problem() {
    GdnProblem p;
    p.dims = {1, 70, 2, 4, 16, 8};
    p.sequences = {{0, 70}};
    p.q = filled(70, 2, 16, [](double t, double h, double i) { return std::sin(.37 * t + 1.1 * h + .71 * i); });
    p.k = filled(70, 2, 16, [](double t, double h, double i) { return std::cos(.53 * t + .9 * h + .29 * i * i); });
    p.v = filled(70, 4, 8, [](double t, double h, double j) { return std::sin(.19 * t + .7 * h + 1.3 * j + .5); });
    p.gate = filled(70, 4, 1, [](double t, double h, double) { return std::sin(.11 * t + .3 * h); });
    p.beta = filled(70, 4, 1, [](double t, double h, double) { return 2 * std::cos(.17 * t + .6 * h); });
    p.A_log = filled(4, 1, 1, [](double h, double, double) { return -2 + .5 * h; });
    p.dt_bias = filled(4, 1, 1, [](double h, double, double) { return .25 * h - .5; });
    p.initial_state = filled(4, 16, 8, [](double h, double i, double j) { return .1 * std::sin(.4 * i - .9 * j + h); });
    return p;
}

inline GdnContract g1_contract() {
    GdnContract c;
    c.head_map = HeadMap::interleaved;
    c.g_kind = GateKind::raw;
    c.beta_kind = BetaKind::logit;
    return c;
}

inline double sum_of(const std::vector<double>& x) {
    double sum = 0;
    for (const double value : x) sum += value;
    return sum;
}

inline double sum_of_squares(const std::vector<double>& x) {
    double sum = 0;
    for (const double value : x) sum += value * value;
    return sum;
}

inline double max_abs(const std::vector<double>& x) {
    double largest = 0;
    for (const double value : x) largest = std::max(largest, std::fabs(value));
    return largest;
}

inline double max_difference(const std::vector<double>& x, const std::vector<double>& y) {
    double largest = 0;
    for (std::size_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::fabs(x[i] - y[i]));
    return x.size() == y.size() ? largest : HUGE_VAL;
}

}  // namespace gdnctl::oracle::testing
