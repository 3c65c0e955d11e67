#include "harness/flashinfer/solution.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "harness/child/compile.h"
#include "platform/fs.h"

namespace gdnctl::harness::flashinfer {

// src/commands/solution/abi.h as text: solution_sources.cpp.in
extern const std::string_view k_solution_interface;

namespace {

using harness::Faulted;
using harness::KernelProcess;
using harness::Slot;
using harness::SolutionCall;
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

std::uint32_t slot_of(std::string_view input) {
    if (input == "state") input = "initial_state";
    for (std::uint32_t slot = 0; slot < harness::k_slots; ++slot) {
        if (name_of(static_cast<Slot>(slot)) == input) return slot;
    }
    return harness::k_no_argument;
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

class SolutionPass : public harness::ForeignPass {
public:
    SolutionPass(const harness::Task& task, const oracle::FreshWorkload& fresh, const SolutionKernel& kernel,
                 std::unique_ptr<KernelProcess> process)
        : ForeignPass(oracle::Pass::forward, task), m_fresh(fresh), m_kernel(kernel), m_process(std::move(process)) {}

protected:
    Faulted place(const TensorFile& /*inputs*/, const oracle::Disguise& disguise) override {
        m_placed = m_fresh.as_workload();
        apply(disguise, m_placed, m_fresh.contract().value.state_layout);
        m_call = m_kernel.call_for(m_placed);
        GDNCTL_TRY_ASSIGN(auto fault, m_process->open());
        if (fault) return fault;
        return m_process->prepare(m_call);
    }

    Faulted call() override { return m_process->call(); }

    Faulted collect(TensorFile& outputs) override {
        GDNCTL_TRY_ASSIGN(auto fault, m_process->collect(m_call, outputs));
        if (fault) return fault;
        GDNCTL_TRY(m_kernel.name_outputs(m_placed, m_fresh.contract(), task().threads, outputs));
        if (const Tensor* pool = outputs.find("pool"); pool != nullptr) {
            TensorFile got;
            TensorFile want;
            got.tensors = {{"pool", *pool}};
            want.tensors = {{"pool", m_kernel.pool(m_placed)}};
            if (oracle::flashinfer::apply_rule(got, want).status != oracle::flashinfer::TraceStatus::passed) {
                return KernelFault{KernelFaultKind::unsteady,
                                   "another result in a later run: final_state is not the pool as it was",
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
    const oracle::FreshWorkload& m_fresh;
    const SolutionKernel& m_kernel;
    std::unique_ptr<KernelProcess> m_process;
    TensorFile m_placed;
    SolutionCall m_call;
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
    : m_name(solution.name),
      m_entry("__tvm_ffi_" + solution.entry_function),
      m_library(folder / "solution.so"),
      m_definition(definition),
      m_limits(limits),
      m_context(context),
      m_process(context, m_library, limits, m_entry) {}

void SolutionKernel::use_pool(std::vector<std::int64_t> rows, std::int64_t states) {
    m_rows = std::move(rows);
    m_states = states;
}

std::string SolutionKernel::network() const {
    return m_opened ? std::string(gdnctl::name_of(m_process.barrier())) : std::string();
}

SolutionCall SolutionKernel::call_for(const TensorFile& inputs) const {
    SolutionCall call;
    const bool mtp = m_definition.stage == Stage::mtp;
    const Shape state = {m_states, m_definition.value_heads, m_definition.head_size, m_definition.head_size};
    for (const auto& spec : m_definition.definition.inputs) {
        auto& argument = call.arguments.emplace_back();
        const Tensor* tensor = inputs.find(spec.name);
        if (!spec.axes) {
            argument.what = harness::k_scale_argument;
            if (tensor != nullptr) call.scale = element(*tensor, 0);
            continue;
        }
        argument.what = slot_of(spec.name);
        if (spec.name == "initial_state_indices") {
            const std::vector<double> rows(m_rows.begin(), m_rows.end());
            argument.tensor = oracle::from_f64(rows, {static_cast<std::int64_t>(rows.size())}, oracle::DType::i32);
        } else if (spec.name == k_buffer) {
            Shape shape = state;
            shape.insert(shape.begin() + 1, inputs.find("q")->shape[1]);
            argument.tensor = {oracle::DType::f32, std::move(shape), {}};
        } else if (mtp && spec.name == "initial_state") {
            argument.tensor = pool(inputs);
        } else if (tensor != nullptr) {
            argument.tensor = *tensor;
        } else {
            argument.what = harness::k_no_argument;
        }
    }
    call.arguments.push_back(
        {static_cast<std::uint32_t>(Slot::out), {oracle::DType::bf16, inputs.find("v")->shape, {}}});
    call.arguments.push_back({static_cast<std::uint32_t>(Slot::final_state), {oracle::DType::f32, state, {}}});
    return call;
}

Result<KernelRun> SolutionKernel::run(const TensorFile& inputs, const oracle::ResolvedContract& contract, int threads) {
    KernelRun result;
    GDNCTL_TRY_ASSIGN(result.fault, m_process.open());
    if (result.fault) return result;
    m_opened = true;
    const SolutionCall call = call_for(inputs);
    GDNCTL_TRY_ASSIGN(result.fault, m_process.prepare(call));
    if (result.fault) return result;
    GDNCTL_TRY_ASSIGN(result.fault, m_process.call());
    if (result.fault) return result;
    GDNCTL_TRY_ASSIGN(result.fault, m_process.collect(call, result.outputs));
    if (result.fault) return result;
    GDNCTL_TRY(name_outputs(inputs, contract, threads, result.outputs));
    return result;
}

std::unique_ptr<harness::ForeignPass> SolutionKernel::timed(const harness::Task& task,
                                                            const oracle::FreshWorkload& fresh) const {
    return std::make_unique<SolutionPass>(task, fresh, *this,
                                          std::make_unique<KernelProcess>(m_context, m_library, m_limits, m_entry));
}

// Of mtp the states are what the buffer holds for the last token; where it was left alone, or several sequences share a
// row, nobody can tell, and the exact ones stand in.
Status SolutionKernel::name_outputs(const TensorFile& inputs, const oracle::ResolvedContract& contract, int threads,
                                    TensorFile& outputs) const {
    if (m_definition.stage != Stage::mtp) return {};
    Tensor& buffer = outputs.tensors.back().tensor;  // the last slot
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
            GDNCTL_TRY_ASSIGN(exact, kernel->run(inputs, contract, threads));
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
