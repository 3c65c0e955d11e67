// The relations between results of a kernel, each with its own inputs: symmetries, closed forms and gradients.
#include "oracle/gdn/under_test/metamorphic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/contract/problem.h"
#include "oracle/gdn/under_test/call.h"
#include "oracle/tensor/random.h"

namespace gdnctl::oracle {

using Reals = std::vector<double>;

struct Outcome {
    Reals out, state;
};

inline std::size_t unsign(std::int64_t n) { return static_cast<std::size_t>(n); }

// Checks relations on one kernel. A fault of the kernel ends the relation, so call failed() after every run().
class Checker {
public:
    // Inputs have the heads and gates of `setting`. `widening`: how much larger errors of the declared precision are
    // than those of fp32.
    Checker(Kernel& kernel, int threads, std::uint64_t seed, const GdnCase& setting, const Declared& declared,
            double widening)
        : m_kernel(kernel),
          m_threads(threads),
          m_seed(seed),
          m_setting(setting),
          m_declared(declared),
          m_widening(widening) {
        if (const ContractField* l2norm = declared.find("l2norm")) m_l2norm = l2norm->value != "off";
    }

    Status causality();
    Status prefixes();
    Status continuation();
    Status linearity();
    Status batch_order();
    Status head_order();
    Status signs();
    Status chunk_length();
    Status packed();
    Status padding();
    Status beta_zero();
    Status perfect_fit();
    Status identical_keys();
    Status orthonormal_keys();
    Status gradient();

    RelationResult result;

private:
    // Seeded inputs of two batch rows; S0 is 0.1 N(0,1).
    GdnProblem inputs(std::int64_t tokens, std::uint64_t variant = 0) const;
    TensorFile file_of(const GdnProblem& p) const;
    // Of a file of inputs, with what is declared.
    Result<ResolvedContract> contract_of(const TensorFile& file) const;
    Result<Outcome> run(const GdnProblem& p);
    bool failed() const { return result.fault.has_value(); }
    void compare(const Reals& got, const Reals& want, const std::string& what);
    // Compares the derivative from `gradient` along `step` with the one from differences.
    void note_derivative(const Reals& gradient, const Reals& step, double difference, const char* name);

    Kernel& m_kernel;
    int m_threads;
    std::uint64_t m_seed;
    const GdnCase& m_setting;
    const Declared& m_declared;
    double m_widening;
    bool m_l2norm = true;
    int m_chunk = 64;
};

GdnProblem Checker::inputs(std::int64_t tokens, std::uint64_t variant) const {
    GdnCase c;
    c.dims = m_setting.dims;
    c.dims.B = 2;
    c.dims.T = tokens;
    c.gate = m_setting.gate;
    c.seed = m_seed * 1000 + variant;
    c.keys = m_l2norm ? KeyRecipe::normal : KeyRecipe::unit;
    c.state_scale = 0.1;
    c.contract = {"head_map=interleaved"};
    const TensorFile file = make_inputs(c);
    auto contract = resolve_contract("marin", file.metadata, {});
    auto problem = contract ? read_problem(file, *contract) : Result<GdnProblem>(GdnProblem{});
    return problem ? std::move(*problem) : GdnProblem{};
}

TensorFile Checker::file_of(const GdnProblem& p) const {
    const GdnDims& d = p.dims;
    TensorFile file;
    const auto add = [&](std::string name, const Reals& values, Shape shape) {
        file.tensors.push_back({std::move(name), from_f64(values, std::move(shape), DType::f32)});
    };
    add("q", p.q, {d.B, d.T, d.Hk, d.dk});
    add("k", p.k, {d.B, d.T, d.Hk, d.dk});
    add("v", p.v, {d.B, d.T, d.Hv, d.dv});
    add("g", p.gate, {d.B, d.T, d.Hv});
    add("beta", p.beta, {d.B, d.T, d.Hv});
    if (!p.initial_state.empty()) add("initial_state", p.initial_state, state_shape(p, StateLayout::key_value));
    if (p.has_cu_seqlens) {
        std::vector<std::int64_t> offsets = {0};
        for (const GdnSequence& s : p.sequences) offsets.push_back(s.end);
        file.tensors.push_back({"cu_seqlens", from_i64(offsets, {static_cast<std::int64_t>(offsets.size())})});
    }
    file.metadata = {{"op", "gdn"},
                     {"head_map", "interleaved"},
                     {"l2norm", m_l2norm ? "rsqrt(sum+eps)" : "off"},
                     {"chunk", std::to_string(m_chunk)}};
    return file;
}

// What the file says wins: some relations turn l2norm off, or change the chunk length.
Result<ResolvedContract> Checker::contract_of(const TensorFile& file) const {
    std::vector<std::string> sets = m_declared.sets;
    std::erase_if(sets, [&](const std::string& set) { return file.metadata.contains(set.substr(0, set.find('='))); });
    return resolve_contract(m_declared.contract.value_or("marin"), file.metadata, sets);
}

Result<Outcome> Checker::run(const GdnProblem& p) {
    const TensorFile file = file_of(p);
    GDNCTL_TRY_ASSIGN(const auto contract, contract_of(file));
    GDNCTL_TRY_ASSIGN(KernelRun done, run_pass(m_kernel, KernelPass::forward, file, contract, m_threads));
    result.fault = std::move(done.fault);
    Outcome outcome;
    if (failed()) return outcome;
    GDNCTL_TRY_ASSIGN(const Tensor* out, find_gdn_tensor(done.outputs, "out"));
    GDNCTL_TRY_ASSIGN(const Tensor* state, find_gdn_tensor(done.outputs, "final_state"));
    if (out == nullptr || state == nullptr) {
        result.fault = KernelFault{KernelFaultKind::incomplete,
                                   fmt::format("{} was not returned at all", out == nullptr ? "out" : "final_state"),
                                   {}};
        return outcome;
    }
    outcome = {to_f64(*out), to_f64(*state)};
    if (outcome.out.size() != p.v.size() || outcome.state.size() != element_count(state_shape(p, {})).value_or(0)) {
        result.fault =
            KernelFault{KernelFaultKind::wrong_shape, "an output does not have the size that the inputs imply", {}};
    }
    return outcome;
}

void Checker::compare(const Reals& got, const Reals& want, const std::string& what) {
    double error = 0;
    double size = 0;
    double largest_error = 0;
    double largest = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
        const double difference = std::fabs(got[i] - want[i]);
        if (!std::isfinite(difference)) largest_error = std::numeric_limits<double>::infinity();
        error += difference * difference;
        size += want[i] * want[i];
        largest_error = std::max(largest_error, difference);
        largest = std::max(largest, std::fabs(want[i]));
    }
    if (largest_error == 0) return;
    // If everything is zero, any difference is infinitely large.
    const double ratio = std::max(std::sqrt(error / size), largest_error / largest);
    const double found = std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio;
    if (found <= result.error) return;
    result.error = found;
    result.worst = what;
}

