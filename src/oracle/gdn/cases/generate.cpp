// The inputs of a case: drawn at random, or the golden ones in closed form, whose results are known from other sources
// (docs/reference/oracle-methods.md, "Generated cases").
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "oracle/gdn/cases/cases.h"
#include "oracle/tensor/random.h"

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

// Inputs of the cases t_hand, t_hand_no_state and g1*.
TensorFile golden_inputs(const GdnCase& c) {
    if (c.name.starts_with("t_hand")) return hand_inputs(c.name == "t_hand");
    return g1_inputs();
}

// d_out and d_final_state of the cases g1*; no tensor for others.
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

// One stream per tensor, so that changing one recipe does not change the other tensors.
enum Stream : std::uint64_t {
    stream_q = 1,
    stream_k,
    stream_v,
    stream_g,
    stream_beta,
    stream_state,
    stream_raw,
    stream_logit
};

// exp without libm, the same on every machine: a series near 0, then repeated squaring.
double own_exp(double x) {
    if (x < -700) return 0;
    const double small = x * 0x1p-10;
    double term = 1;
    double sum = 1;
    for (int n = 1; n <= 8; ++n) {
        term *= small / n;
        sum += term;
    }
    for (int i = 0; i < 10; ++i) sum *= sum;
    return sum;
}

class Generator {
public:
    explicit Generator(const GdnCase& c) : m_case(c), m_rows(static_cast<std::size_t>(c.dims.B * c.dims.T)) {}

    TensorFile run() {
        const GdnDims& d = m_case.dims;
        add_tokens("q", {d.Hk, d.dk}, queries(), m_case.dtype);
        add_tokens("k", {d.Hk, d.dk}, keys(), m_case.dtype);
        std::vector<double> v = normals(stream_v, m_rows * static_cast<std::size_t>(d.Hv * d.dv), m_case.value_scale);
        pad(v);
        add_tokens("v", {d.Hv, d.dv}, v, m_case.dtype);
        const bool raw = of_raw_recipe() || says("g_kind=raw");
        const bool logit = says("beta_kind=logit") || says("beta_kind=2*logit");
        if (raw) {
            add_raw_gates();
        } else {
            std::vector<double> g = gates();
            if (says("g_kind=alpha")) std::transform(g.begin(), g.end(), g.begin(), own_exp);
            add_tokens("g", {d.Hv}, g, m_case.dtype);
        }
        if (!logit) {
            add_tokens("beta", {d.Hv}, betas(), m_case.dtype);
        } else if (!raw) {
            std::vector<double> b = normals(stream_logit, m_rows * static_cast<std::size_t>(d.Hv), 1);
            pad(b);
            add_tokens("b", {d.Hv}, b, m_case.dtype);
        }
        add_state();
        if (!m_case.cu_seqlens.empty()) {
            m_file.tensors.push_back(
                {"cu_seqlens", from_i64(m_case.cu_seqlens, {static_cast<std::int64_t>(m_case.cu_seqlens.size())})});
        }
        return std::move(m_file);
    }

private:
    bool of_raw_recipe() const { return m_case.gate == GateRecipe::raw || m_case.gate == GateRecipe::raw_extreme; }

    // Whether the state is cleared at token t of a batch row. A chunk of 64 passes some of its state on.
    bool reset_at(std::size_t t) const {
        const auto last = static_cast<std::size_t>(m_case.dims.T) - 1;
        return m_case.gate == GateRecipe::resets && t % 32 == std::min<std::size_t>(8, last);
    }

    bool says(std::string_view setting) const {
        return std::find(m_case.contract.begin(), m_case.contract.end(), setting) != m_case.contract.end();
    }

    std::vector<double> normals(Stream stream, std::size_t count, double scale) const {
        Random random(m_case.seed, stream);
        std::vector<double> values(count);
        for (double& x : values) x = scale * random.normal();
        return values;
    }

    // Fills tokens after the last sequence, which no kernel may read.
    void pad(std::vector<double>& values) const {
        if (!m_case.nan_padding) return;
        const std::size_t used = values.size() / m_rows * static_cast<std::size_t>(m_case.cu_seqlens.back());
        std::fill(values.begin() + static_cast<std::ptrdiff_t>(used), values.end(),
                  std::numeric_limits<double>::quiet_NaN());
    }

