#include "harness/flashinfer/solution.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include <fmt/format.h>

#include "harness/child/library.h"
#include "oracle/gdn/bench/bench_arrays.h"
#include "oracle/gdn/under_test/call.h"
#include "oracle/tensor/random.h"
#include "platform/fs.h"

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

namespace gdnctl::harness::flashinfer {

// src/harness/child/solution_abi.h as text: solution_sources.cpp.in
extern const std::string_view k_solution_interface;

namespace {

using harness::Call;
using harness::Faulted;
using harness::Role;
using oracle::KernelFault;
using oracle::KernelFaultKind;
using oracle::KernelRun;
using oracle::Shape;
using oracle::Tensor;
using oracle::TensorFile;
using oracle::flashinfer::GdnDefinition;
using oracle::flashinfer::Solution;
using oracle::flashinfer::Stage;

constexpr std::string_view k_buffer = "intermediate_states_buffer";
constexpr std::uint32_t k_poison = 0x7FD1A5C3U;

bool is_name(std::string_view word) {
    return std::all_of(word.begin(), word.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    });
}

std::vector<std::string> words_for(const Solution& solution, const std::filesystem::path& folder) {
    std::vector<std::string> words = {"-shared", "-fPIC", "-I", folder.string()};
    for (const auto& source : solution.sources) {
        if (source.path.ends_with(".c")) words.push_back((folder / source.path).string());
    }
    words.insert(words.end(), {"-o", (folder / "solution.so").string(), "-lm"});
    return words;
}

// Rows of `from` put at other rows of `to`.
void copy_row(const Tensor& from, std::size_t row, Tensor& to, std::size_t at, std::size_t bytes) {
    std::copy_n(from.bytes.begin() + static_cast<std::ptrdiff_t>(row * bytes), bytes,
                to.bytes.begin() + static_cast<std::ptrdiff_t>(at * bytes));
}

bool is_poison(const Tensor& tensor, std::size_t first, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) {
        if (tensor.bytes[first + i] != static_cast<std::uint8_t>(k_poison >> 8 * (i % 4))) return false;
    }
    return true;
}

// [.., v, k] of fp32 to [.., k, v].
Tensor transposed(const Tensor& states) {
    const auto rows = static_cast<std::size_t>(states.shape[2]);
    const auto columns = static_cast<std::size_t>(states.shape[3]);
    Tensor result = states;
    std::swap(result.shape[2], result.shape[3]);
    const std::size_t count = states.count();
    for (std::size_t first = 0; first < count; first += rows * columns) {
        for (std::size_t i = 0; i < rows * columns; ++i) {
            const std::size_t to = first + i % columns * rows + i / columns;
            std::memcpy(result.bytes.data() + to * sizeof(float), states.bytes.data() + (first + i) * sizeof(float),
                        sizeof(float));
        }
    }
    return result;
}

class SolutionInputs : public harness::TimedInputs {
public:
    SolutionInputs(const harness::Task& task, const oracle::FreshWorkload& fresh, const SolutionKernel& kernel)
        : m_task(task), m_fresh(fresh), m_kernel(kernel) {}

    void set(const TensorFile& /*inputs*/, const oracle::Disguise& disguise) override {
        m_placed = m_fresh.as_workload();
        apply(disguise, m_placed, m_fresh.contract().value.state_layout);
    }

    Result<Call> call(std::size_t /*pass*/, std::uint32_t /*dtypes*/, int /*threads*/) override {
        return m_kernel.call_for(m_placed);
    }
    TensorFile file() const override { return m_placed; }

