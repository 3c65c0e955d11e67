#include "harness/child/program.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include <fmt/format.h>

#include "core/text.h"
#include "harness/child/stopwatch.h"
#include "harness/files.h"
#include "oracle/tensor/formats.h"
#include "platform/clock.h"
#include "platform/descendants.h"
#include "platform/fs.h"
#include "platform/open_watch.h"
#include "platform/signals.h"

namespace gdnctl::harness {

namespace {

using oracle::KernelFault;
using oracle::KernelFaultKind;

constexpr std::chrono::milliseconds k_look_around{50};

// Private memory of the program and all that it has started.
std::size_t memory_of(pid_t pid) {
    std::size_t sum = private_memory(pid);
    for (const ProcessId& id : descendants_of(pid, all_processes())) sum += private_memory(id.pid);
    return sum;
}

}  // namespace

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
    if (!std::filesystem::exists(path, ignored)) {
        return KernelFault{KernelFaultKind::incomplete, "the program wrote no outputs file", m_said};
    }
    auto read = oracle_files::read(m_context, {path.string()}, {});
    if (!read) return KernelFault{KernelFaultKind::wrong_shape, read.error().text(), m_said};
    outputs = std::move(*read);
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

}  // namespace gdnctl::harness