// Relations between two results of a kernel.

namespace {

// Values [from, to) of each batch row, with `width` values per token.
Reals token_range(const Reals& values, const GdnDims& d, std::int64_t width, std::int64_t from, std::int64_t to) {
    Reals part;
    for (std::int64_t b = 0; b < d.B; ++b) {
        const auto row = values.begin() + (b * d.T) * width;
        part.insert(part.end(), row + from * width, row + to * width);
    }
    return part;
}

GdnProblem slice(const GdnProblem& p, std::int64_t from, std::int64_t to) {
    const GdnDims& d = p.dims;
    GdnProblem part = p;
    part.dims.T = to - from;
    part.q = token_range(p.q, d, d.Hk * d.dk, from, to);
    part.k = token_range(p.k, d, d.Hk * d.dk, from, to);
    part.v = token_range(p.v, d, d.Hv * d.dv, from, to);
    part.gate = token_range(p.gate, d, d.Hv, from, to);
    part.beta = token_range(p.beta, d, d.Hv, from, to);
    part.sequences.clear();
    for (std::int64_t b = 0; b < d.B; ++b) part.sequences.push_back({b * part.dims.T, (b + 1) * part.dims.T});
    return part;
}

// Batch rows in the order of `rows`: [B, size].
Reals blocks(const Reals& values, std::size_t size, const std::vector<std::size_t>& rows) {
    Reals moved;
    for (const std::size_t row : rows) {
        const auto begin = values.begin() + static_cast<std::ptrdiff_t>(row * size);
        moved.insert(moved.end(), begin, begin + static_cast<std::ptrdiff_t>(size));
    }
    return moved;
}

// Moves the second half of the heads to the front, in an array of [.., heads, width].
Reals heads_swapped(const Reals& values, std::int64_t heads, std::int64_t width) {
    Reals moved = values;
    const std::ptrdiff_t row = heads * width;
    for (auto at = moved.begin(); at != moved.end(); at += row) std::rotate(at, at + row / 2, at + row);
    return moved;
}

// Only the first batch row.
GdnProblem first_row(const GdnProblem& p) {
    GdnProblem one = p;
    one.dims.B = 1;
    for (Reals* values : {&one.q, &one.k, &one.v, &one.gate, &one.beta, &one.initial_state}) {
        values->resize(values->size() / unsign(p.dims.B));
    }
    one.sequences = {{0, p.dims.T}};
    return one;
}

// `offsets` over the first batch row, with a state for each sequence.
GdnProblem packed_row(const GdnProblem& p, const std::vector<std::int64_t>& offsets) {
    GdnProblem one = first_row(p);
    const Reals state = one.initial_state;
    one.has_cu_seqlens = true;
    one.sequences.clear();
    one.initial_state.clear();
    for (std::size_t n = 0; n + 1 < offsets.size(); ++n) {
        one.sequences.push_back({offsets[n], offsets[n + 1]});
        for (const double x : state) one.initial_state.push_back(x * static_cast<double>(n + 1));
    }
    return one;
}

}  // namespace

