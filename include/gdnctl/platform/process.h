// Child processes: own group, limits, and nothing left behind.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "gdnctl/core/result.h"

namespace gdnctl {

struct ProcessSpec {
    std::vector<std::string> argv;  // argv[0] is looked up in PATH unless it holds a slash
    std::filesystem::path cwd;      // empty: ours
    // nullopt value removes the variable; applied on top of our environment (or of nothing when `clean_env`).
    std::map<std::string, std::optional<std::string>> env;
    bool clean_env = false;

    std::string stdin_bytes;            // fed concurrently; empty: /dev/null
    std::filesystem::path stdin_file;   // wins over stdin_bytes when set
    std::filesystem::path stdout_file;  // empty: captured or handed to on_stdout_line
    std::filesystem::path stderr_file;
    bool merge_stderr = false;  // stderr goes where stdout goes

    // Called for each line (without newline) as it comes; the last one may have had none. Empty: captured.
    std::function<void(std::string_view)> on_stdout_line;
    std::function<void(std::string_view)> on_stderr_line;
    std::size_t capture_limit = 8u << 20;  // bytes kept of each captured stream; the rest is counted and dropped

    std::chrono::milliseconds wall_limit{0};  // 0: none
    std::chrono::milliseconds idle_limit{0};  // 0: none; time without a byte of output
    std::chrono::milliseconds grace{3000};    // between TERM and KILL
    std::stop_token stop;
};

struct ProcessResult {
    enum class End { exited, signalled, wall_limit, idle_limit, stopped };
    End end = End::exited;
    int exit_code = 0;  // of the program; for signals -N
    std::string out, err;
    bool out_truncated = false, err_truncated = false;
    std::chrono::milliseconds elapsed{0};
    int swept = 0;  // descendants that outlived the child and were ended
    bool ok() const { return end == End::exited && exit_code == 0; }
};

class Process {
public:
    virtual ~Process() = default;
    // Runs to the end. The child leads its own process group and dies with us; descendants that left the group are
    // found by ancestry (subreaper) and by the marker GDNCTL_PROCESS_MARK in their environment, and ended.
    // Errors: usage (argv empty), local_io (cannot start: names the program and why).
    virtual Result<ProcessResult> run(const ProcessSpec& spec) = 0;
};

Process& system_process();

}  // namespace gdnctl
