// cmd:COMMAND: a program that the shell runs in the working directory as COMMAND INPUTS.safetensors
// OUTPUTS.safetensors.
#include "harness/child/foreign_kernel.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "core/text.h"
#include "harness/child/process.h"
#include "harness/child/python_kernel.h"
#include "harness/files.h"
#include "harness/timing.h"
#include "oracle/judge/kernel.h"
#include "oracle/tensor/formats.h"
#include "platform/clock.h"
#include "platform/context.h"
#include "platform/descendants.h"
#include "platform/file_watch.h"
#include "platform/fs.h"
#include "platform/signals.h"

namespace gdnctl::harness {

namespace {

// Runs one after the other, each in a separate process.
class ProgramRun {
public:
    // `context` must outlive it.
    ProgramRun(std::string spelling, const Limits& limits, const Context& context)
        : m_spelling(std::move(spelling)), m_limits(limits), m_context(context) {}

    // Writes the inputs file of the next run into a separate folder.
    Status prepare(oracle::TensorFile inputs, int threads);
    // Runs the program from its start to its end.
    Faulted call();
    // Reads what that run wrote; the folder goes.
    Faulted collect(oracle::TensorFile& outputs);

    // What blocked the last run's network access.
    const std::string& network() const { return m_network; }

private:
    Result<ProcessResult> run_program(std::optional<oracle::KernelFault>& fault) const;

    std::string m_spelling;
    Limits m_limits;
    const Context& m_context;
    Folder m_folder;
    std::string m_network;
    std::string m_said;  // the end of what the last run printed
};

using oracle::KernelFault;
using oracle::KernelFaultKind;

constexpr std::chrono::milliseconds k_look_around{50};

// Private memory of the program and all that it has started.
std::size_t memory_of(pid_t pid) {
    std::size_t sum = private_memory(pid);
    for (const ProcessId& id : descendants_of(pid, all_processes())) sum += private_memory(id.pid);
    return sum;
}

// A usage error when the spelling names no command.
Status check_program(const std::string& spelling) {
    if (!text::trim(std::string_view(spelling).substr(4)).empty()) return {};
    return fail(ErrorKind::usage, "cmd: no command given", "for example --kernel 'cmd:python run.py'");
}

Status ProgramRun::prepare(oracle::TensorFile inputs, int threads) {
    GDNCTL_TRY_ASSIGN(m_folder, make_folder(m_context));
    inputs.metadata["threads"] = std::to_string(threads);
    const auto bytes = oracle::serialize_safetensors(inputs);
    return atomic_replace(m_folder.path() / "inputs.safetensors",
                          {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, 0600);
}

Faulted ProgramRun::call() {
    std::optional<KernelFault> fault;
    const OpenWatch inputs(m_folder.path() / "inputs.safetensors");
    const Stopwatch time(m_context.clock);
    GDNCTL_TRY_ASSIGN(ProcessResult end, run_program(fault));
    std::error_code ignored;
    if (std::filesystem::remove(m_folder.path() / "exposed", ignored)) {
        close_own_memory();
        GDNCTL_TRY_ASSIGN(end, run_program(fault));
    }
    if (!fault) fault = wrong_clock(time);
    m_said = last_lines(end.out);
    if (const auto network = read_file_if_exists(m_folder.path() / "network"); network && *network) {
        m_network = **network;
    }
    if (!fault && !end.ok()) {
        const bool at_start = !inputs.opened();
        fault = KernelFault{
            KernelFaultKind::crashed,
            fmt::format("the program {}{}", describe_end(end, {}), at_start ? " before it opened its inputs file" : ""),
            m_said, at_start};
    }
    return fault;
}

Faulted ProgramRun::collect(oracle::TensorFile& outputs) {
    const Folder folder = std::exchange(m_folder, Folder());
    const auto path = folder.path() / "outputs.safetensors";
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) {  // a pipe would never end
        return KernelFault{KernelFaultKind::incomplete, "the program wrote no outputs file", m_said};
    }
    auto read = oracle_files::read(m_context, {path.string()}, {});
    if (!read) return KernelFault{KernelFaultKind::wrong_shape, read.error().text(), m_said};
    outputs = std::move(*read);
    outputs.metadata.clear();  // the program's own words about its results count for nothing
    return std::nullopt;
}

Result<ProcessResult> ProgramRun::run_program(std::optional<KernelFault>& fault) const {
    ProcessSpec spec;
    spec.argv = {m_context.program, "__kernel-host", "program", m_folder.path().string(), m_spelling.substr(4)};
    spec.cwd = m_context.cwd;
    spec.env = kernel_environment(m_context);
    spec.clean_env = true;
    spec.merge_stderr = true;
    spec.capture_limit = std::size_t{1} << 20U;
    spec.wall_limit = m_limits.wall;
    std::stop_source stop;
    const std::stop_callback forward(m_context.stop, [&stop] { stop.request_stop(); });
    spec.stop = stop.get_token();
    std::atomic<bool> too_much = false;
    std::jthread watch;
    spec.on_start = [&](pid_t pid) {
        watch = std::jthread([&, pid](const std::stop_token& over) {
            while (system_clock().sleep_for(k_look_around, over)) {
                if (memory_of(pid) <= m_limits.memory) continue;
                too_much = true;
                stop.request_stop();
                return;
            }
        });
    };
    auto result = m_context.process.run(spec);
    watch = {};
    if (!result) return result;
    if (too_much) {
        fault = KernelFault{KernelFaultKind::memory_limit,
                            fmt::format("used more than {} MiB of memory", m_limits.memory >> 20U),
                            last_lines(result->out)};
    } else if (result->end == ProcessResult::End::stopped) {
        return tl::unexpected(stopped_error());
    } else if (result->end == ProcessResult::End::wall_limit) {
        fault = KernelFault{KernelFaultKind::timed_out, no_result_after(m_limits), last_lines(result->out)};
    }
    return result;
}

class ProgramKernel : public Kernel {
public:
    ProgramKernel(const std::string& spelling, const Limits& limits, const Context& context)
        : m_run(spelling, limits, context) {}