// Changing later tokens changes nothing before them, bit for bit.
Status Checker::causality() {
    result.tolerance = 0;
    const std::int64_t T = 70;
    const GdnProblem p = inputs(T);
    const GdnProblem other = inputs(T, 1);
    GDNCTL_TRY_ASSIGN(const Outcome plain, run(p));
    for (const std::int64_t t : {1, 16, 35, 64, 69}) {
        if (failed()) return {};
        GdnProblem changed = p;
        const GdnDims& d = p.dims;
        const auto later = [&](Reals& to, const Reals& from, std::int64_t width) {
            for (std::int64_t b = 0; b < d.B; ++b) {
                std::copy(from.begin() + (b * T + t) * width, from.begin() + (b + 1) * T * width,
                          to.begin() + (b * T + t) * width);
            }
        };
        later(changed.q, other.q, d.Hk * d.dk);
        later(changed.k, other.k, d.Hk * d.dk);
        later(changed.v, other.v, d.Hv * d.dv);
        later(changed.gate, other.gate, d.Hv);
        later(changed.beta, other.beta, d.Hv);
        GDNCTL_TRY_ASSIGN(const Outcome after, run(changed));
        if (failed()) return {};
        compare(token_range(after.out, d, d.Hv * d.dv, 0, t), token_range(plain.out, d, d.Hv * d.dv, 0, t),
                fmt::format("out before token {}, when later tokens change", t));
    }
    return {};
}

// The first tokens alone give the same results as with the others.
Status Checker::prefixes() {
    const GdnProblem p = inputs(130);
    GDNCTL_TRY_ASSIGN(const Outcome whole, run(p));
    const std::int64_t width = p.dims.Hv * p.dims.dv;
    for (const std::int64_t n : {1, 2, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129}) {
        if (failed()) return {};
        GDNCTL_TRY_ASSIGN(const Outcome part, run(slice(p, 0, n)));
        if (failed()) return {};
        compare(part.out, token_range(whole.out, p.dims, width, 0, n),
                fmt::format("out of the first {} tokens alone", n));
    }
    return {};
}

// The state passed from one call to the next represents everything before.
Status Checker::continuation() {
    const std::int64_t T = 70;
    const GdnProblem p = inputs(T);
    GDNCTL_TRY_ASSIGN(const Outcome whole, run(p));
    const std::int64_t width = p.dims.Hv * p.dims.dv;
    for (const std::int64_t n : {1, 21, 41, 64, 69}) {
        if (failed()) return {};
        GDNCTL_TRY_ASSIGN(const Outcome first, run(slice(p, 0, n)));
        if (failed()) return {};
        GdnProblem rest = slice(p, n, T);
        rest.initial_state = first.state;
        GDNCTL_TRY_ASSIGN(const Outcome second, run(rest));
        if (failed()) return {};
        compare(second.out, token_range(whole.out, p.dims, width, n, T),
                fmt::format("out after {} of {} tokens", n, T));
        compare(second.state, whole.state, fmt::format("final_state, continued after {} of {} tokens", n, T));
    }
    return {};
}

// The result is linear in v and S0 together.
Status Checker::linearity() {
    const GdnProblem a = inputs(70);
    GdnProblem b = a;
    const GdnProblem other = inputs(70, 1);
    b.v = other.v;
    b.initial_state = other.initial_state;
    GdnProblem sum = a;
    for (std::size_t i = 0; i < sum.v.size(); ++i) sum.v[i] += 2 * b.v[i];
    for (std::size_t i = 0; i < sum.initial_state.size(); ++i) sum.initial_state[i] += 2 * b.initial_state[i];
    GDNCTL_TRY_ASSIGN(Outcome of_a, run(a));
    if (failed()) return {};
    GDNCTL_TRY_ASSIGN(const Outcome of_b, run(b));
    if (failed()) return {};
    GDNCTL_TRY_ASSIGN(const Outcome of_sum, run(sum));
    if (failed()) return {};
    for (std::size_t i = 0; i < of_a.out.size(); ++i) of_a.out[i] += 2 * of_b.out[i];
    for (std::size_t i = 0; i < of_a.state.size(); ++i) of_a.state[i] += 2 * of_b.state[i];
    compare(of_sum.out, of_a.out, "out of v1 + 2 v2");
    compare(of_sum.state, of_a.state, "final_state of v1 + 2 v2");
    return {};
}

