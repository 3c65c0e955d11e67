#include "commands/oracle_flashinfer_program.h"

#include <algorithm>

#include <fmt/format.h>

#include "commands/oracle_compile.h"
#include "commands/oracle_kernel_program.h"
#include "gdnctl/core/text.h"
#include "gdnctl/platform/fs.h"

namespace gdnctl::commands::oracle_flashinfer {

// src/commands/solution/ as text: solution_sources.cpp.in
extern const std::string_view k_solution_interface;
extern const std::string_view k_solution_program;

namespace {

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

// The generated lines in front of the program.
std::string program_text(const Solution& solution, const GdnDefinition& definition) {
    std::string arguments;
    for (const auto& spec : definition.definition.inputs) {
        arguments += fmt::format(" X({}, {})", spec.name,
                                 spec.name == k_buffer ? "F32"
                                 : spec.axes           ? "READ"
                                                       : "SCALAR");
    }
    for (const auto& spec : definition.definition.outputs) {
        arguments += fmt::format(" X({}, {})", spec.name, spec.dtype == "bfloat16" ? "BF16" : "F32");
    }
    return fmt::format("#include <tvm/ffi/c_api.h>\n#define ENTRY __tvm_ffi_{}\n#define ARGUMENTS{}\n{}",
                       solution.entry_function, arguments, k_solution_program);
}

bool is_name(std::string_view word) {
    return std::all_of(word.begin(), word.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    });
}

std::vector<std::string> words_for(const Solution& solution, const std::filesystem::path& folder) {
    std::vector<std::string> words = {"-I", folder.string(), (folder / "gdnctl_program.c").string()};
    for (const auto& source : solution.sources) {
        if (source.path.ends_with(".c")) words.push_back((folder / source.path).string());
    }
    words.insert(words.end(), {"-o", (folder / "solution").string(), "-lm"});
    return words;
}

Tensor sizes(const Shape& shape) { return oracle::from_i64(shape, {static_cast<std::int64_t>(shape.size())}); }

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

}  // namespace

oracle_kernel::Faulted build_solution(const Solution& solution, const GdnDefinition& definition,
                                      const std::filesystem::path& folder, const Context& context) {
    if (!is_name(solution.entry_function)) {
        return KernelFault{KernelFaultKind::no_entry_point,
                           fmt::format("'{}' is no name of a function in C", solution.entry_function),
                           {}};
    }
    std::error_code problem;
    std::filesystem::create_directories(folder / "tvm" / "ffi", problem);
    std::filesystem::create_directories(folder / "dlpack", problem);
    GDNCTL_TRY(atomic_replace(folder / "tvm" / "ffi" / "c_api.h", k_solution_interface));
    GDNCTL_TRY(atomic_replace(folder / "dlpack" / "dlpack.h", k_solution_interface));
    GDNCTL_TRY(atomic_replace(folder / "gdnctl_program.c", program_text(solution, definition)));
    return oracle_kernel::compile("solution " + solution.name, words_for(solution, folder), folder, context);
}

SolutionKernel::SolutionKernel(std::string name, const std::filesystem::path& folder, const GdnDefinition& definition,
                               const oracle_kernel::Limits& limits, const Context& context)
    : m_name(std::move(name)),
      m_spelling("cmd:exec " + text::shell_quote((folder / "solution").string())),
      m_definition(definition),
      m_limits(limits),
      m_context(context) {}

void SolutionKernel::use_pool(std::vector<std::int64_t> rows, std::int64_t states) {
    m_rows = std::move(rows);
    m_states = states;
}

// The inputs by the definition's names: the pool instead of the states that were taken from it, and shapes of outputs.
TensorFile SolutionKernel::asked(const TensorFile& inputs) const {
    TensorFile file;
    const Tensor& q = *inputs.find("q");
    const Tensor& v = *inputs.find("v");
    for (const auto& entry : inputs.tensors) {
        if (entry.name != "initial_state") file.tensors.push_back(entry);
    }
    Shape state = {m_states, m_definition.value_heads, m_definition.head_size, m_definition.head_size};
    file.tensors.push_back({"output.shape", sizes(v.shape)});
    const bool mtp = m_definition.stage == Stage::mtp;
    file.tensors.push_back({mtp ? "final_state.shape" : "new_state.shape", sizes(state)});
    if (!mtp) return file;
    const Tensor& states = *inputs.find("initial_state");
    const std::size_t bytes = states.bytes.size() / m_rows.size();
    Tensor pool{states.dtype, state, {}};
    pool.bytes.assign(bytes * static_cast<std::size_t>(m_states), 0);
    std::vector<double> rows;
    for (std::size_t i = 0; i < m_rows.size(); ++i) {
        copy_row(states, i, pool, static_cast<std::size_t>(m_rows[i]), bytes);
        rows.push_back(static_cast<double>(m_rows[i]));
    }
    file.tensors.push_back({"initial_state", std::move(pool)});
    file.tensors.push_back({"initial_state_indices",
                            oracle::from_f64(rows, {static_cast<std::int64_t>(rows.size())}, oracle::DType::i32)});
    state.insert(state.begin() + 1, q.shape[1]);
    file.tensors.push_back({std::string(k_buffer) + ".shape", sizes(state)});
    return file;
}

