#include "oracle/gdn/bench/bench.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "core/text.h"
#include "oracle/gdn/bench/bench_arrays.h"
#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/kernels/adjoint.h"
#include "oracle/simd/isa.h"
#include "oracle/simd/tasks.h"
#include "oracle/tensor/random.h"

namespace gdnctl::oracle {

namespace {

// Chunks between saved states.
constexpr int k_timed_segment = 1;
constexpr std::uint64_t k_cotangent_seed = 11;

constexpr std::uint64_t k_seed = 14695981039346656037ULL;

using Array = BenchArray;

Array ones(std::size_t count) {
    Array array(count);
    std::fill_n(array.values.get(), count, 1.0F);
    return array;
}

// Multiplies by -1, `times` times; each thread processes its own part.
void negate(Array& array, std::int64_t times, int threads, Isa isa) {
    const auto parts = static_cast<std::size_t>(std::max(threads, 1));
    run_tasks(parts, threads, [&] {
        return [&](std::size_t part) {
            float* begin = array.values.get() + array.size * part / parts;
            float* end = array.values.get() + array.size * (part + 1) / parts;
            for (std::int64_t t = 0; t < times; ++t) negate_values({begin, end}, isa);
        };
    });
}

// FNV-1a over whole values, to distinguish the inputs of different runs.
std::uint64_t mixed(std::uint64_t h, const Array& array) {
    for (std::size_t i = 0; i < array.size; ++i) h = (h ^ std::bit_cast<std::uint32_t>(array.at(i))) * 1099511628211ULL;
    return h;
}

}  // namespace

void BenchInputs::Arrays::make_cotangents() {
    if (d_out.size > 0) return;
    d_out = Array(v.size, v.storage);
    d_state = Array(initial_state.size);
    Random random(k_cotangent_seed, 0);
    for (Array* x : {&d_out, &d_state}) {
        for (std::size_t i = 0; i < x->size; ++i) x->set(i, static_cast<float>(random.normal()));
    }
}

double run_multiply_adds(std::size_t steps, int threads, Isa isa) {
    const auto burst = isa == Isa::avx512 ? multiply_adds_avx512
                       : isa == Isa::avx2 ? multiply_adds_avx2
                                          : multiply_adds_scalar;
    std::vector<double> done(static_cast<std::size_t>(std::max(threads, 1)));
    run_tasks(done.size(), threads, [&] { return [&](std::size_t task) { done[task] = burst(steps); }; });
    double sum = 0;
    for (const double x : done) sum += x;
    return sum;
}

void negate_values(std::span<float> values, Isa isa) {
    const auto run = isa == Isa::avx512 ? negate_avx512 : isa == Isa::avx2 ? negate_avx2 : negate_scalar;
    run(values.data(), values.size());
}

Result<BenchInputs> BenchInputs::make(const GdnDims& dims, std::uint64_t seed, Storage storage,
                                      const std::vector<std::string>& sets) {
    GdnCase c;
    c.name = "bench";
    c.dims = dims;
    c.seed = seed;
    c.keys = KeyRecipe::unit;
    c.state_scale = 0.1;
    c.dtype = storage == Storage::bf16 ? DType::bf16 : DType::f32;
    c.contract = {"l2norm=off", "head_map=interleaved"};
    BenchInputs inputs;
    inputs.m_arrays = std::make_shared<Arrays>();
    Arrays& a = *inputs.m_arrays;
    a.file = make_inputs(c);
    for (const std::string& set : sets) a.file.metadata[set.substr(0, set.find('='))] = set.substr(set.find('=') + 1);
    a.dims = dims;
    for (std::int64_t b = 0; b < dims.B; ++b) a.sequences.push_back({b * dims.T, (b + 1) * dims.T});
    inputs.m_checksum = k_seed;
    for (const auto& [name, array] : {std::pair<std::string_view, Array*>{"q", &a.q},
                                      {"k", &a.k},
                                      {"v", &a.v},
                                      {"g", &a.g},
                                      {"beta", &a.beta},
                                      {"initial_state", &a.initial_state}}) {
        const Tensor* tensor = a.file.find(name);
        if (tensor == nullptr) return fail(ErrorKind::internal, fmt::format("no {} was generated", name));
        const bool by_token = array == &a.q || array == &a.k || array == &a.v;
        *array = Array(*tensor, by_token ? storage : Storage::f32);
        inputs.m_checksum = mixed(inputs.m_checksum, *array);
    }
    a.out = Array(a.v.size, storage);
    a.final_state = Array(a.initial_state.size);
    return inputs;
}

Forward32 BenchInputs::forward() const {
    const Arrays& a = *m_arrays;
    Forward32 f;
    f.dims = a.dims;
    f.sequences = a.sequences;
    f.q = a.q.read();
    f.k = a.k.read();
    f.v = a.v.read();
    f.g = a.g.values.get();
    f.beta = a.beta.values.get();
    f.initial_state = a.initial_state.values.get();
    f.out = a.out.stored();
    f.final_state = a.final_state.values.get();
    f.scale = 1 / std::sqrt(static_cast<float>(a.dims.dk));
    return f;
}

Backward32 BenchInputs::backward(int threads, Isa isa) {
    Arrays& a = *m_arrays;
    Backward32 b;
    b.inputs = forward();
    b.saves.segment_chunks = k_timed_segment;
    if (a.u.size == 0) {
        a.u = Array(a.v.size);
        a.states = Array(segment_count(a.sequences, k_timed_segment) * (a.initial_state.size / a.sequences.size()));
        a.make_cotangents();
        const Array* like[] = {&a.q, &a.k, &a.v, &a.g, &a.beta, &a.initial_state};
        const auto gradients = a.gradients();
        for (std::size_t i = 0; i < gradients.size(); ++i) {
            *gradients[i] = Array(like[i]->size, like[i]->storage);
        }
    }
    b.saves.u = a.u.values.get();
    b.saves.states = a.states.values.get();
    b.d_out = a.d_out.read();
    b.d_final_state = a.d_state.values.get();
    b.dq = a.dq.stored();
    b.dk = a.dk.stored();
    b.dv = a.dv.stored();
    b.dg = a.dg.values.get();
    b.dbeta = a.dbeta.values.get();
    b.d_initial_state = a.d_initial_state.values.get();
    if (!a.saved) {
        a.saved = true;
        saving_forward(b.inputs, b.saves, threads, isa);
    }
    return b;
}

void BenchInputs::decode(int threads, Isa isa) {
    Arrays& a = *m_arrays;
    if (a.steps.empty()) {
        for (std::int64_t t = 0; t < a.dims.T; ++t) {
            a.steps.emplace_back();
            for (std::int64_t b = 0; b < a.dims.B; ++b)
                a.steps.back().push_back({b * a.dims.T + t, b * a.dims.T + t + 1});
        }
    }
    Forward32 f = forward();
    std::copy_n(f.initial_state, a.final_state.size, f.final_state);
    f.initial_state = f.final_state;
    for (const auto& step : a.steps) {
        f.sequences = step;
        decode_step(f, threads, isa);
    }
}

const TensorFile& BenchInputs::file() const { return m_arrays->file; }

TensorFile BenchInputs::with_cotangents() const {
    Arrays& a = *m_arrays;
    a.make_cotangents();
    const GdnDims& d = a.dims;
    TensorFile file = a.file;
    file.tensors.push_back({"d_out", a.d_out.tensor({d.B, d.T, d.Hv, d.dv})});
    file.tensors.push_back({"d_final_state", a.d_state.tensor({d.B, d.Hv, d.dk, d.dv})});
    return file;
}

void BenchInputs::scale_states(int threads, Isa isa) {
    Arrays& a = *m_arrays;
    if (a.scaled.size == 0) a.scaled = ones(a.initial_state.size);
    negate(a.scaled, a.dims.T, threads, isa);
}

void BenchInputs::poison_outputs() {
    std::vector<Array*> arrays = m_arrays->gradients();
    arrays.push_back(&m_arrays->out);
    arrays.push_back(&m_arrays->final_state);
    for (Array* x : arrays) {
        for (std::size_t i = 0; i < x->size; ++i) x->set(i, std::numeric_limits<float>::quiet_NaN());
    }
}

std::uint64_t BenchInputs::gradients_checksum() const {
    std::uint64_t sum = k_seed;
    for (const Array* x : m_arrays->gradients()) sum = mixed(sum, *x);
    return sum;
}

Result<double> BenchInputs::gradient_error(int threads) const {
    Arrays& a = *m_arrays;
    GDNCTL_TRY_ASSIGN(auto contract, resolve_contract("marin", a.file.metadata, {}));
    GDNCTL_TRY_ASSIGN(const auto problem, read_problem(a.file, contract));
    const GdnGradients truth = run_adjoint64(problem, contract.value, {a.d_out.wide(), a.d_state.wide()}, threads);
    const std::vector<double>* exact[] = {&truth.dq, &truth.dk,    &truth.dv,
                                          &truth.dg, &truth.dbeta, &truth.d_initial_state};
    const auto rms = [](const std::vector<double>& x) {
        double sum = 0;
        for (const double value : x) sum += value * value;
        return std::sqrt(sum / static_cast<double>(std::max<std::size_t>(x.size(), 1)));
    };
    double worst = 0;
    const auto got = a.gradients();
    for (std::size_t i = 0; i < got.size(); ++i) {
        std::vector<double> error = got[i]->wide();
        for (std::size_t j = 0; j < error.size(); ++j) error[j] -= (*exact[i])[j];
        const double size = exact[i] == &truth.dg ? std::max(rms(truth.dg), rms(truth.dbeta)) : rms(*exact[i]);
        const double wrong = rms(error);
        if (wrong == 0) continue;  // also if the array is empty and there is nothing to compare
        const double budget = got[i]->storage == Storage::bf16 ? k_bf16_gradient_budget : k_gradient_budget;
        const double relative = wrong / size / budget;
        worst = std::max(worst, relative);
        // NaN is the worst possible error.
        if (!std::isfinite(relative)) return HUGE_VAL;
    }
    return worst;
}

std::uint64_t BenchInputs::outputs_checksum() const {
    const Arrays& a = *m_arrays;
    return mixed(mixed(k_seed, a.out), a.final_state);
}

Result<GdnReference> BenchInputs::reference(int threads) const {
    GDNCTL_TRY_ASSIGN(auto contract, resolve_contract("marin", m_arrays->file.metadata, {}));
    GDNCTL_TRY_ASSIGN(auto problem, read_problem(m_arrays->file, contract));
    return make_reference(std::move(problem), std::move(contract), threads);
}

TensorFile BenchInputs::outputs(const GdnReference& reference) const {
    const Arrays& a = *m_arrays;
    GdnOutputs outputs;
    outputs.out = a.out.wide();
    outputs.final_state = a.final_state.wide();
    return outputs_file(reference.problem, reference.contract.value, outputs,
                        a.out.storage == Storage::bf16 ? DType::bf16 : DType::f32, DType::f32);
}

// New inputs for every timed run of a user's kernel, and the results that it must give.

namespace {

// How far two correct fp32 results may be apart: the root mean square of the difference and its largest value, in units
// of the tensor's root mean square, or of a value's own size if that is larger. For fp32, these limits are above the
// measured differences of correct kernels and below what the judge allows for a value. Results that are farther apart
// are compared with the truth.
struct Allowed {
    double rms, largest;
};
constexpr Allowed k_f32 = {1e-6, 1e-5};
constexpr Allowed k_bf16 = {5e-3, 0x1p-6};

// Uniform, with variance 1: fast to draw.
void draw_values(BenchArray& array, Random& random, double size) {
    const auto factor = static_cast<float>(size * std::sqrt(3.0) * 0x1p-31);
    for (std::size_t i = 0; i < array.size; i += 2) {
        const std::uint64_t two = random.bits();
        array.set(i, factor * static_cast<float>(static_cast<std::int32_t>(two)));
        if (i + 1 < array.size) array.set(i + 1, factor * static_cast<float>(static_cast<std::int32_t>(two >> 32U)));
    }
}

void make_unit(BenchArray& array, std::size_t width) {
    for (std::size_t first = 0; first < array.size; first += width) {
        float sum = 0;
        for (std::size_t i = first; i < first + width; ++i) sum += array.at(i) * array.at(i);
        const float factor = sum > 0 ? 1 / std::sqrt(sum) : 0;
        for (std::size_t i = first; i < first + width; ++i) array.set(i, factor * array.at(i));
    }
}

// Stores the array's values in the tensor, and replaces them by what the tensor's dtype keeps.
void put(BenchArray& array, Tensor& tensor) {
    if (array.size == 0) return;
    if (tensor.dtype == array.dtype()) {
        std::memcpy(tensor.bytes.data(), array.data(), tensor.bytes.size());
        return;
    }
    tensor = from_f64(array.wide(), tensor.shape, tensor.dtype);
    for (std::size_t i = 0; i < array.size; ++i) array.set(i, static_cast<float>(element(tensor, i)));
}

}  // namespace

double distance_of(const Tensor* got, const BenchArray& want) {
    constexpr double k_infinite = std::numeric_limits<double>::infinity();
    if (got == nullptr || got->count() != want.size) return k_infinite;
    const auto* bytes = got->bytes.data();
    double sum = 0;
    for (std::size_t i = 0; i < want.size; ++i)
        sum += static_cast<double>(want.at(i)) * static_cast<double>(want.at(i));
    const double size = std::sqrt(sum / static_cast<double>(std::max<std::size_t>(want.size, 1)));
    const bool narrow = want.storage == Storage::bf16;
    const Allowed allowed = narrow ? k_bf16 : k_f32;
    double errors = 0;
    double worst = 0;
    for (std::size_t i = 0; i < want.size; ++i) {
        float value = 0;
        Bf16 half{};
        switch (got->dtype) {
            case DType::f32: std::memcpy(&value, bytes + i * sizeof value, sizeof value); break;
            case DType::bf16:
                std::memcpy(&half, bytes + i * sizeof half, sizeof half);
                value = widened(half);
                break;
            default: value = static_cast<float>(element(*got, i));
        }
        const auto exact = static_cast<double>(want.at(i));
        const double error = std::fabs(static_cast<double>(value) - exact);
        if (!std::isfinite(error)) return k_infinite;
        errors += error * error;
        worst = std::max(worst, error * size / std::max(size, std::fabs(exact)));
    }
    if (worst == 0) return 0;
    const double rms = std::sqrt(errors / static_cast<double>(want.size));
    return std::max(rms / allowed.rms, worst / allowed.largest) / size;
}

Status BenchInputs::draw(std::uint64_t seed) {
    Arrays& a = *m_arrays;
    Random random(seed, 0);
    const auto width = static_cast<std::size_t>(a.dims.dk);
    for (BenchArray* keys : {&a.q, &a.k}) {
        draw_values(*keys, random, 1);
        make_unit(*keys, width);
    }
    draw_values(a.v, random, 1);
    draw_values(a.initial_state, random, 0.1);
    draw_values(a.g, random, 0.1);
    for (std::size_t i = 0; i < a.g.size; ++i) a.g.set(i, -std::fabs(a.g.at(i)));
    for (std::size_t i = 0; i < a.beta.size; ++i) a.beta.set(i, static_cast<float>(random.uniform()));
    for (const auto& [name, array] : {std::pair<std::string_view, BenchArray*>{"q", &a.q},
                                      {"k", &a.k},
                                      {"v", &a.v},
                                      {"g", &a.g},
                                      {"beta", &a.beta},
                                      {"initial_state", &a.initial_state}}) {
        for (NamedTensor& entry : a.file.tensors) {
            if (entry.name == name) put(*array, entry.tensor);
        }
    }
    a.saved = false;
    if (a.d_out.size == 0) return {};
    draw_values(a.d_out, random, 1);
    draw_values(a.d_state, random, 1);
    return {};
}

double BenchInputs::distance(const TensorFile& outputs, Pass pass, int threads) {
    Arrays& a = *m_arrays;
    const Isa isa = best_isa();
    std::vector<std::pair<std::string_view, const BenchArray*>> wanted = {{"out", &a.out},
                                                                          {"final_state", &a.final_state}};
    if (pass == Pass::backward) {
        chunk_backward(backward(threads, isa), threads, isa);
        wanted = {{"dq", &a.dq}, {"dk", &a.dk},       {"dv", &a.dv},
                  {"dg", &a.dg}, {"dbeta", &a.dbeta}, {"d_initial_state", &a.d_initial_state}};
    } else {
        fused_forward(forward(), threads, isa);
    }
    double largest = 0;
    for (const auto& [name, array] : wanted) {
        const auto found = find_gdn_tensor(outputs, name);
        largest = std::max(largest, distance_of(found ? *found : nullptr, *array));
    }
    return largest;
}

// Our kernels under the names of oracle bench, and the work for their rates.

namespace {

struct TimedRow {
    std::string_view name;
    Pass pass;
    void (*run)(BenchInputs&, int, Isa);
};

// The chunk length for the nominal work.
constexpr int k_timed_chunk = 32;

void decode(BenchInputs& in, int threads, Isa isa) { in.decode(threads, isa); }

constexpr TimedRow k_kernels[] = {
    {"builtin:fused", Pass::forward,
     [](BenchInputs& in, int threads, Isa isa) { fused_forward(in.forward(), threads, isa); }},
    {"builtin:chunk", Pass::forward,
     [](BenchInputs& in, int threads, Isa isa) {
         chunk_forward(in.forward(), k_timed_chunk, GateSum::fp64_with_resets, threads, isa);
     }},
    {"builtin:saving", Pass::forward,
     [](BenchInputs& in, int threads, Isa isa) {
         const Backward32 b = in.backward(threads, isa);
         saving_forward(b.inputs, b.saves, threads, isa);
     }},
    {"builtin:backward", Pass::backward,
     [](BenchInputs& in, int threads, Isa isa) { chunk_backward(in.backward(threads, isa), threads, isa); }},
    {"builtin:decode", Pass::decode, decode},
    {"builtin:decode-in-place", Pass::decode, decode},  // the same by its old name
};

}  // namespace

std::string_view name_of(Pass pass) {
    switch (pass) {
        case Pass::forward: return "forward";
        case Pass::backward: return "backward";
        case Pass::decode: return "decode";
    }
    return "";
}

double nominal_backward_flop(const GdnDims& d) {
    constexpr double k_chunk = 32;
    const auto dk = static_cast<double>(d.dk);
    const auto dv = static_cast<double>(d.dv);
    return (14 * dk * dv + 10 * k_chunk * dk + 8 * k_chunk * dv) * static_cast<double>(d.B * d.T * d.Hv);
}

double least_flop(const GdnDims& d, std::int64_t tokens, Pass pass, bool initial_state) {
    const double products = !initial_state ? 1 : pass == Pass::backward ? 6 : 3;
    return 2 * products * static_cast<double>(tokens) * static_cast<double>(d.Hv * d.dk * d.dv);
}

double nominal_decode_flop(const GdnDims& d) {
    return 7.0 * static_cast<double>(d.B * d.T) * static_cast<double>(d.Hv * d.dk * d.dv);
}

double nominal_decode_bytes(const GdnDims& d) {
    return 2.0 * sizeof(float) * static_cast<double>(d.B * d.T) * static_cast<double>(d.Hv * d.dk * d.dv);
}

double nominal_forward_flop(const GdnDims& d) {
    constexpr double k_chunk = 32;
    const auto dk = static_cast<double>(d.dk);
    const auto dv = static_cast<double>(d.dv);
    const double ratio = static_cast<double>(d.Hv) / static_cast<double>(d.Hk);
    const double per_token = 6 * dk * dv + 4 * k_chunk * dk / ratio + 3 * k_chunk * dv;
    return per_token * static_cast<double>(d.B * d.T * d.Hv);
}

std::vector<std::string> timed_kernel_names() {
    std::vector<std::string> names;
    for (const TimedRow& row : k_kernels) names.emplace_back(row.name);
    return names;
}

Result<TimedKernel> find_timed_kernel(std::string_view spelling) {
    for (const TimedRow& row : k_kernels) {
        if (row.name == spelling) return TimedKernel{std::string(spelling), row.pass, row.run};
    }
    const auto names = timed_kernel_names();
    const auto near = text::nearest(spelling, names);
    return fail(ErrorKind::usage, fmt::format("kernel '{}' cannot be timed", spelling),
                near ? fmt::format("did you mean '{}'?", *near) : fmt::format("known: {}", text::join(names, ", ")));
}

Spread spread_of(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const std::size_t n = values.size();
    return {values.front(), (values[(n - 1) / 2] + values[n / 2]) / 2, values.back()};
}

}  // namespace gdnctl::oracle