Status Checker::batch_order() {
    const GdnProblem p = inputs(37);
    const GdnDims& d = p.dims;
    const std::vector<std::size_t> order = {1, 0};
    GdnProblem swapped = p;
    for (Reals* values : {&swapped.q, &swapped.k, &swapped.v, &swapped.gate, &swapped.beta, &swapped.initial_state}) {
        *values = blocks(*values, values->size() / unsign(d.B), order);
    }
    GDNCTL_TRY_ASSIGN(const Outcome plain, run(p));
    if (failed()) return {};
    GDNCTL_TRY_ASSIGN(const Outcome moved, run(swapped));
    if (failed()) return {};
    compare(moved.out, blocks(plain.out, plain.out.size() / unsign(d.B), order), "out with batch rows exchanged");
    compare(moved.state, blocks(plain.state, plain.state.size() / unsign(d.B), order),
            "final_state with batch rows exchanged");
    return {};
}

// A key head moves with its value heads.
Status Checker::head_order() {
    const GdnProblem p = inputs(37);
    const GdnDims& d = p.dims;
    GdnProblem swapped = p;
    swapped.q = heads_swapped(p.q, d.Hk, d.dk);
    swapped.k = heads_swapped(p.k, d.Hk, d.dk);
    swapped.v = heads_swapped(p.v, d.Hv, d.dv);
    swapped.gate = heads_swapped(p.gate, d.Hv, 1);
    swapped.beta = heads_swapped(p.beta, d.Hv, 1);
    swapped.initial_state = heads_swapped(p.initial_state, d.Hv, d.dk * d.dv);
    GDNCTL_TRY_ASSIGN(const Outcome plain, run(p));
    if (failed()) return {};
    GDNCTL_TRY_ASSIGN(const Outcome moved, run(swapped));
    if (failed()) return {};
    compare(moved.out, heads_swapped(plain.out, d.Hv, d.dv), "out with heads exchanged");
    compare(moved.state, heads_swapped(plain.state, d.Hv, d.dk * d.dv), "final_state with heads exchanged");
    return {};
}

// See Disguise.
Status Checker::signs() {
    const GdnProblem p = inputs(70);
    const Disguise disguise(p.dims, HeadMap::interleaved, m_seed);
    TensorFile file = file_of(p);
    GDNCTL_TRY_ASSIGN(const auto contract, contract_of(file));
    GDNCTL_TRY_ASSIGN(const Outcome plain, run(p));
    if (failed()) return {};
    apply(disguise, file, StateLayout::key_value);
    auto read = contract;
    GDNCTL_TRY_ASSIGN(const GdnProblem other, read_problem(file, read));
    GDNCTL_TRY_ASSIGN(const Outcome moved, run(other));
    if (failed()) return {};
    TensorFile back = outputs_file(p, contract.value, {moved.out, moved.state, 0}, DType::f64, DType::f64);
    apply(disguise, back, StateLayout::key_value);
    compare(to_f64(back.tensors[0].tensor), plain.out, "out with other signs");
    compare(to_f64(back.tensors[1].tensor), plain.state, "final_state with other signs");
    return {};
}

Status Checker::chunk_length() {
    const GdnProblem p = inputs(130);
    GDNCTL_TRY_ASSIGN(const Outcome plain, run(p));
    for (const int chunk : {1, 16, 32, 128}) {
        if (failed()) return {};
        m_chunk = chunk;
        GDNCTL_TRY_ASSIGN(const Outcome other, run(p));
        if (failed()) return {};
        compare(other.out, plain.out, fmt::format("out with chunk={}", chunk));
        compare(other.state, plain.state, fmt::format("final_state with chunk={}", chunk));
    }
    return {};
}

