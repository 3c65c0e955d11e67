#include "harness/flashinfer/fresh_workload.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "oracle/gdn/bench/bench_arrays.h"
#include "oracle/gdn/under_test/call.h"
#include "oracle/tensor/random.h"

namespace gdnctl::oracle {

namespace {

using flashinfer::GdnDefinition;
using flashinfer::Workload;
using flashinfer::WorkloadInputs;

double squares_of(const double* row, std::size_t width) {
    double sum = 0;
    for (std::size_t i = 0; i < width; ++i) sum += row[i] * row[i];
    return sum;
}

void vary_values(double* values, std::size_t count, Random& random) {
    for (std::size_t i = 0; i < count; ++i) values[i] *= random.uniform(0.75, 1.25);
}

void vary_row_of_same_length(double* row, std::size_t width, Random& random) {
    const double before = squares_of(row, width);
    vary_values(row, width, random);
    const double factor = std::sqrt(before / squares_of(row, width));
    if (!std::isfinite(factor)) return;
    for (std::size_t i = 0; i < width; ++i) row[i] *= factor;
}

// `stream`: its own for each tensor. States that are the same row of a pool stay the same.
void vary_tensor(NamedTensor& entry, const std::vector<std::int64_t>& state_row, std::uint64_t seed,
                 std::uint64_t stream) {
    std::vector<double> values = to_f64(entry.tensor);
    if (values.empty()) return;
    const std::string_view name = canonical_name(entry.name).canonical;
    if (name == "initial_state") {
        const std::size_t width = values.size() / state_row.size();
        for (std::size_t i = 0; i < state_row.size(); ++i) {
            Random random(seed, (stream << 32U) + static_cast<std::uint64_t>(state_row[i]));
            vary_values(values.data() + i * width, width, random);
        }
    } else {
        Random random(seed, stream << 32U);
        if (name == "q" || name == "k") {
            const auto width = static_cast<std::size_t>(entry.tensor.shape.back());
            for (std::size_t at = 0; at < values.size(); at += width) {
                vary_row_of_same_length(values.data() + at, width, random);
            }
        } else {
            vary_values(values.data(), values.size(), random);
        }
    }
    entry.tensor = from_f64(values, entry.tensor.shape, entry.tensor.dtype);
}

}  // namespace

struct FreshWorkload::Parts {
    std::reference_wrapper<const GdnDefinition> definition;
    std::reference_wrapper<const Workload> workload;
    std::map<std::string, Tensor> loaded;
    ResolvedContract contract;
    WorkloadInputs inputs = {};
    GdnProblem problem = {};
    KernelCall call = {};
    TensorFile file = {};

    Status read() {
        GDNCTL_TRY_ASSIGN(problem, read_problem(inputs.file, contract));
        call = make_call(problem, contract.value, false);
        file.tensors = {{"q", call.q}, {"k", call.k}, {"v", call.v}, {"g", call.g}, {"beta", call.beta}};
        if (call.initial_state) file.tensors.push_back({"initial_state", *call.initial_state});
        return {};
    }
};

Result<FreshWorkload> FreshWorkload::make(const GdnDefinition& definition, const Workload& workload,
                                          std::map<std::string, Tensor> loaded, ResolvedContract contract) {
    FreshWorkload fresh;
    fresh.m_parts = std::make_shared<Parts>(Parts{definition, workload, std::move(loaded), std::move(contract)});
    Parts& parts = *fresh.m_parts;
    GDNCTL_TRY_ASSIGN(parts.inputs, make_workload_inputs(definition, workload, parts.loaded));
    GDNCTL_TRY(parts.read());
    return fresh;
}

Status FreshWorkload::draw(std::uint64_t seed) {
    Parts& p = *m_parts;
    GDNCTL_TRY_ASSIGN(p.inputs, make_workload_inputs(p.definition, p.workload, p.loaded, seed));
    std::uint64_t stream = 0;
    for (NamedTensor& entry : p.inputs.file.tensors) {
        ++stream;
        const auto& random = p.inputs.random;
        if (!is_floating(entry.tensor.dtype) || entry.name == "scale") continue;
        if (std::find(random.begin(), random.end(), entry.name) != random.end()) continue;
        vary_tensor(entry, p.inputs.state_row, seed, stream);
    }
    const GdnContract& contract = p.contract.value;
    apply(Disguise(p.problem.dims, contract.head_map, seed), p.inputs.file, contract.state_layout);
    return p.read();
}

const TensorFile& FreshWorkload::file() const { return m_parts->file; }
const TensorFile& FreshWorkload::as_workload() const { return m_parts->inputs.file; }
const GdnProblem& FreshWorkload::problem() const { return m_parts->problem; }
const ResolvedContract& FreshWorkload::contract() const { return m_parts->contract; }

double FreshWorkload::distance(const TensorFile& outputs, Pass /*pass*/, int threads) {
    const Parts& p = *m_parts;
    const KernelCall& call = p.call;
    const Tensor* got = outputs.find("out");
    const bool narrow = got != nullptr && got->dtype == DType::bf16;
    const BenchArray q(call.q, Storage::f32);
    const BenchArray k(call.k, Storage::f32);
    const BenchArray v(call.v, Storage::f32);
    const BenchArray g(call.g, Storage::f32);
    const BenchArray beta(call.beta, Storage::f32);
    const BenchArray state(call.initial_state.value_or(Tensor{DType::f32, {0}, {}}), Storage::f32);
    const BenchArray out(call.v.count(), narrow ? Storage::bf16 : Storage::f32);
    const auto& d = call.dims;
    const BenchArray final_state(static_cast<std::size_t>(call.sequences * d.Hv * d.dk * d.dv));
    Forward32 f;
    f.dims = d;
    f.sequences = p.problem.sequences;
    f.head_map = p.contract.value.head_map;
    f.q = q.read();
    f.k = k.read();
    f.v = v.read();
    f.g = g.values.get();
    f.beta = beta.values.get();
    f.initial_state = call.initial_state ? state.values.get() : nullptr;
    f.out = out.stored();
    f.final_state = final_state.values.get();
    f.scale = static_cast<float>(call.scale);
    fused_forward(f, threads, best_isa());
    return std::max(distance_of(got, out), distance_of(outputs.find("final_state"), final_state));
}

Result<GdnReference> FreshWorkload::reference(int threads) const {
    GdnReference reference = make_reference(m_parts->problem, m_parts->contract, threads);
    reference.problem.packed = false;
    reference.contract.value.state_layout = StateLayout::key_value;
    return reference;
}

}  // namespace gdnctl::oracle