    Faulted name(TensorFile& outputs) override {
        GDNCTL_TRY(m_kernel.name_outputs(m_placed, m_fresh.contract(), m_task.threads, outputs));
        if (const Tensor* pool = outputs.find("pool"); pool != nullptr) {
            TensorFile got;
            TensorFile want;
            got.tensors = {{"pool", *pool}};
            want.tensors = {{"pool", m_kernel.pool(m_placed)}};
            if (oracle::flashinfer::apply_rule(got, want).status != oracle::flashinfer::TraceStatus::passed) {
                return KernelFault{KernelFaultKind::unsteady,
                                   "different result in a later run: final_state is not the unchanged pool",
                                   {}};
            }
        }
        const oracle::GdnDims& d = m_fresh.problem().dims;
        Tensor out = *outputs.find("out");
        out.shape = {d.B, d.T, d.Hv, d.dv};
        Tensor state = transposed(*outputs.find("final_state"));
        outputs.tensors = {{"out", std::move(out)}, {"final_state", std::move(state)}};
        return std::nullopt;
    }

private:
    harness::Task m_task;
    const oracle::FreshWorkload& m_fresh;
    const SolutionKernel& m_kernel;
    TensorFile m_placed;
};

// The workload itself.
class WorkloadInputs : public harness::Inputs {
public:
    WorkloadInputs(const TensorFile& inputs, const SolutionKernel& kernel) : m_inputs(inputs), m_kernel(kernel) {}

    Result<Call> call(std::size_t /*pass*/, std::uint32_t /*dtypes*/, int /*threads*/) override {
        return m_kernel.call_for(m_inputs);
    }
    TensorFile file() const override { return m_inputs; }

private:
    const TensorFile& m_inputs;
    const SolutionKernel& m_kernel;
};

}  // namespace

Faulted build_solution(const Solution& solution, const std::filesystem::path& folder, const Context& context) {
    if (!is_name(solution.entry_function)) {
        return KernelFault{
            KernelFaultKind::no_entry_point, fmt::format("'{}' is not a C function name", solution.entry_function), {}};
    }
    std::error_code problem;
    std::filesystem::create_directories(folder / "tvm" / "ffi", problem);
    std::filesystem::create_directories(folder / "dlpack", problem);
    GDNCTL_TRY(atomic_replace(folder / "tvm" / "ffi" / "c_api.h", k_solution_interface));
    GDNCTL_TRY(atomic_replace(folder / "dlpack" / "dlpack.h", k_solution_interface));
    return harness::compile("solution " + solution.name, words_for(solution, folder), folder, context);
}

SolutionKernel::SolutionKernel(const Solution& solution, const std::filesystem::path& folder,
                               const GdnDefinition& definition, const harness::Limits& limits, const Context& context)
    : m_entry("__tvm_ffi_" + solution.entry_function),
      m_library(folder / "solution.so"),
      m_definition(definition),
      m_limits(limits),
      m_context(context),
      m_kernel(m_library, m_entry, limits, context) {}

void SolutionKernel::use_pool(std::vector<std::int64_t> rows, std::int64_t states) {
    m_rows = std::move(rows);
    m_states = states;
}

Call SolutionKernel::call_for(const TensorFile& inputs) const {
    Call call;
    const bool mtp = m_definition.stage == Stage::mtp;
    const Shape state = {m_states, m_definition.value_heads, m_definition.head_size, m_definition.head_size};
    for (const auto& spec : m_definition.definition.inputs) {
        harness::Array& argument = call.arrays.emplace_back();
        argument.name = spec.name == "state" ? "initial_state" : spec.name;
        const Tensor* tensor = inputs.find(spec.name);
        if (!spec.axes) {
            argument.role = Role::number;
            if (tensor != nullptr) call.reals[0] = element(*tensor, 0);
        } else if (spec.name == "initial_state_indices") {
            const std::vector<double> rows(m_rows.begin(), m_rows.end());
            argument.tensor = oracle::from_f64(rows, {static_cast<std::int64_t>(rows.size())}, oracle::DType::i32);
        } else if (spec.name == k_buffer) {
            argument.role = Role::spare;
            argument.tensor = {oracle::DType::f32, state, {}};
            argument.tensor.shape.insert(argument.tensor.shape.begin() + 1, inputs.find("q")->shape[1]);
        } else if (mtp && spec.name == "initial_state") {
            argument.tensor = pool(inputs);
        } else if (tensor != nullptr) {
            argument.tensor = *tensor;
        } else {
            argument.role = Role::nothing;
        }
    }
    call.arrays.push_back({"out", Role::output, {oracle::DType::bf16, inputs.find("v")->shape, {}}});
    call.arrays.push_back({"final_state", Role::output, {oracle::DType::f32, state, {}}});
    return call;
}