// Sequences packed along the token axis are independent; an empty one passes its state on.
Status Checker::packed() {
    const GdnProblem p = packed_row(inputs(120), {0, 0, 16, 48, 48, 56, 120, 120});
    const GdnDims& d = p.dims;
    GDNCTL_TRY_ASSIGN(const Outcome together, run(p));
    const auto size = unsign(d.Hv * d.dk * d.dv);
    for (std::size_t n = 0; n < p.sequences.size(); ++n) {
        if (failed()) return {};
        const GdnSequence s = p.sequences[n];
        const Reals before = blocks(p.initial_state, size, {n});
        const Reals after = blocks(together.state, size, {n});
        const std::string name =
            fmt::format("sequence {} of {}, tokens {} to {}", n, p.sequences.size(), s.begin, s.end);
        if (s.begin == s.end) {
            compare(after, before, "final_state of the empty " + name);
            continue;
        }
        GdnProblem alone = slice(p, s.begin, s.end);
        alone.has_cu_seqlens = false;
        alone.initial_state = before;
        GDNCTL_TRY_ASSIGN(const Outcome outcome, run(alone));
        if (failed()) return {};
        compare(token_range(together.out, d, d.Hv * d.dv, s.begin, s.end), outcome.out, "out of " + name);
        compare(after, outcome.state, "final_state of " + name);
    }
    return {};
}

// Tokens after the last sequence have no effect.
Status Checker::padding() {
    result.tolerance = 0;
    const GdnProblem p = packed_row(inputs(40), {0, 16, 33});
    const GdnDims& d = p.dims;
    GdnProblem garbage = p;
    for (const auto& [values, width] : {std::pair{&garbage.q, d.Hk * d.dk},
                                        {&garbage.k, d.Hk * d.dk},
                                        {&garbage.v, d.Hv * d.dv},
                                        {&garbage.gate, d.Hv},
                                        {&garbage.beta, d.Hv}}) {
        std::fill(values->begin() + 33 * width, values->end(), std::numeric_limits<double>::quiet_NaN());
    }
    GDNCTL_TRY_ASSIGN(const Outcome plain, run(p));
    if (failed()) return {};
    GDNCTL_TRY_ASSIGN(const Outcome other, run(garbage));
    if (failed()) return {};
    const std::int64_t width = d.Hv * d.dv;
    compare(token_range(other.out, d, width, 0, 33), token_range(plain.out, d, width, 0, 33), "out with NaN after it");
    compare(other.state, plain.state, "final_state with NaN after it");
    return {};
}

// Inputs with a closed-form result.

// Nothing is written: S_t = e^{c_t} S0, out_t = s S_t^T q_t.
Status Checker::beta_zero() {
    m_l2norm = false;
    GdnProblem p = inputs(33);
    const GdnDims& d = p.dims;
    std::fill(p.beta.begin(), p.beta.end(), 0.0);
    // Strong gates would erase the initial state.
    for (double& g : p.gate) g = std::max(g, -0.5);
    Reals out(p.v.size());
    Reals state = p.initial_state;
    const double scale = 1 / std::sqrt(static_cast<double>(d.dk));
    for (std::int64_t row = 0; row < d.B * d.T; ++row) {
        for (std::int64_t h = 0; h < d.Hv; ++h) {
            const double alpha = std::exp(p.gate[unsign(row * d.Hv + h)]);
            double* S = state.data() + (row / d.T * d.Hv + h) * d.dk * d.dv;
            const double* q = p.q.data() + (row * d.Hk + h / (d.Hv / d.Hk)) * d.dk;
            for (std::int64_t i = 0; i < d.dk * d.dv; ++i) {
                S[i] *= alpha;
                out[unsign((row * d.Hv + h) * d.dv + i % d.dv)] += scale * q[i / d.dv] * S[i];
            }
        }
    }
    GDNCTL_TRY_ASSIGN(const Outcome outcome, run(p));
    if (failed()) return {};
    compare(outcome.out, out, "out, which is s e^c S0^T q");
    compare(outcome.state, state, "final_state, which is e^c S0");
    return {};
}

// Without decay and with beta = 1, the state recalls the last v: S^T k = v.
Status Checker::perfect_fit() {
    m_l2norm = false;
    GdnProblem p = inputs(33);
    const GdnDims& d = p.dims;
    std::fill(p.beta.begin(), p.beta.end(), 1.0);
    std::fill(p.gate.begin(), p.gate.end(), 0.0);
    GDNCTL_TRY_ASSIGN(const Outcome outcome, run(p));
    if (failed()) return {};
    Reals recalled;
    Reals last;
    for (std::int64_t head = 0; head < d.B * d.Hv; ++head) {
        const std::int64_t row = (head / d.Hv + 1) * d.T - 1;
        const std::int64_t h = head % d.Hv;
        for (std::int64_t j = 0; j < d.dv; ++j) {
            double sum = 0;
            for (std::int64_t i = 0; i < d.dk; ++i) {
                sum += outcome.state[unsign((head * d.dk + i) * d.dv + j)] *
                       p.k[unsign((row * d.Hk + h / (d.Hv / d.Hk)) * d.dk + i)];
            }
            recalled.push_back(sum);
            last.push_back(p.v[unsign((row * d.Hv + h) * d.dv + j)]);
        }
    }
    compare(recalled, last, "S^T k after the last token, which is its v");
    return {};
}

