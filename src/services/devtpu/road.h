// How commands reach the host of a held TPU: by ssh, or directly where it is this machine. Both run the same small
// scripts; what they are given comes through their standard input, so nothing of it shows in a list of processes.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "platform/process.h"
#include "services/job/job.h"

namespace gdnctl::devtpu {

struct Road {
    std::vector<std::string> ssh;  // "ssh", its options, the alias; empty: this machine
    std::string base;              // our own folder there, as a shell word: "$HOME/.gdnctl"
    std::string tree;              // the synced tree, as a shell word: "$HOME/marin"
    std::string lease;             // the lease file; empty: another program holds the TPU
    bool is_local() const { return ssh.empty(); }
};

// `options` come between "ssh" and the alias; BatchMode is among them for all but what a person types into.
Road ssh_road(std::vector<std::string> options, std::string_view tpu_name, std::string_view submission_id);
Road local_road(const std::filesystem::path& hold_folder, std::string_view submission_id);
std::filesystem::path local_lease(const std::filesystem::path& hold_folder, std::string_view submission_id);

// argv that runs a line of POSIX shell there, whatever the login shell is.
std::vector<std::string> road_argv(const Road& road, std::string_view line);

// Runs a line there with `input` as its standard input, and gives back its output. Errors: authentication (ssh:
// Permission denied), infrastructure (ssh fails, names why; no answer in time; the host's disk is full), interrupted.
struct Answer {
    int exit_code = 0;
    std::string out, err;
};
Result<Answer> ask_host(const Road& road, std::string_view line, std::string input, std::chrono::milliseconds limit,
                        Process& process, std::stop_token stop);

// Why ssh ended with 255, from its last words. Pure.
Error ssh_error(std::string_view stderr_text);

// The line that renews a lease where there is one, and with it a run's record (empty: none). Pure.
std::string touch_line(std::string_view lease, std::string_view record);
// Runs it. Errors: those of ask_host(); remote_missing when the holder's lease file is not there.
Status touch_lease(const Road& road, std::string_view record, std::chrono::milliseconds limit, Process& process,
                   std::stop_token stop);

// ---- commands

struct HostCommand {
    std::string line;  // one /bin/sh line
    std::vector<JobEnv> env;
    std::string run_id;  // begins with the hold's id; marks everything that the command starts
    std::int64_t lease_s = 600;
    std::string record;  // the file that this run's client renews with the lease; empty: the lease file alone counts
};

// Beside the lease file; empty where there is none. `run_id` ends with a dot and a part of its own.
std::string run_record(std::string_view lease, std::string_view run_id);

// The line that takes a script on standard input and runs it when all of it has come. It needs no disk there.
std::string receive_line();
// That script: goes to the tree, sets the environment, runs the command in a session of its own, watches over it (it
// ends when the hold or the connection does, or when nobody has renewed its record for as long as the lease), ends what
// it leaves behind, and exits with its code; 255 becomes 254.
std::string command_script(const Road& road, const HostCommand& command);
// The same for a command with a terminal. The script is a file, which gets its own path as its first word and removes
// itself. Without a tree the command runs in the home. What it leaves behind goes on until the hold is over.
std::string terminal_script(const Road& road, const HostCommand& command);
// Comes before the command of a job beside the holder, whose environment has k_run_variable = `run_id`: ends what the
// job started as command_script() does, when the hold is over or the run's record is not renewed. k_guard_end ends it.
std::string beside_guard(std::string_view submission_id, std::string_view run_id, std::int64_t lease_s);
inline constexpr std::string_view k_run_variable = "GDNCTL_RUN";
inline constexpr std::string_view k_guard_end = ": gdnctl-guard; ";
// Ends every process whose run id begins with `prefix`: TERM, 5 s, KILL.
std::string end_line(std::string_view prefix);

// What kept that script from running the command; nullopt: nothing did.
std::optional<Error> host_complaint(int exit_code, std::string_view stderr_text);

}  // namespace gdnctl::devtpu
