// Child processes with a group of their own, limits, and no leftovers.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "core/result.h"
#include "platform/clock.h"
#include "platform/descendants.h"

namespace gdnctl {

struct ProcessSpec {
    std::vector<std::string> argv;  // argv[0] is looked up in PATH unless it contains a slash
    std::filesystem::path cwd;      // empty: ours
    // nullopt removes the variable; applied on top of our environment (or of an empty one if `clean_env`).
    std::map<std::string, std::optional<std::string>> env;
    bool clean_env = false;

    int inherited = -1;        // a descriptor of ours that the child has under the same number
    int death_signal = 9;      // sent to the child when gdnctl dies for any reason; SIGINT lets it clean up
    bool new_session = false;  // setsid() instead of a new process group: no controlling terminal
    // At a file size limit, the child's write fails with EFBIG instead of SIGXFSZ ending it.
    bool survives_size_limit = false;

    std::string stdin_bytes;            // written concurrently; empty: /dev/null
    std::filesystem::path stdin_file;   // overrides stdin_bytes when set
    int stdin_fd = -1;                  // what can be read from it follows stdin_bytes, until its end; -1: nothing
    std::function<bool()> stdin_ready;  // asked before stdin_fd is read; empty: at once
    std::filesystem::path stdout_file;  // appended to, created with mode 0600; empty: captured or on_stdout_line
    std::filesystem::path stderr_file;
    bool merge_stderr = false;  // stderr goes to the same place as stdout

    // Called for each line (without newline) as it arrives, including a last one without newline. Anything beyond
    // capture_limit in a line is dropped. Empty: the output is captured. Use log:: or redact() for text that people
    // see.
    std::function<void(std::string_view)> on_stdout_line;
    std::function<void(std::string_view)> on_stderr_line;
    // Called with bytes as they arrive, in pieces of any size. They override the two above.
    std::function<void(std::string_view)> on_stdout, on_stderr;
    std::size_t capture_limit = std::size_t{8} << 20;  // bytes kept of each captured stream; the rest is dropped
    // Called once the program runs, with its process id, which is also its process group (and session).
    std::function<void(pid_t)> on_start;

    std::chrono::milliseconds wall_limit{0};  // 0: none
    std::chrono::milliseconds idle_limit{0};  // 0: none; time without a byte of output (files included)
    // When gdnctl ends the program, SIGINT goes to it alone, and TERM to all processes this much later; 0: TERM at
    // once.
    std::chrono::milliseconds interrupt_grace{0};
    std::chrono::milliseconds grace{3000};  // between TERM and KILL
    // Called while the program runs, after its output and at least four times a second; false ends the program.
    std::function<bool()> watch;
    // Strays are descendants that shed group, session, parent and mark. If set, they belong to this run even while
    // other runs are active. If several active runs set it, none gets strays until the others have ended.
    bool takes_strays = false;
    // Called when the program has exited by itself, after the last line of its output. True: processes that it started
    // keep running. Empty: they are all ended.
    std::function<bool(int exit_code)> leaves_behind;
    std::stop_token stop;
};

struct ProcessResult {
    enum class End {
        exited,      // by itself
        signalled,   // by a signal that we did not send
        wall_limit,  // gdnctl ended it
        idle_limit,
        stopped,
        watch,  // ProcessSpec::watch returned false
    };
    End end = End::exited;
    int exit_code = 0;     // of the program; killed by signal N: -N
    std::string out, err;  // the captured output
    bool out_truncated = false, err_truncated = false;
    std::chrono::milliseconds elapsed{0};
    struct Survivor {
        ProcessId id;
        std::string command;  // its argv, shell-quoted and cut
        std::chrono::milliseconds age{0};
    };
    std::vector<Survivor> survivors;  // descendants that outlived the program, whether ended or left running
    int swept = 0;                    // how many were ended
    bool ok() const { return end == End::exited && exit_code == 0; }
};

class Process {
public:
    virtual ~Process() = default;
    // Runs the program to its end. When it ends, is stopped or reaches a limit, it and all its descendants get TERM
    // and, after `grace`, KILL. Descendants that left its group and session are found by ancestry (gdnctl becomes a
    // subreaper) and by GDNCTL_PROCESS_MARK in their environment. A pipe that they hold open does not delay the return.
    // If gdnctl is killed, the system kills the child. Thread-safe. Errors: usage (argv empty), local_io (cannot be
    // started: names the program and why; or a stream's file). A failure of the program itself is never an error: see
    // `end`.
    virtual Result<ProcessResult> run(const ProcessSpec& spec) = 0;
};

// How the program ended, for a message: "exited with code 3", "was killed by signal 9 (Killed)", "ran longer than 2 s",
// ...
std::string describe_end(const ProcessResult& result, const ProcessSpec& spec);

// Starts real processes; logs each command at debug level.
Process& system_process();
// The same with another clock for its limits. `clock` must outlive it.
std::unique_ptr<Process> make_process(Clock& clock);

// Words in the form that exec() takes.

// A pointer to each word, then a null pointer. They point into `words`, which must outlive them unchanged.
inline std::vector<char*> exec_words(std::vector<std::string>& words) {
    std::vector<char*> pointers;
    pointers.reserve(words.size() + 1);
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    return pointers;
}

// Runs a child that takes over our terminal: a remote shell, an editor.

// Runs the program with our standard streams, in our process group, and returns its exit code (128 + N for a signal).
// Ctrl-C is the child's business meanwhile; a requested stop hangs it up. Error: local_io (it cannot be started).
Result<int> run_in_terminal(const std::vector<std::string>& argv, const std::stop_token& stop);

}  // namespace gdnctl