// The same key throughout, beta = 1, no decay, no initial state: out_t = s (q_t.k) v_t.
Status Checker::identical_keys() {
    m_l2norm = false;
    GdnProblem p = inputs(33);
    const GdnDims& d = p.dims;
    p.initial_state.clear();
    std::fill(p.beta.begin(), p.beta.end(), 1.0);
    std::fill(p.gate.begin(), p.gate.end(), 0.0);
    // The first unit vector, whose products are exact.
    for (std::size_t i = 0; i < p.k.size(); ++i) p.k[i] = i % unsign(d.dk) == 0 ? 1 : 0;
    Reals out(p.v.size());
    const double scale = 1 / std::sqrt(static_cast<double>(d.dk));
    for (std::size_t i = 0; i < out.size(); ++i) {
        const std::size_t head = i / unsign(d.dv);  // of [B*T, Hv]
        const std::size_t key_head = head / unsign(d.Hv) * unsign(d.Hk) + head % unsign(d.Hv) / unsign(d.Hv / d.Hk);
        out[i] = scale * p.q[key_head * unsign(d.dk)] * p.v[i];
    }
    GDNCTL_TRY_ASSIGN(const Outcome outcome, run(p));
    if (failed()) return {};
    compare(outcome.out, out, "out, which is s (q.k) v");
    return {};
}

// Token t has the unit vector t as its key, without an initial state: row t of the state is e^{c_T - c_t} beta_t v_t.
Status Checker::orthonormal_keys() {
    m_l2norm = false;
    GdnProblem p = inputs(16);
    const GdnDims& d = p.dims;
    p.initial_state.clear();
    for (std::size_t i = 0; i < p.k.size(); ++i) {
        const std::size_t t = i / unsign(d.Hk * d.dk) % unsign(d.T);
        p.k[i] = i % unsign(d.dk) == t ? 1 : 0;
    }
    Reals state(unsign(d.B * d.Hv * d.dk * d.dv));
    for (std::int64_t head = 0; head < d.B * d.Hv; ++head) {
        double decay = 0;
        for (std::int64_t t = d.T - 1; t >= 0; --t) {
            const std::int64_t token = (head / d.Hv * d.T + t) * d.Hv + head % d.Hv;
            for (std::int64_t j = 0; j < d.dv; ++j) {
                state[unsign((head * d.dk + t) * d.dv + j)] =
                    std::exp(decay) * p.beta[unsign(token)] * p.v[unsign(token * d.dv + j)];
            }
            decay += p.gate[unsign(token)];
        }
    }
    GDNCTL_TRY_ASSIGN(const Outcome outcome, run(p));
    if (failed()) return {};
    compare(outcome.state, state, "final_state, whose rows are e^(c_T - c_t) beta_t v_t");
    return {};
}

// Compares gradients with differences of the kernel's own forward.

namespace {

struct Input {
    const char* gradient;
    const char* name;
    Reals GdnProblem::* values;
};

constexpr std::array k_inputs = {
    Input{"dq", "q", &GdnProblem::q},          Input{"dk", "k", &GdnProblem::k},
    Input{"dv", "v", &GdnProblem::v},          Input{"dg", "g", &GdnProblem::gate},
    Input{"dbeta", "beta", &GdnProblem::beta}, Input{"d_initial_state", "initial_state", &GdnProblem::initial_state},
};

double inner_product(const Reals& a, const Reals& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

// A step of every element by that fraction of their size, with random signs. A few gates of -200 among weak ones must
// not make the step large: it would turn the weak ones into growth.
Reals random_step(const Reals& values, double fraction, std::uint64_t seed, std::uint64_t stream) {
    Reals sizes(values.size());
    std::transform(values.begin(), values.end(), sizes.begin(), [](double x) { return std::fabs(x); });
    const auto middle = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 2);
    std::nth_element(sizes.begin(), middle, sizes.end());
    const double rms = std::sqrt(inner_product(values, values) / static_cast<double>(values.size()));
    const double size = fraction * (values.empty() || *middle == 0 ? rms : std::min(rms, 2 * *middle));
    Random random(seed, stream);
    Reals step(values.size());
    for (double& x : step) x = random.uniform() < 0.5 ? -size : size;
    return step;
}

}  // namespace

