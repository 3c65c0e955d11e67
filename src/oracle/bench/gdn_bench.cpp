#include "gdnctl/oracle/gdn_bench.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "gdnctl/core/text.h"
#include "gdnctl/oracle/gdn_cases.h"
#include "oracle/kernels/aligned.h"
#include "oracle/kernels/simd/peak.h"
#include "oracle/kernels/tasks.h"

namespace gdnctl::oracle {

namespace {

struct Row {
    std::string_view name;
    void (*run)(const Forward32&, int, Isa);
};

// The chunk length at which the nominal work is counted.
constexpr int k_timed_chunk = 32;

constexpr Row k_kernels[] = {
    {"builtin:fused", fused_forward},
    {"builtin:chunk", [](const Forward32& f, int threads,
                         Isa isa) { chunk_forward(f, k_timed_chunk, GateSum::fp64_with_resets, threads, isa); }},
};

// FNV-1a over 8 bytes at a time: inputs of a run can be told from those of another.
std::uint64_t mixed(std::uint64_t h, const float* values, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, values + i, sizeof bits);
        h = (h ^ bits) * 1099511628211ULL;
    }
    return h;
}

constexpr std::uint64_t k_seed = 14695981039346656037ULL;

struct Array {
    AlignedFloats values;
    std::size_t size = 0;

    explicit Array(std::size_t count = 0) : values(aligned_floats(count)), size(count) {}
    explicit Array(const Tensor& tensor) : Array(tensor.count()) {
        std::memcpy(values.get(), tensor.bytes.data(), size * sizeof(float));
    }
};

}  // namespace

struct BenchInputs::Arrays {
    TensorFile file;
    GdnDims dims;
    std::vector<GdnSequence> sequences;
    Array q, k, v, g, beta, initial_state, out, final_state;
};

double nominal_forward_flop(const GdnDims& d) {
    constexpr double k_chunk = 32;
    const auto dk = static_cast<double>(d.dk);
    const auto dv = static_cast<double>(d.dv);
    const double ratio = static_cast<double>(d.Hv) / static_cast<double>(d.Hk);
    const double per_token = 6 * dk * dv + 4 * k_chunk * dk / ratio + 3 * k_chunk * dv;
    return per_token * static_cast<double>(d.B * d.T * d.Hv);
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

Result<BenchInputs> BenchInputs::make(const GdnDims& dims, std::uint64_t seed) {
    GdnCase c;
    c.name = "bench";
    c.dims = dims;
    c.seed = seed;
    c.keys = KeyRecipe::unit;
    c.state_scale = 0.1;
    c.contract = {"l2norm=off", "head_map=interleaved"};
    BenchInputs inputs;
    inputs.m_arrays = std::make_shared<Arrays>();
    Arrays& a = *inputs.m_arrays;
    a.file = make_inputs(c);
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
        *array = Array(*tensor);
        inputs.m_checksum = mixed(inputs.m_checksum, array->values.get(), array->size);
    }
    a.out = Array(a.v.size);
    a.final_state = Array(a.initial_state.size);
    return inputs;
}

Forward32 BenchInputs::forward() const {
    const Arrays& a = *m_arrays;
    Forward32 f;
    f.dims = a.dims;
    f.sequences = a.sequences;
    f.q = a.q.values.get();
    f.k = a.k.values.get();
    f.v = a.v.values.get();
    f.g = a.g.values.get();
    f.beta = a.beta.values.get();
    f.initial_state = a.initial_state.values.get();
    f.out = a.out.values.get();
    f.final_state = a.final_state.values.get();
    f.scale = 1 / std::sqrt(static_cast<float>(a.dims.dk));
    return f;
}

void BenchInputs::poison_outputs() {
    for (const Array* x : {&m_arrays->out, &m_arrays->final_state}) {
        std::fill_n(x->values.get(), x->size, std::numeric_limits<float>::quiet_NaN());
    }
}

std::uint64_t BenchInputs::outputs_checksum() const {
    const Arrays& a = *m_arrays;
    return mixed(mixed(k_seed, a.out.values.get(), a.out.size), a.final_state.values.get(), a.final_state.size);
}

Result<GdnReference> BenchInputs::reference(int threads) const {
    GDNCTL_TRY_ASSIGN(auto contract, resolve_contract("marin", m_arrays->file.metadata, {}));
    GDNCTL_TRY_ASSIGN(auto problem, read_problem(m_arrays->file, contract));
    return make_reference(std::move(problem), std::move(contract), threads);
}

TensorFile BenchInputs::outputs(const GdnReference& reference) const {
    const Arrays& a = *m_arrays;
    GdnOutputs outputs;
    outputs.out.assign(a.out.values.get(), a.out.values.get() + a.out.size);
    outputs.final_state.assign(a.final_state.values.get(), a.final_state.values.get() + a.final_state.size);
    return outputs_file(reference.problem, reference.contract.value, outputs, DType::f32, DType::f32);
}

std::vector<std::string> timed_kernel_names() {
    std::vector<std::string> names;
    for (const Row& row : k_kernels) names.emplace_back(row.name);
    return names;
}

Result<TimedKernel> find_timed_kernel(std::string_view spelling) {
    for (const Row& row : k_kernels) {
        if (row.name == spelling) return TimedKernel{std::string(spelling), row.run};
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