Faulted SolutionKernel::place(const Asked& asked) {
    m_inputs = &static_cast<const oracle::GdnInputs&>(asked.inputs);
    m_threads = asked.threads;
    WorkloadInputs workload(m_inputs->tensors(), *this);
    return m_kernel.place({workload, 0, asked.threads});
}

Faulted SolutionKernel::collect(TensorFile& outputs) {
    GDNCTL_TRY_ASSIGN(auto fault, m_kernel.collect(outputs));
    if (!fault) GDNCTL_TRY(name_outputs(m_inputs->tensors(), m_inputs->contract(), m_threads, outputs));
    return fault;
}

std::unique_ptr<harness::TimedPass> SolutionKernel::timed(const harness::Task& task,
                                                          const oracle::FreshWorkload& fresh) const {
    return std::make_unique<harness::TimedPass>(
        oracle::Pass::forward, task, std::make_shared<harness::LoadedKernel>(m_library, m_entry, m_limits, m_context),
        std::make_unique<SolutionInputs>(task, fresh, *this));
}

// For mtp, the states are those in the buffer for the last token. If the buffer was not written, or several sequences
// share a row, they are unknown, and the exact states are used instead.
Status SolutionKernel::name_outputs(const TensorFile& inputs, const oracle::ResolvedContract& contract, int threads,
                                    TensorFile& outputs) const {
    if (m_definition.stage != Stage::mtp) return {};
    const Tensor& buffer = *outputs.find(k_buffer);
    const Tensor& given = *inputs.find("initial_state");
    Tensor states{oracle::DType::f32, given.shape, std::vector<std::uint8_t>(given.bytes.size())};
    const std::size_t bytes = states.bytes.size() / m_rows.size();
    const auto tokens = static_cast<std::size_t>(inputs.find("q")->shape[1]);
    std::optional<KernelRun> exact;
    for (std::size_t i = 0; i < m_rows.size(); ++i) {
        const std::size_t at = static_cast<std::size_t>(m_rows[i]) * tokens + tokens - 1;
        const bool shared = std::count(m_rows.begin(), m_rows.end(), m_rows[i]) > 1;
        if (!shared && !is_poison(buffer, at * bytes, bytes)) {
            copy_row(buffer, at, states, i, bytes);
            continue;
        }
        if (!exact) {
            GDNCTL_TRY_ASSIGN(const auto kernel, oracle::find_builtin_kernel("builtin:recurrent64"));
            GDNCTL_TRY_ASSIGN(exact, run_pass(*kernel, oracle::KernelPass::forward, inputs, contract, threads));
        }
        copy_row(*exact->outputs.find("final_state"), i, states, i, bytes);
    }
    Tensor pool = *outputs.find("final_state");
    outputs.tensors = {{"out", *outputs.find("out")}, {"final_state", std::move(states)}, {"pool", std::move(pool)}};
    return {};
}

Tensor SolutionKernel::pool(const TensorFile& inputs) const {
    const Tensor& states = *inputs.find("initial_state");
    const std::size_t bytes = states.bytes.size() / m_rows.size();
    Tensor pool{states.dtype,
                {m_states, m_definition.value_heads, m_definition.head_size, m_definition.head_size},
                std::vector<std::uint8_t>(bytes * static_cast<std::size_t>(m_states))};
    for (std::size_t i = 0; i < m_rows.size(); ++i) {
        copy_row(states, i, pool, static_cast<std::size_t>(m_rows[i]), bytes);
    }
    return pool;
}

}  // namespace gdnctl::harness::flashinfer