// For L = <d_out, out> + <d_final_state, final_state>, the gradient along a random direction is the derivative of L
// along it. Four calls of the forward give it to fourth order.
Status Checker::gradient() {
    // Differences lose two digits of fp32, and the fourth order is accurate to four. Coarser arithmetic loses as much
    // of a step, so its steps are longer.
    const double longer = m_widening > 1000 ? 4 : m_widening > 100 ? 2 : 1;
    result.tolerance = 2e-4 * m_widening / (m_widening > 1000 ? 4 : 1);
    const GdnProblem p = inputs(70);
    const GdnCotangents cotangents = random_cotangents(p, m_seed);
    TensorFile file = file_of(p);
    GDNCTL_TRY_ASSIGN(const auto contract, contract_of(file));
    for (NamedTensor& entry : cotangents_file(p, contract.value, cotangents).tensors) {
        file.tensors.push_back(std::move(entry));
    }
    GDNCTL_TRY_ASSIGN(const auto passes, passes_of(m_kernel));
    const bool own_pass = std::find(passes.begin(), passes.end(), KernelPass::backward) != passes.end();
    // A program may return gradients together with its outputs.
    const KernelPass pass = own_pass ? KernelPass::backward : KernelPass::forward;
    GDNCTL_TRY_ASSIGN(KernelRun done, run_pass(m_kernel, pass, file, contract, m_threads));
    result.fault = std::move(done.fault);
    if (failed()) return {};
    result.applies = false;
    for (std::size_t i = 0; i < k_inputs.size(); ++i) {
        const Input& input = k_inputs[i];
        GDNCTL_TRY_ASSIGN(const Tensor* gradient, find_gdn_tensor(done.outputs, input.gradient));
        if (gradient == nullptr) continue;
        result.applies = true;
        const Reals& values = p.*input.values;
        if (gradient->count() != values.size()) {
            result.fault = KernelFault{KernelFaultKind::wrong_shape,
                                       fmt::format("{} and {} have different sizes", input.gradient, input.name),
                                       {}};
            return {};
        }
        const Reals step = random_step(values, 0.05 * longer, m_seed, i);
        double difference = 0;
        for (const auto& [half_steps, weight] : {std::pair{1, 4.0 / 3}, {-1, -4.0 / 3}, {2, -1.0 / 6}, {-2, 1.0 / 6}}) {
            GdnProblem moved = p;
            for (std::size_t j = 0; j < step.size(); ++j) (moved.*input.values)[j] += half_steps * step[j] / 2;
            GDNCTL_TRY_ASSIGN(const Outcome outcome, run(moved));
            if (failed()) return {};
            difference += weight * (inner_product(cotangents.d_out, outcome.out) +
                                    inner_product(cotangents.d_final_state, outcome.state));
        }
        note_derivative(to_f64(*gradient), step, difference, input.gradient);
    }
    return {};
}

void Checker::note_derivative(const Reals& gradient, const Reals& step, double difference, const char* name) {
    double size = 0;
    for (std::size_t i = 0; i < step.size(); ++i) size += std::pow(gradient[i] * step[i], 2);
    const double derivative = inner_product(gradient, step);
    const double ratio = std::fabs(derivative - difference) / std::sqrt(size);
    const double found = std::isfinite(ratio) ? ratio : HUGE_VAL;
    if (found <= result.error || derivative == difference) return;
    result.error = found;
    result.worst = fmt::format("{} gives {:.6g} along a random direction, differences of the forward {:.6g}", name,
                               derivative, difference);
}

