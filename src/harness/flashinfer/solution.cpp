#include "harness/flashinfer/solution.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "harness/child/compile.h"
#include "platform/fs.h"

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
