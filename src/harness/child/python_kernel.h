// Kernels that are Python functions, py:ADAPTER[:FUNCTION]. One Python process runs all of a command: it holds the
// accelerator, and compiles a function once for all inputs of a shape. Between it and us stands a keeper, which ends
// all of its descendants when one of the three ends.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "harness/child/host.h"
#include "harness/child/process.h"
#include "oracle/judge/kernel.h"
#include "platform/context.h"
#include "platform/fs.h"

namespace gdnctl::harness {

// What this program brings along (src/harness/python).
struct Adapter {
    std::string_view name, source;
};
std::span<const Adapter> python_adapters();
std::string_view python_host_source();

struct PythonOptions {
    std::string command = {};  // the interpreter as shell words; empty: the nearest virtual environment's, or python3
    std::vector<std::pair<std::string, std::string>> env = {};  // of the process, in addition to ours
    bool no_network = false;
    std::chrono::milliseconds wall{300000};  // of one call, with its compilation
    std::size_t memory = 0;                  // bytes; 0: no limit
    int buffers = 1;                         // sets of inputs in memory, among which calls rotate
    int chained = 0;                         // calls in one program, whose time gives that on the device; below 2: none
    bool chained_anywhere = false;           // not only on TPUs
};

class PythonHost {
public:
    // Nothing happens before the first question. `context` must outlive it.
    PythonHost(PythonOptions options, const Context& context);
    PythonHost(const PythonHost&) = delete;
    PythonHost& operator=(const PythonHost&) = delete;
    ~PythonHost();

    // Starts the process, unless it runs. Usage error: this is no Python interpreter with numpy.
    Status start();
    // The number of the process: what was opened in an earlier one is gone.
    int generation() const { return m_generation; }
    // Sends `question` and waits for the answer. A fault: the process has ended, or was ended because of the limits.
    Result<Json> ask(Json question, std::optional<oracle::KernelFault>& fault);
    // Of an embedded adapter, once it is started.
    std::filesystem::path adapter_file(std::string_view name) const;
    // A file for tensors, in shared memory where there is any.
    Result<std::filesystem::path> tensor_file(std::string_view name);
    // Whether the process ended too often in a row to be worth another try; `note_success` begins anew.
    bool has_given_up() const { return m_deaths >= k_most_deaths; }
    void note_success() { m_deaths = 0; }

    const std::vector<std::pair<std::string, std::string>>& variables() const { return m_variables; }
    std::string network() const;
    const PythonOptions& options() const { return m_options; }

private:
    static constexpr int k_most_deaths = 3;

    struct Child;  // the keeper, and the pipes to the process

    std::string interpreter() const;
    Status launch();
    Status make_tensor_folder();  // if there is none
    void close();
    Result<std::optional<Json>> await(std::chrono::milliseconds limit, std::size_t memory,
                                      std::optional<oracle::KernelFault>& fault);
    oracle::KernelFault death(std::string text, oracle::KernelFaultKind kind);

    PythonOptions m_options;
    const Context& m_context;
    std::vector<std::pair<std::string, std::string>> m_variables;  // those of m_options and of ours that change results
    std::unique_ptr<Child> m_child;
    Folder m_tensors;
    int m_generation = 0, m_deaths = 0, m_last_id = 0;
};

// The kernel of that spelling; `mode` as open_foreign() has it. Usage errors: no such adapter, no such file.
Result<std::unique_ptr<oracle::Kernel>> open_python(const std::string& spelling, std::string_view mode,
                                                    const Limits& limits, const Context& context);

// The keeper: runs the interpreter (shell words) on FOLDER/kernel_host.py, with pipes FOLDER/ask and FOLDER/answer,
// until it ends or `context` is stopped. If our parent was killed, it removes what that could not.
Result<ExitCode> keep_python(const HostOptions& options, Context& context);

}  // namespace gdnctl::harness
