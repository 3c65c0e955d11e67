// Child processes: own group, limits, and nothing left behind.
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
    std::vector<std::string> argv;  // argv[0] is looked up in PATH unless it holds a slash
    std::filesystem::path cwd;      // empty: ours
    // nullopt value removes the variable; applied on top of our environment (or of nothing when `clean_env`).
    std::map<std::string, std::optional<std::string>> env;
    bool clean_env = false;

    int death_signal = 9;      // what it gets when this program dies by whatever: SIGINT lets it put things in order
    bool new_session = false;  // setsid() instead of a process group of its own: no controlling terminal
    // A limit on the size of files is an error of its writes (EFBIG) and not its death (SIGXFSZ).
    bool survives_size_limit = false;

    std::string stdin_bytes;            // fed concurrently; empty: /dev/null
    std::filesystem::path stdin_file;   // wins over stdin_bytes when set
    std::filesystem::path stdout_file;  // appended to, created with mode 0600; empty: captured or on_stdout_line
    std::filesystem::path stderr_file;
    bool merge_stderr = false;  // stderr goes where stdout goes

    // Called for each line (without newline) as it comes; the last one may have had none; of a line longer than
    // capture_limit the rest is dropped. Empty: captured. What is shown to people goes through log:: or redact().
    std::function<void(std::string_view)> on_stdout_line;
    std::function<void(std::string_view)> on_stderr_line;
    // Called with bytes as they come, in pieces of any size; they win over the two above.
    std::function<void(std::string_view)> on_stdout, on_stderr;
    std::size_t capture_limit = std::size_t{8} << 20;  // bytes kept of each captured stream; the rest is dropped
    // Called once the program runs, with its process id, which is also its group's (and session's).
    std::function<void(pid_t)> on_start;

    std::chrono::milliseconds wall_limit{0};  // 0: none
    std::chrono::milliseconds idle_limit{0};  // 0: none; time without a byte of output (files included)
    // SIGINT goes to the program alone, and this long later TERM to everything; 0: TERM at once.
    std::chrono::milliseconds interrupt_grace{0};
    std::chrono::milliseconds grace{3000};  // between TERM and KILL
    // Called while the program runs, after its output and at least four times a second; false: it is to end.
    std::function<bool()> watch;
    // Descendants that shed group, session, parent and mark belong to this run also while others go on beside it. Of
    // several runs at once that ask for them none gets them before the others have ended.
    bool takes_strays = false;
    // Asked when the program has ended by itself, after the last line of its output that is there: true leaves what
    // it has started running, for good. Empty: everything is ended.
    std::function<bool(int exit_code)> leaves_behind;
    std::stop_token stop;
};

struct ProcessResult {
    enum class End {
        exited,      // by itself
        signalled,   // by a signal that we did not send
        wall_limit,  // we ended it
        idle_limit,
        stopped,
        watch,  // ProcessSpec::watch said so
    };
    End end = End::exited;
    int exit_code = 0;     // of the program; died of signal N: -N
    std::string out, err;  // what was captured
    bool out_truncated = false, err_truncated = false;
    std::chrono::milliseconds elapsed{0};
    struct Survivor {
        ProcessId id;
        std::string command;  // its words, shell-quoted; cut
        std::chrono::milliseconds age{0};
    };
    std::vector<Survivor> survivors;  // descendants that outlived the program, ended or left
    int swept = 0;                    // those that were ended
    bool ok() const { return end == End::exited && exit_code == 0; }
};

class Process {
public:
    virtual ~Process() = default;
    // Runs the program to its end, and with it everything that it has started. When it ends, is stopped or meets a
    // limit, it and all its descendants get TERM and, after `grace`, KILL. Descendants that left its group and session
    // are found by ancestry (this program becomes a subreaper) and by GDNCTL_PROCESS_MARK in their environment; a pipe
    // that they hold open keeps nobody waiting. Should this program be killed, the child is killed by the system.
    // Thread-safe. Errors: usage (argv empty), local_io (cannot be started: names the program and why; or a stream's
    // file). What the program does is never an error: see `end`.
    virtual Result<ProcessResult> run(const ProcessSpec& spec) = 0;
};

// What happened, for a message: "exited with code 3", "was killed by signal 9 (Killed)", "ran longer than 2 s", ...
std::string describe_end(const ProcessResult& result, const ProcessSpec& spec);

// The real one; logs each command at debug level.
Process& system_process();
// The real one with another clock for its limits. `clock` must outlive it.
std::unique_ptr<Process> make_process(Clock& clock);

}  // namespace gdnctl