    // Each run is a process of its own, so little can carry over: the first case is run again, the others are not.
    bool worth_repeating() const override { return m_runs < k_repeated_runs; }
    Faulted place(const Asked& asked) override {
        ++m_runs;
        GDNCTL_TRY(m_run.prepare(asked.inputs.file(), asked.threads));
        return std::nullopt;
    }
    Faulted call() override { return m_run.call(); }
    Faulted collect(oracle::TensorFile& outputs) override { return m_run.collect(outputs); }
    std::string_view timed() const override { return "program"; }
    std::string network() const override { return m_run.network(); }

private:
    static constexpr int k_repeated_runs = 3;

    ProgramRun m_run;
    int m_runs = 0;
};

}  // namespace

LoadedKernel::LoadedKernel(Library library, const Limits& limits, const Context& context, std::string_view mode)
    : m_library(std::move(library)), m_process(context, m_library->path().string(), limits, mode) {}

LoadedKernel::LoadedKernel(const std::filesystem::path& library, const std::string& function, const Limits& limits,
                           const Context& context)
    : m_process(context, function + ":" + library.string(), limits, k_solution_mode) {}

Result<std::uint32_t> LoadedKernel::entries() {
    if (m_library && m_library->build_fault()) return 0U;
    GDNCTL_TRY_ASSIGN(const auto fault, m_process.open());
    return fault ? 0U : m_process.entries();
}

Faulted LoadedKernel::place(const Asked& asked) {
    if (m_library && m_library->build_fault()) return m_library->build_fault();
    GDNCTL_TRY_ASSIGN(auto fault, m_process.open());
    if (fault) {
        fault->at_start = !m_opened;
        return fault;
    }
    m_opened = true;
    GDNCTL_TRY_ASSIGN(auto call, asked.inputs.call(asked.pass, m_process.dtypes(), asked.threads));
    return m_process.prepare(std::move(call));
}

std::string LoadedKernel::network() const {
    return m_opened ? std::string(gdnctl::name_of(m_process.barrier())) : std::string();
}

Result<std::unique_ptr<Kernel>> open_foreign(const std::string& spelling, std::string_view mode, const Limits& limits,
                                             const Context& context) {
    if (is_library(spelling)) {
        GDNCTL_TRY_ASSIGN(Library library, Library::open(spelling, context));
        return std::make_unique<LoadedKernel>(std::move(library), limits, context, mode);
    }
    if (spelling.starts_with("cmd:")) {
        GDNCTL_TRY(check_program(spelling));
        return std::make_unique<ProgramKernel>(spelling, limits, context);
    }
    if (spelling.starts_with("py:")) return open_python(spelling, mode, limits, context);
    std::string hint = "name it lib:PATH, src:FILE.c, cmd:COMMAND, py:ADAPTER or builtin:NAME";
    if (spelling.ends_with(".c")) hint = fmt::format("did you mean `src:{}`?", spelling);
    if (spelling.ends_with(".so")) hint = fmt::format("did you mean `lib:{}`?", spelling);
    if (spelling.ends_with(".py"))
        hint = fmt::format("did you mean `py:{}{}`?", spelling.find('/') == std::string::npos ? "./" : "", spelling);
    return fail(ErrorKind::usage, fmt::format("unknown kind of kernel '{}'", spelling), hint);
}

}  // namespace gdnctl::harness
