#include "harness/child/process.h"

#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/redact.h"
#include "core/text.h"
#include "gdn/gdn_kernel.h"
#include "harness/timing.h"
#include "platform/clock.h"
#include "platform/env.h"
#include "platform/fs.h"
#include "platform/signals.h"

namespace gdnctl::harness {

Result<Folder> make_folder(const Context& context) {
    const auto configured = context.env.get("TMPDIR").value_or("");
    return Folder::make(context.cwd / (configured.empty() ? "/tmp" : configured), "gdnctl-kernel");
}

namespace {

using oracle::KernelFault;
using oracle::KernelFaultKind;

constexpr int k_look_around_ms = 20;
constexpr std::chrono::milliseconds k_grace{50};

Status make_pipe(const std::filesystem::path& path) {
    if (mkfifo(path.c_str(), 0600) == 0) return {};
    return tl::unexpected(file_error(ErrorKind::local_io, "create a pipe at", path, errno));
}

std::string status_name(int status) {
    switch (status) {
        case GDN_INVALID: return "2 (GDN_INVALID)";
        case GDN_NO_MEMORY: return "3 (GDN_NO_MEMORY)";
        case GDN_FAILED: return "4 (GDN_FAILED)";
        default: return fmt::format("{}, which is not a status of gdn/gdn_kernel.h", status);
    }
}

KernelFault fault_of(KernelFaultKind kind, std::string text) { return {kind, std::move(text), {}}; }

}  // namespace

std::string no_result_after(const Limits& limits) {
    return fmt::format("no result after {} s", std::chrono::duration<double>(limits.wall).count());
}

std::string last_lines(const std::string& text) {
    constexpr std::size_t k_kept = 2000;
    return std::string(text::end_within(text::trim(text), k_kept));
}

std::map<std::string, std::optional<std::string>> kernel_environment(const Context& context) {
    std::map<std::string, std::optional<std::string>> kept;
    for (const auto& [name, value] : context.env.all()) {
        if (!names_a_secret(name) && !name.starts_with("GDNCTL_EVAL_")) kept[name] = value;
    }
    return kept;
}

Faulted KernelProcess::open() {
    if (m_waiter.joinable() && !m_gone) return std::nullopt;
    close();
    GDNCTL_TRY_ASSIGN(auto fault, start());
    if (fault) return fault;
    Reply reply;
    GDNCTL_TRY_ASSIGN(fault, ask(Ask::enter, Answer::entered, reply));
    if (fault) return fault;
    m_barrier = static_cast<NetworkBarrier>(reply.number);
    if (reply.value != 0) close_own_memory();
    GDNCTL_TRY_ASSIGN(fault, ask(Ask::load, Answer::loaded, reply));
    if (fault) return fault;
    m_dtypes = static_cast<std::uint32_t>(reply.value);
    m_entries = reply.entries;
    m_chunk = reply.number;
    return std::nullopt;
}

Faulted KernelProcess::start() {
    GDNCTL_TRY_ASSIGN(m_folder, make_folder(m_context));
    GDNCTL_TRY_ASSIGN(m_memory, SharedMemory::create());
    const auto& folder = m_folder.path();
    GDNCTL_TRY(make_pipe(folder / "ask"));
    GDNCTL_TRY(make_pipe(folder / "answer"));
    std::error_code problem;
    std::filesystem::create_symlink(m_memory.path(), folder / "memory", problem);
    // Held open for both directions, so that neither side waits for the other to come.
    m_asks.reset(::open((folder / "ask").c_str(), O_RDWR | O_CLOEXEC));
    m_answers.reset(::open((folder / "answer").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (problem || !m_asks.valid() || !m_answers.valid()) {
        return tl::unexpected(file_error(ErrorKind::local_io, "set up", folder, errno));
    }
    ProcessSpec spec;
    spec.argv = {m_context.program, "__kernel-host", std::string(m_mode), folder.string(), m_kernel};
    spec.cwd = m_context.cwd;
    spec.env = kernel_environment(m_context);
    spec.clean_env = true;
    spec.capture_limit = std::size_t{1} << 20U;
    spec.merge_stderr = true;
    spec.grace = k_grace;
    spec.inherited = m_memory.descriptor();
    m_stop = std::stop_source();
    spec.stop = m_stop.get_token();
    spec.on_start = [this](pid_t pid) { m_pid = pid; };
    m_gone = false;
    m_pid = 0;
    m_touched.reset();
    m_waiter = std::thread([this, spec] {
        m_result = m_context.process.run(spec);
        m_gone = true;
    });
    return std::nullopt;
}

void KernelProcess::close() {
    if (!m_waiter.joinable()) return;
    m_stop.request_stop();
    m_waiter.join();
    m_asks.reset();
    m_answers.reset();
    m_folder = Folder();
}

Result<ProcessResult> KernelProcess::ended() {
    m_waiter.join();
    m_asks.reset();
    m_answers.reset();
    return std::move(m_result);
}

std::string KernelProcess::fault_text(const ProcessResult& result) const {
    const std::string end = describe_end(result, {});
    if (!m_touched || m_touched->touch == Touch::elsewhere) return fmt::format("the kernel {}", end);
    const Reply& t = *m_touched;
    const char* did = t.wrote != 0 ? "wrote" : "read";
    if (t.touch == Touch::workspace) return fmt::format("{} outside its workspace, at byte {} of it", did, t.number);
    const Place& of = m_header.places[t.array];
    if (t.touch == Touch::input) return fmt::format("wrote to its input {}, at byte {}", of.name(), t.number);
    const auto bytes = static_cast<std::int64_t>(of.bytes);
    return t.touch == Touch::before ? fmt::format("{} {} bytes before the start of {}", did, -t.number, of.name())
                                    : fmt::format("{} {} bytes past the end of {}", did, t.number - bytes, of.name());
}

Result<KernelFault> KernelProcess::death() {
    GDNCTL_TRY_ASSIGN(const ProcessResult result, ended());
    const bool touched = m_touched && m_touched->touch != Touch::elsewhere;
    KernelFault fault{touched ? KernelFaultKind::out_of_bounds : KernelFaultKind::crashed, fault_text(result),
                      last_lines(result.out)};
    return fault;
}

Result<KernelFault> KernelProcess::ended_by_us(KernelFaultKind kind, std::string text) {
    m_stop.request_stop();
    GDNCTL_TRY_ASSIGN(const ProcessResult result, ended());
    return KernelFault{kind, std::move(text), last_lines(result.out)};
}

Result<Reply> KernelProcess::await(std::optional<KernelFault>& fault) {
    const auto deadline = m_context.clock.monotonic() + m_limits.wall;
    for (;;) {
        pollfd waiting{m_answers.get(), POLLIN, 0};
        poll(&waiting, 1, k_look_around_ms);
        Reply reply;
        if ((waiting.revents & POLLIN) != 0 && read(m_answers.get(), &reply, sizeof reply) == sizeof reply) {
            if (reply.answer != Answer::fault) return reply;
            m_touched = reply;
            continue;
        }
        // The child never opens its end a second time, so a hang-up is its death, as is the end of the wait for it.
        if ((waiting.revents & POLLHUP) != 0 || m_gone) {
            GDNCTL_TRY_ASSIGN(fault, death());
            return Reply{};
        }
        if (m_context.stop.stop_requested()) {
            close();
            return tl::unexpected(stopped_error());
        }
        if (m_context.clock.monotonic() > deadline) {
            GDNCTL_TRY_ASSIGN(fault, ended_by_us(KernelFaultKind::timed_out, no_result_after(m_limits)));
            return Reply{};
        }
        if (m_pid > 0 && private_memory(m_pid) > m_limits.memory) {
            GDNCTL_TRY_ASSIGN(fault,
                              ended_by_us(KernelFaultKind::memory_limit,
                                          fmt::format("used more than {} MiB of memory in addition to its tensors",
                                                      m_limits.memory >> 20U)));
            return Reply{};
        }
    }
}

Faulted KernelProcess::ask(Ask question, Answer expected, Reply& reply) {
    const std::string_view bytes(reinterpret_cast<const char*>(&question), sizeof question);
    if (const int problem = write_fully(m_asks.get(), bytes); problem != 0) {
        return fail(ErrorKind::local_io, fmt::format("cannot reach the kernel's process: {}", std::strerror(problem)));
    }
    std::optional<KernelFault> fault;
    GDNCTL_TRY_ASSIGN(reply, await(fault));
    if (fault) return fault;
    if (reply.answer == expected) return std::nullopt;
    const std::string text(reply.text.data());
    close();
    if (reply.answer == Answer::refused) {
        const auto kind = question == Ask::load ? KernelFaultKind::no_entry_point : KernelFaultKind::refused;
        return fault_of(kind, text);
    }
    return fail(ErrorKind::local_io, fmt::format("the kernel's process: {}", text));
}

Faulted KernelProcess::prepare(Call call) {
    const bool by_name = m_mode != k_solution_mode;
    if (by_name && (m_entries & (1U << call.entry)) == 0) {
        return fault_of(KernelFaultKind::no_entry_point,
                        fmt::format("has no entry point '{}' (it is NULL in {})", call.entry_name,
                                    m_mode == k_gdn_mode ? "gdn_kernel" : "linear_ce_kernel"));
    }
    m_header = lay_out(call);
    GDNCTL_TRY(m_memory.resize(m_header.bytes));
    fill(m_memory.data(), m_header, call);
    m_arrays = std::move(call.arrays);
    for (Array& array : m_arrays) array.tensor = {};
    Reply reply;
    return ask(Ask::map, Answer::mapped, reply);
}

Faulted KernelProcess::call() {
    Reply reply;
    const Stopwatch time(m_context.clock);
    GDNCTL_TRY_ASSIGN(auto fault, ask(Ask::call, Answer::done, reply));
    if (!fault) fault = wrong_clock(time);
    if (fault) return fault;
    if (reply.value == GDN_OK) return std::nullopt;
    if (m_mode == k_solution_mode) {
        return fault_of(KernelFaultKind::refused, fmt::format("the solution returned {}", reply.value));
    }
    if (reply.value == GDN_UNSUPPORTED) {
        return fault_of(KernelFaultKind::unsupported, "the kernel does not support this case");
    }
    return fault_of(KernelFaultKind::refused, fmt::format("the kernel returned {}", status_name(reply.value)));
}

Faulted KernelProcess::collect(oracle::TensorFile& outputs) {
    const pid_t group = m_gone ? 0 : -m_pid;
    if (group != 0) kill(group, SIGSTOP);
    const std::byte* memory = m_memory.data();
    const std::string beside = written_beside(memory, m_header);
    std::optional<KernelFault> fault;
    if (!beside.empty()) fault = fault_of(KernelFaultKind::out_of_bounds, beside);
    for (std::size_t i = 0; i < m_header.arrays; ++i) {
        const Place& place = m_header.places[i];
        if (!is_output(place.role)) continue;
        outputs.tensors.push_back({std::string(place.name()), read_array(memory, place)});
        const Unwritten left = count_unwritten(memory, place, m_arrays[i]);
        if (fault || left.count == 0) continue;
        fault = fault_of(
            KernelFaultKind::incomplete,
            fmt::format("{} of {} values of {} were not changed by the call: never written, or accumulated into",
                        left.count, left.of, place.name()));
    }
    if (group != 0) kill(group, SIGCONT);
    return fault;
}

}  // namespace gdnctl::harness