namespace {

// Correct fp32 kernels stay below a tenth of it on these inputs.
constexpr double k_tolerance = 2e-5;

// How much more kernels of the declared precision are off by.
double widening_of(const GdnContract& c) {
    double factor = 1;
    switch (c.matmul) {
        case Matmul::f32: break;
        case Matmul::bf16x3: factor = 30; break;
        case Matmul::tf32:
        case Matmul::f16: factor = 1000; break;
        case Matmul::bf16: factor = 8000; break;
    }
    return c.state_dtype == StateDType::f32 ? factor : std::max(factor, 8000.0);
}

struct RelationRow {
    const char* name;
    const char* about;
    Status (Checker::*check)();
};

constexpr RelationRow k_relations[] = {
    {"causality", "later tokens do not change earlier outputs (bit for bit)", &Checker::causality},
    {"prefixes", "the first tokens alone give the same results", &Checker::prefixes},
    {"continuation", "two calls that pass on the state equal one call", &Checker::continuation},
    {"linearity", "the result is linear in v and the initial state", &Checker::linearity},
    {"batch_order", "batch rows are independent", &Checker::batch_order},
    {"head_order", "heads are independent", &Checker::head_order},
    {"signs", "flipped signs of dimensions cancel or reappear", &Checker::signs},
    {"chunk_length", "the chunk length does not matter", &Checker::chunk_length},
    {"packed", "packed sequences give the same results as separate ones", &Checker::packed},
    {"padding", "NaN after the last sequence changes nothing", &Checker::padding},
    {"beta_zero", "beta = 0: the initial state only decays", &Checker::beta_zero},
    {"perfect_fit", "alpha = beta = 1: the state recalls the last v", &Checker::perfect_fit},
    {"identical_keys", "one key, beta = 1: out is s (q.k) v", &Checker::identical_keys},
    {"orthonormal_keys", "orthonormal keys: the state's rows are decayed values", &Checker::orthonormal_keys},
    {"gradient", "gradients agree with finite differences of the forward", &Checker::gradient},
};

// Small heads, and those crossed cases in which a pair of head size, heads and gates occurs for the first time.
std::vector<GdnCase> make_settings() {
    GdnCase small;
    small.dims = {2, 0, 2, 4, 16, 8};
    std::vector<GdnCase> settings = {small};
    std::set<std::string> met;
    for (const GdnCase& c : crossed_cases()) {
        const GdnDims& d = c.dims;
        const std::string size = fmt::format("{}x{}", d.dk, d.dv);
        const auto gate = static_cast<int>(c.gate);
        const auto before = met.size();
        met.insert(
            {fmt::format("{}/{}", size, d.Hv), fmt::format("{} {}", size, gate), fmt::format("{}:{}", d.Hv, gate)});
        if (met.size() > before) settings.push_back(c);
    }
    return settings;
}

// Each relation is checked on the first setting and on some others, such that each of these is used by three relations:
// all on all would take minutes.
bool has_setting(std::size_t relation, std::size_t setting) { return setting == 0 || setting % 5 == relation % 5; }

Result<RelationResult> check_row(const RelationRow& row, Kernel& kernel, int threads, std::uint64_t seed,
                                 const Declared& declared) {
    static const std::vector<GdnCase> k_settings = make_settings();
    GDNCTL_TRY_ASSIGN(const auto contract, resolve_contract(declared.contract.value_or("marin"), {}, declared.sets));
    const double widening = widening_of(contract.value);
    RelationResult worst;
    for (std::size_t i = 0; i < k_settings.size(); ++i) {
        if (!has_setting(static_cast<std::size_t>(&row - k_relations), i)) continue;
        Checker checker(kernel, threads, seed, k_settings[i], declared, widening);
        checker.result.tolerance = k_tolerance * widening;
        GDNCTL_TRY((checker.*row.check)());
        RelationResult& result = checker.result;
        if (i > 0 && !result.worst.empty()) result.worst += fmt::format(" (shape and gates of {})", k_settings[i].name);
        if (i == 0 || !result.held() || result.error > worst.error) worst = std::move(result);
        if (!worst.held() || !worst.applies) break;
    }
    return worst;
}

}  // namespace

const std::vector<Relation>& relations() {
    static const std::vector<Relation> k_all = [] {
        std::vector<Relation> all;
        for (const RelationRow& row : k_relations) all.push_back({row.name, row.about});
        return all;
    }();
    return k_all;
}

Status check_relations_apply(const Declared& declared) {
    GDNCTL_TRY_ASSIGN(const auto asked, resolve_contract("marin", {{"head_map", "interleaved"}}, {}));
    constexpr std::array<std::string_view, 6> k_free = {"matmul", "gate_sum", "state_dtype",
                                                        "chunk",  "l2norm",   "out_dtype"};
    for (const ContractField& field : declared.fields) {
        const bool other = std::none_of(asked.fields.begin(), asked.fields.end(), [&](const ContractField& f) {
            return f.name == field.name && f.value == field.value;
        });
        if (!other || std::find(k_free.begin(), k_free.end(), field.name) != k_free.end()) continue;
        return fail(ErrorKind::usage,
                    fmt::format("--metamorphic cannot be combined with {}={}", field.name, field.value),
                    "its relations are about " + asked.text());
    }
    return {};
}

Result<RelationResult> check_relation(const std::string& name, Kernel& kernel, int threads, std::uint64_t seed,
                                      const Declared& declared) {
    for (const RelationRow& row : k_relations) {
        if (name == row.name) return check_row(row, kernel, threads, seed, declared);
    }
    return fail(ErrorKind::usage, fmt::format("unknown relation '{}'", name));
}

}  // namespace gdnctl::oracle
