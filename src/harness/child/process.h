// The folder in TMPDIR that a kernel under test is built and run in.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/result.h"
#include "harness/child/arena.h"
#include "harness/child/entry.h"
#include "oracle/judge/kernel.h"
#include "platform/context.h"
#include "platform/fs.h"
#include "platform/process.h"
#include "platform/sandbox.h"

namespace gdnctl::harness {

using Folder = TempFolder;
Result<Folder> make_folder(const Context& context);  // error: local_io

// A loaded kernel in a child process: arrays in shared memory, one call at a time, and what became of it.

class PythonHost;

struct Limits {
    std::chrono::milliseconds wall{60000};         // of one call, or one run of a program
    std::size_t memory = std::size_t{4096} << 20;  // bytes in addition to its tensors; 0: no limit (py: only)
    std::shared_ptr<PythonHost> python = {};       // where all py: kernels of a command run
};

using oracle::Faulted;

class KernelProcess {
public:
    // `kernel`: absolute path of a shared object, of a solution FUNCTION:PATH; `mode`: its kind (entry.h). Nothing
    // happens before open().
    KernelProcess(const Context& context, std::string kernel, Limits limits, std::string_view mode = k_gdn_mode)
        : m_context(context), m_kernel(std::move(kernel)), m_mode(mode), m_limits(std::move(limits)) {}
    KernelProcess(const KernelProcess&) = delete;
    KernelProcess& operator=(const KernelProcess&) = delete;
    ~KernelProcess() { close(); }

    // Starts the child and loads the kernel, unless one is running.
    Faulted open();
    // Of the kernel that open() has loaded; see Entry.
    std::uint32_t dtypes() const { return m_dtypes; }
    std::uint32_t entries() const { return m_entries; }
    std::int64_t chunk() const { return m_chunk; }
    NetworkBarrier barrier() const { return m_barrier; }

    // Puts a call's arrays where the kernel sees them, each time at other addresses, with outputs poisoned.
    Faulted prepare(Call call);
    // Calls the kernel.
    Faulted call();
    // Whether the outputs of the last call are whole; then they can be read, by the names of the call. The child is
    // stopped meanwhile, so that nothing is written after the answer.
    Faulted collect(oracle::TensorFile& outputs);

    // Ends the child.
    void close();

private:
    Faulted start();
    Faulted ask(Ask question, Answer expected, Reply& reply);
    Result<Reply> await(std::optional<oracle::KernelFault>& fault);
    // Joins the thread that waits for the child; what became of it.
    Result<ProcessResult> ended();
    Result<oracle::KernelFault> death();
    Result<oracle::KernelFault> ended_by_us(oracle::KernelFaultKind kind, std::string text);
    std::string fault_text(const ProcessResult& result) const;

    const Context& m_context;
    std::string m_kernel;
    std::string_view m_mode;
    Limits m_limits;
    Folder m_folder;
    SharedMemory m_memory;
    Header m_header;
    std::vector<Array> m_arrays;  // of the last call, without values
    UniqueFd m_asks, m_answers;
    std::optional<Reply> m_touched;  // what the child's signal handler said
    std::stop_source m_stop;
    std::atomic<pid_t> m_pid = 0;
    std::atomic<bool> m_gone = false;
    std::thread m_waiter;
    Result<ProcessResult> m_result = ProcessResult{};
    std::uint32_t m_dtypes = 0, m_entries = 0;
    std::int64_t m_chunk = 0;
    NetworkBarrier m_barrier = NetworkBarrier::none;
};

// "no result after 0.4 s"
std::string no_result_after(const Limits& limits);

// The end of what a kernel printed, for people.
std::string last_lines(const std::string& text);

// Our environment without what a kernel has no need of, for ProcessSpec::env with clean_env.
std::map<std::string, std::optional<std::string>> kernel_environment(const Context& context);

}  // namespace gdnctl::harness