    static void normalise(std::vector<double>& values, std::size_t width) {
        for (std::size_t row = 0; row < values.size(); row += width) {
            double sum = 0;
            for (std::size_t i = 0; i < width; ++i) sum += values[row + i] * values[row + i];
            const double length = std::sqrt(sum);
            for (std::size_t i = 0; i < width; ++i) values[row + i] /= length;
        }
    }

    std::vector<double> queries() const {
        const auto width = static_cast<std::size_t>(m_case.dims.dk);
        const double scale = m_case.keys == KeyRecipe::zero ? 0 : 1;
        std::vector<double> q = normals(stream_q, m_rows * static_cast<std::size_t>(m_case.dims.Hk) * width, scale);
        if (m_case.keys != KeyRecipe::normal && m_case.keys != KeyRecipe::zero) normalise(q, width);
        pad(q);
        return q;
    }

    std::vector<double> keys() const {
        const auto width = static_cast<std::size_t>(m_case.dims.dk);
        const std::size_t row = static_cast<std::size_t>(m_case.dims.Hk) * width;
        std::vector<double> k = normals(stream_k, m_rows * row, 1);
        for (std::size_t i = 0; i < k.size(); ++i) {
            // First token of this batch row, same head and dimension.
            const double first = k[i - i % row - (i / row % static_cast<std::size_t>(m_case.dims.T)) * row + i % row];
            switch (m_case.keys) {
                case KeyRecipe::normal:
                case KeyRecipe::unit:
                case KeyRecipe::tiny: break;
                case KeyRecipe::correlated:
                    // The first token is still needed as drawn, hence its mix of zero.
                    if (i / row % static_cast<std::size_t>(m_case.dims.T) != 0) k[i] = first + m_case.key_mix * k[i];
                    break;
                case KeyRecipe::identical: k[i] = first; break;
                case KeyRecipe::zero: k[i] = 0; break;
            }
        }
        if (m_case.keys != KeyRecipe::normal && m_case.keys != KeyRecipe::zero) normalise(k, width);
        if (m_case.keys == KeyRecipe::tiny) {
            for (double& x : k) x *= 1e-4;
        }
        pad(k);
        return k;
    }

    std::vector<double> gates() const {
        const auto heads = static_cast<std::size_t>(m_case.dims.Hv);
        std::vector<double> g(m_rows * heads);
        Random random(m_case.seed, stream_g);
        for (std::size_t i = 0; i < g.size(); ++i) {
            const std::size_t t = i / heads % static_cast<std::size_t>(m_case.dims.T);
            switch (m_case.gate) {
                case GateRecipe::both_signs: g[i] = -0.1 * random.normal(); break;
                case GateRecipe::constant: g[i] = m_case.gate_value; break;
                case GateRecipe::strong: g[i] = random.uniform(-8, -2); break;
                default: g[i] = -0.1 * std::fabs(random.normal()); break;
            }
            if (m_case.gate == GateRecipe::sparse && t % 50 == 25) g[i] = m_case.gate_value;
            if (m_case.gate == GateRecipe::tails && t % 8 == 5) g[i] = random.uniform(-103, -87);
            if (reset_at(t)) g[i] = -200;
            if (m_case.gate == GateRecipe::once && t == static_cast<std::size_t>(m_case.dims.T) / 2)
                g[i] = m_case.gate_value;
        }
        pad(g);
        return g;
    }

    std::vector<double> betas() const {
        std::vector<double> beta(m_rows * static_cast<std::size_t>(m_case.dims.Hv));
        Random random(m_case.seed, stream_beta);
        for (double& b : beta) {
            switch (m_case.beta) {
                case BetaRecipe::uniform: b = random.uniform(); break;
                case BetaRecipe::constant: b = m_case.beta_value; break;
                case BetaRecipe::extremes: b = random.bits() % 2 == 0 ? 1e-4 : 1 - 1e-6; break;
                case BetaRecipe::corners: b = static_cast<double>(random.bits() % 3); break;
            }
        }
        pad(beta);
        return beta;
    }

