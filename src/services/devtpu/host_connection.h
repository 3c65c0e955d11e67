// How commands reach the host of a held TPU: over ssh, or directly on this machine. Both run the same small scripts,
// which read their input from standard input, so that none of it appears in the process list.
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

struct HostConnection {
    std::vector<std::string> ssh;  // "ssh", its options, the alias; empty: this machine
    std::string base;              // our own folder on the host, as a shell word: "$HOME/.gdnctl"
    std::string tree;              // the synced tree, as a shell word: "$HOME/marin"
    std::string lease;             // the lease file; empty: another program holds the TPU
    bool is_local() const { return ssh.empty(); }
};

// `options` go between "ssh" and the alias.
HostConnection ssh_connection(std::vector<std::string> options, std::string_view tpu_name,
                              std::string_view submission_id);
HostConnection local_connection(const std::filesystem::path& hold_folder, std::string_view submission_id);
std::filesystem::path local_lease(const std::filesystem::path& hold_folder, std::string_view submission_id);

// argv that runs a line of POSIX shell on the host, whatever its login shell is.
std::vector<std::string> host_argv(const HostConnection& connection, std::string_view line);

// Runs a line on the host with `input` as its standard input and returns its output. Errors: authentication (ssh:
// Permission denied), infrastructure (ssh fails, with its reason; no answer in time, or a longer one than `most` bytes;
// the host's disk is full), interrupted.
struct Answer {
    int exit_code = 0;
    std::string out, err;
};
Result<Answer> ask_host(const HostConnection& connection, std::string_view line, std::string input,
                        std::chrono::milliseconds limit, Process& process, std::stop_token stop,
                        std::size_t most = std::size_t{8} << 20);

// Why ssh exited with 255, from its last lines: authentication (no key was accepted), or infrastructure. Pure.
Error ssh_error(std::string_view stderr_text);
inline constexpr std::string_view k_key_changed = "the host's key has changed since this hold began";

// What a login shell prints before it runs our line, from a ~/.bashrc with an `echo` for instance, is no output of the
// command. `marked` prints a mark first; what comes before it is dropped, or nothing where it is missing. Pure.
std::string marked(std::string_view line);
std::string_view after_mark(std::string_view out);
inline constexpr std::string_view k_mark = "gdnctl-begins\n";

// The line that renews a lease where there is one, and with it a run's record (empty: none). Pure.
std::string touch_line(std::string_view lease, std::string_view record);
// Runs it. Errors: those of ask_host(); remote_missing if the holder's lease file is missing.
Status touch_lease(const HostConnection& connection, std::string_view record, std::chrono::milliseconds limit,
                   Process& process, std::stop_token stop);

// ---- commands

struct HostCommand {
    std::string line;  // one /bin/sh line
    std::vector<JobEnv> env;
    std::string run_id;  // starts with the hold's id; marks everything that the command starts
    std::int64_t lease_s = 600;
    std::string record;  // the file that this run's client renews with the lease; empty: the lease file alone counts
    bool reads_stdin = false;  // what follows the script on the connection's standard input is the command's
    std::string tree = {};     // tree_mark() of the tree that the command is for; empty: whatever is there
    bool alone = false;        // no sync and no other command that is alone or has a `tree` may run meanwhile
};

// Why the script of a command did not run it. Its exit code is then k_turn_code.
enum class Turn { mine, busy, other_tree };
inline constexpr int k_turn_code = 99;
Turn turn_of(int exit_code, std::string_view stderr_text);

// Next to the lease file; empty if there is none. `run_id` ends with a dot and a part that is unique to the run.
std::string run_record(std::string_view lease, std::string_view run_id);

// A line that reads a script from standard input and runs it once it is complete. It needs no disk on the host. `size`:
// the script's, if more follows it; 0: it is all there is.
std::string receive_line(std::size_t size = 0);
// That script: enters the tree, sets the environment, runs the command in its own session, watches it (it ends with the
// hold or the connection, or if its record was not renewed for as long as the lease), ends what it leaves behind, and
// exits with its code. k_mark precedes the command's own output. 255 would look like a failure of ssh: it becomes 254,
// with k_was_255 as the end of stderr.
inline constexpr std::string_view k_was_255 = "gdnctl-host: the command's exit code is 255\n";
std::string command_script(const HostConnection& connection, const HostCommand& command);
// The same for a command with a terminal. The script is a file, which gets its own path as its first word and removes
// itself. Without a tree the command runs in the home. What it leaves behind goes on until the hold is over. If it did
// not run the command, the file has the words for turn_of() instead.
std::string terminal_script(const HostConnection& connection, const HostCommand& command);
// Precedes the command of a job on the holder's host: sets k_run_variable to `run_id` for it, and ends the job and what
// it started as command_script() does, when the hold is over or the run's record is not renewed. k_guard_end ends it.
std::string beside_guard(std::string_view submission_id, std::string_view run_id, std::int64_t lease_s);
inline constexpr std::string_view k_run_variable = "GDNCTL_RUN";
inline constexpr std::string_view k_guard_end = ": gdnctl-guard; ";
// Ends every process whose run id starts with `prefix`: TERM, 5 s, KILL.
std::string end_line(std::string_view prefix);

// What prevented that script from running the command; nullopt: nothing.
std::optional<Error> host_complaint(int exit_code, std::string_view stderr_text);

}  // namespace gdnctl::devtpu