Result<KernelRun> SolutionKernel::run(const TensorFile& inputs, const oracle::ResolvedContract& contract, int threads) {
    if (!m_program) {
        GDNCTL_TRY_ASSIGN(m_program, oracle_kernel::open_program(m_spelling, m_limits, m_context));
    }
    GDNCTL_TRY_ASSIGN(KernelRun result, m_program->run(asked(inputs), contract, threads));
    if (!result.fault) GDNCTL_TRY(name_outputs(inputs, contract, threads, result));
    return result;
}

Result<KernelRun> SolutionKernel::run_trials(const TensorFile& inputs, const oracle::ResolvedContract& contract,
                                             int threads, const TrialOptions& trials, std::vector<double>& medians) {
    oracle_kernel::Limits limits = m_limits;
    limits.wall *= (trials.warmup + trials.iterations) * trials.trials + 1;
    GDNCTL_TRY_ASSIGN(const auto program, oracle_kernel::open_program(m_spelling, limits, m_context));
    TensorFile file = asked(inputs);
    file.tensors.push_back({"trials", sizes({trials.warmup, trials.iterations, trials.trials})});
    GDNCTL_TRY_ASSIGN(KernelRun result, program->run(file, contract, threads));
    if (result.fault) return result;
    const Tensor* latencies = result.outputs.find("latency_ms");
    if (latencies == nullptr || latencies->count() != static_cast<std::size_t>(trials.trials)) {
        result.fault = KernelFault{KernelFaultKind::incomplete, "the program says nothing of its time", {}};
        return result;
    }
    medians = oracle::to_f64(*latencies);
    GDNCTL_TRY(name_outputs(inputs, contract, threads, result));
    return result;
}

// From the definition's outputs to `out` and `final_state`. Of mtp the states are what the buffer holds for the last
// token; where it was left alone, or several sequences share a row, nobody can tell, and the exact ones stand in.
Status SolutionKernel::name_outputs(const TensorFile& inputs, const oracle::ResolvedContract& contract, int threads,
                                    KernelRun& run) const {
    const bool mtp = m_definition.stage == Stage::mtp;
    for (const std::string_view name :
         {std::string_view("output"), std::string_view(mtp ? "final_state" : "new_state")}) {
        if (run.outputs.find(name) != nullptr) continue;
        run.fault = KernelFault{KernelFaultKind::incomplete, fmt::format("{} was not returned at all", name), {}};
        return {};
    }
    TensorFile named;
    named.tensors.push_back({"out", *run.outputs.find("output")});
    if (!mtp) {
        named.tensors.push_back({"final_state", *run.outputs.find("new_state")});
        run.outputs = std::move(named);
        return {};
    }
    const Tensor* buffer = run.outputs.find(k_buffer);
    GDNCTL_TRY_ASSIGN(const auto exact, oracle::find_builtin_kernel("builtin:recurrent64"));
    GDNCTL_TRY_ASSIGN(const KernelRun truth, exact->run(inputs, contract, threads));
    Tensor states = *truth.outputs.find("final_state");
    const std::size_t bytes = states.bytes.size() / m_rows.size();
    const auto tokens = static_cast<std::size_t>(inputs.find("q")->shape[1]);
    for (std::size_t i = 0; buffer != nullptr && i < m_rows.size(); ++i) {
        const std::size_t at = static_cast<std::size_t>(m_rows[i]) * tokens + tokens - 1;
        const bool shared = std::count(m_rows.begin(), m_rows.end(), m_rows[i]) > 1;
        if (!shared && !is_poison(*buffer, at * bytes, bytes)) copy_row(*buffer, at, states, i, bytes);
    }
    named.tensors.push_back({"final_state", std::move(states)});
    named.tensors.push_back({"pool", *run.outputs.find("final_state")});
    run.outputs = std::move(named);
    return {};
}

Tensor SolutionKernel::pool(const TensorFile& inputs) const {
    const TensorFile file = asked(inputs);
    return *file.find("initial_state");
}

}  // namespace gdnctl::commands::oracle_flashinfer