    void add_raw_gates() {
        const auto heads = static_cast<std::size_t>(m_case.dims.Hv);
        Random random(m_case.seed, stream_raw);
        std::vector<double> A_log(heads);
        const bool strong = m_case.gate == GateRecipe::strong;
        for (double& x : A_log) {
            x = of_raw_recipe() ? random.uniform(-3, 2.75) : strong ? random.uniform(1, 2.5) : random.uniform(-4, -2);
        }
        std::vector<double> a(m_rows * heads);
        std::vector<double> b(m_rows * heads);
        for (double& x : a) x = random.normal();
        for (double& x : b) x = random.normal();
        if (m_case.gate == GateRecipe::raw_extreme) {
            constexpr double k_a[] = {0, 100, -100, 19.9, 20, 20.1};
            for (std::size_t i = 0; i < a.size(); ++i) a[i] = k_a[i / heads % std::size(k_a)];
            A_log.back() = 88;
        }
        for (std::size_t i = 0; i < a.size(); ++i) {
            if (reset_at(i / heads % static_cast<std::size_t>(m_case.dims.T))) a[i] = 1e4;
        }
        pad(a);
        pad(b);
        add_tokens("a", {m_case.dims.Hv}, a, DType::f32);
        if (says("beta_kind=logit") || says("beta_kind=2*logit")) add_tokens("b", {m_case.dims.Hv}, b, DType::f32);
        add("A_log", {m_case.dims.Hv}, A_log, DType::f32);
        add("dt_bias", {m_case.dims.Hv}, std::vector<double>(heads, 1), DType::f32);
    }

    void add_state() {
        if (m_case.state_scale == 0 && !m_case.zero_state) return;
        const GdnDims& d = m_case.dims;
        const auto n = m_case.cu_seqlens.empty() ? d.B : static_cast<std::int64_t>(m_case.cu_seqlens.size()) - 1;
        const std::vector<double> state =
            normals(stream_state, static_cast<std::size_t>(n * d.Hv * d.dk * d.dv), m_case.state_scale);
        const bool swapped = says("state_layout=B,H,V,K");
        add("initial_state", swapped ? Shape{n, d.Hv, d.dv, d.dk} : Shape{n, d.Hv, d.dk, d.dv}, state,
            m_case.state_dtype);
    }

    void add_tokens(std::string_view name, Shape rest, const std::vector<double>& values, DType dtype) {
        rest.insert(rest.begin(), {m_case.dims.B, m_case.dims.T});
        add(name, std::move(rest), values, dtype);
    }

    void add(std::string_view name, Shape shape, const std::vector<double>& values, DType dtype) {
        m_file.tensors.push_back({std::string(name), from_f64(values, std::move(shape), dtype)});
    }

    const GdnCase& m_case;
    std::size_t m_rows;
    TensorFile m_file;
};

}  // namespace

TensorFile make_inputs(const GdnCase& c) {
    TensorFile file = c.set == "golden" ? golden_inputs(c) : Generator(c).run();
    file.metadata = {{"op", "gdn"}, {"case", c.name}, {"seed", fmt::format("{}", c.seed)}};
    for (const std::string& setting : c.contract) {
        const auto equals = setting.find('=');
        file.metadata[setting.substr(0, equals)] = setting.substr(equals + 1);
    }
    return file;
}

TensorFile make_cotangents(const GdnCase& c) { return c.set == "golden" ? golden_cotangents(c) : TensorFile{}; }

bool store_as(TensorFile& inputs, DType dtype) {
    TensorFile stored = inputs;
    for (const std::string_view name : {"q", "k", "v"}) {
        for (NamedTensor& entry : stored.tensors) {
            if (entry.name != name) continue;
            const std::vector<double> values = to_f64(entry.tensor);
            entry.tensor = from_f64(values, entry.tensor.shape, dtype);
            for (std::size_t i = 0; i < values.size(); ++i) {
                if (std::isfinite(values[i]) && !std::isfinite(element(entry.tensor, i))) return false;
            }
        }
    }
    inputs = std::move(stored);
    inputs.metadata["out_dtype"] = "query";
    return true;
}

}  // namespace gdnctl::oracle
