#include "oracle/gdn/cases/golden.h"

#include <cmath>

namespace gdnctl::oracle {

namespace {

using Formula = double (*)(double, double, double);

// A row-major array of shape [a, b, c] from a formula in its indices.
std::vector<double> filled(std::int64_t a, std::int64_t b, std::int64_t c, Formula formula) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < a; ++i) {
        for (std::int64_t j = 0; j < b; ++j) {
            for (std::int64_t k = 0; k < c; ++k) {
                values.push_back(formula(static_cast<double>(i), static_cast<double>(j), static_cast<double>(k)));
            }
        }
    }
    return values;
}

void add(TensorFile& file, std::string_view name, const std::vector<double>& values, Shape shape) {
    file.tensors.push_back({std::string(name), from_f64(values, std::move(shape), DType::f64)});
}

TensorFile hand_inputs(bool with_state) {
    TensorFile file;
    add(file, "q", {1, 1, 1, 0, 2, -1}, {1, 3, 1, 2});
    add(file, "k", {1, 0, .6, .8, 0, 1}, {1, 3, 1, 2});
    add(file, "v", {2, 0, 1, 1, -1, 0, 0, 4, 2}, {1, 3, 1, 3});
    add(file, "g", {.5, .5, 1}, {1, 3, 1});  // alpha, by the case's contract
    add(file, "beta", {1, .5, .75}, {1, 3, 1});
    if (with_state) add(file, "initial_state", {1, 0, 0, 0, 2, 0}, {1, 1, 2, 3});
    return file;
}

TensorFile g1_inputs() {
    constexpr std::int64_t T = 70, Hk = 2, Hv = 4, dk = 16, dv = 8;
    TensorFile file;
    add(file, "q",
        filled(T, Hk, dk, [](double t, double h, double i) { return std::sin(.37 * t + 1.1 * h + .71 * i); }),
        {1, T, Hk, dk});
    add(file, "k",
        filled(T, Hk, dk, [](double t, double h, double i) { return std::cos(.53 * t + .9 * h + .29 * i * i); }),
        {1, T, Hk, dk});
    add(file, "v",
        filled(T, Hv, dv, [](double t, double h, double j) { return std::sin(.19 * t + .7 * h + 1.3 * j + .5); }),
        {1, T, Hv, dv});
    add(file, "a", filled(T, Hv, 1, [](double t, double h, double) { return std::sin(.11 * t + .3 * h); }), {1, T, Hv});
    add(file, "b", filled(T, Hv, 1, [](double t, double h, double) { return 2 * std::cos(.17 * t + .6 * h); }),
        {1, T, Hv});
    add(file, "A_log", filled(Hv, 1, 1, [](double h, double, double) { return -2 + .5 * h; }), {Hv});
    add(file, "dt_bias", filled(Hv, 1, 1, [](double h, double, double) { return .25 * h - .5; }), {Hv});
    add(file, "initial_state",
        filled(Hv, dk, dv, [](double h, double i, double j) { return .1 * std::sin(.4 * i - .9 * j + h); }),
        {1, Hv, dk, dv});
    return file;
}

}  // namespace

TensorFile golden_inputs(const GdnCase& c) {
    if (c.name.starts_with("t_hand")) return hand_inputs(c.name == "t_hand");
    return g1_inputs();
}

TensorFile golden_cotangents(const GdnCase& c) {
    TensorFile file;
    if (!c.name.starts_with("g1")) return file;
    const GdnDims& d = c.dims;
    add(file, "d_out",
        filled(d.T, d.Hv, d.dv, [](double t, double h, double j) { return std::cos(.23 * t - .4 * h + .8 * j); }),
        {1, d.T, d.Hv, d.dv});
    add(file, "d_final_state",
        filled(d.Hv, d.dk, d.dv, [](double h, double i, double j) { return .05 * std::cos(.3 * i + .2 * j - h); }),
        {1, d.Hv, d.dk, d.dv});
    return file;
}

}  // namespace gdnctl::oracle
