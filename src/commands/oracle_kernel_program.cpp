#include "commands/oracle_kernel_program.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include <fmt/format.h>

#include "commands/job_submit.h"
#include "commands/oracle_files.h"
#include "gdnctl/core/text.h"
#include "gdnctl/oracle/tensor_formats.h"
#include "gdnctl/platform/clock.h"
#include "gdnctl/platform/descendants.h"
#include "gdnctl/platform/fs.h"
#include "gdnctl/platform/signals.h"

namespace gdnctl::commands::oracle_kernel {

namespace {

using oracle::KernelFault;
using oracle::KernelFaultKind;
using oracle::KernelRun;

constexpr std::chrono::milliseconds k_look_around{50};
// Each run is a process of its own, so little can carry over: the first case is run again, the others are not.
constexpr int k_repeated_runs = 3;

class Program : public oracle::KernelUnderTest {
public:
    Program(std::string spelling, const Limits& limits, const Context& context)
        : m_spelling(std::move(spelling)), m_limits(limits), m_context(context) {}

    std::string name() const override { return m_spelling; }
    bool worth_repeating() const override { return m_runs < k_repeated_runs; }
    std::string network() const override { return m_network; }

    Result<KernelRun> run(const oracle::TensorFile& inputs, const oracle::ResolvedContract& contract,
                          int threads) override {
        ++m_runs;
        GDNCTL_TRY_ASSIGN(const Folder folder, Folder::make(m_context));
        const auto in = folder.path() / "inputs.safetensors";
        const auto out = folder.path() / "outputs.safetensors";
        oracle::TensorFile asked = inputs;
        for (const auto& [field, value] : contract.as_metadata()) asked.metadata[field] = value;
        asked.metadata["threads"] = std::to_string(threads);
        const auto bytes = oracle::serialize_safetensors(asked);
        GDNCTL_TRY(atomic_replace(in, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, 0600));
        KernelRun result;
        GDNCTL_TRY_ASSIGN(const ProcessResult end, run_program(folder.path(), result.fault));
        if (const auto network = read_file_if_exists(folder.path() / "network"); network && *network) {
            m_network = **network;
        }
        if (!result.fault && !end.ok()) {
            result.fault = KernelFault{KernelFaultKind::crashed, fmt::format("the program {}", describe_end(end, {})),
                                       last_lines(end.out)};
        }
        if (!result.fault) read_outputs(out, end, result);
        return result;
    }

private:
    void read_outputs(const std::filesystem::path& path, const ProcessResult& end, KernelRun& result) const {
        std::error_code ignored;
        if (!std::filesystem::exists(path, ignored)) {
            result.fault =
                KernelFault{KernelFaultKind::incomplete, "the program wrote no outputs file", last_lines(end.out)};
            return;
        }
        auto outputs = oracle_files::read(m_context, {path.string()}, {});
        if (outputs) {
            result.outputs = std::move(*outputs);
        } else {
            result.fault = KernelFault{KernelFaultKind::wrong_shape, outputs.error().text(), last_lines(end.out)};
        }
    }

    // Private memory of the program and all that it has started.
    static std::size_t memory_of(pid_t pid) {
        std::size_t sum = private_memory(pid);
        for (const ProcessId& id : descendants_of(pid, all_processes())) sum += private_memory(id.pid);
        return sum;
    }

    Result<ProcessResult> run_program(const std::filesystem::path& folder, std::optional<KernelFault>& fault) const {
        ProcessSpec spec;
        spec.argv = {self_path(), "__kernel-host", "program", folder.string(), m_spelling.substr(4)};
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
                                fmt::format("took more than {} MiB of memory", m_limits.memory >> 20U),
                                last_lines(result->out)};
        } else if (result->end == ProcessResult::End::stopped) {
            return tl::unexpected(stopped_error());
        } else if (result->end == ProcessResult::End::wall_limit) {
            fault = KernelFault{KernelFaultKind::timed_out, no_result_after(m_limits), last_lines(result->out)};
        }
        return result;
    }

    std::string m_spelling;
    Limits m_limits;
    const Context& m_context;
    std::string m_network;
    int m_runs = 0;
};

}  // namespace

Result<std::unique_ptr<oracle::KernelUnderTest>> open_program(const std::string& spelling, const Limits& limits,
                                                              const Context& context) {
    if (text::trim(std::string_view(spelling).substr(4)).empty()) {
        return fail(ErrorKind::usage, "cmd: names no command", "as in --kernel 'cmd:python run.py'");
    }
    return std::make_unique<Program>(spelling, limits, context);
}

}  // namespace gdnctl::commands::oracle_kernel
