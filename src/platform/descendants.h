// Finding and ending processes that nobody waits for any more, and no others.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "platform/clock.h"

namespace gdnctl {

// A process for good: ids are reused, the pair is not (within one boot).
struct ProcessId {
    pid_t pid = 0;
    std::uint64_t start_ticks = 0;  // field 22 of /proc/PID/stat: clock ticks since boot
    auto operator<=>(const ProcessId&) const = default;
};

struct ProcessInfo {
    ProcessId id;
    pid_t parent = 0;
    pid_t group = 0;
    pid_t session = 0;
    char state = '?';  // as in /proc: R, S, D, T, Z, ...
    bool dead() const { return state == 'Z' || state == 'X'; }
};

// The text of /proc/PID/stat. nullopt: malformed.
std::optional<ProcessInfo> parse_process_stat(std::string_view text);

std::optional<ProcessInfo> process_info(pid_t pid);  // nullopt: no such process
// Whether exactly this process exists and has not ended (a zombie has).
bool is_running(const ProcessId& id);
std::string boot_id();  // of the running system; with it a ProcessId stays meaningful over reboots

// Every process that /proc shows.
std::vector<ProcessInfo> all_processes();
// Children of `root`, their children and so on, without `root` and without what has ended. Pure.
std::vector<ProcessId> descendants_of(pid_t root, const std::vector<ProcessInfo>& processes);
std::vector<ProcessId> members_of_session(pid_t session, const std::vector<ProcessInfo>& processes);

// Process puts a word of its own for every run into this variable of the child's environment, after those that it has
// inherited (words are separated by ':'). A process that leaves group, session and parent and replaces the value by one
// of its own (the supervisor of a job does) is meant to live on, and is not swept.
inline constexpr std::string_view k_process_mark = "GDNCTL_PROCESS_MARK";
std::string process_mark(pid_t pid);  // the value; empty: none, or not ours to read
// Those of `processes` whose environment has exactly this entry ("NAME=value"), as far as it is ours to read.
std::vector<ProcessId> processes_with_entry(std::string_view entry, const std::vector<ProcessInfo>& processes);
std::string process_command(pid_t pid);                      // its words, shell-quoted, at most 300 bytes; empty: gone
std::chrono::milliseconds process_age(const ProcessId& id);  // since its start
// Those of `processes` whose mark holds the word.
std::vector<ProcessId> processes_with_mark(std::string_view word, const std::vector<ProcessInfo>& processes);

// Sends a signal to exactly this process, never to a later one with the same id. False: it is gone, or not ours.
bool send_signal(const ProcessId& id, int signal);

struct EndReport {
    int ended = 0;  // processes that were signalled and are gone
    int left = 0;   // still there 5 s after SIGKILL, or not ours to signal
};
// TERM to all that `find` returns, again and again until it returns nobody who runs; after `grace` KILL.
EndReport end_processes(const std::function<std::vector<ProcessId>()>& find, std::chrono::milliseconds grace,
                        Clock& clock);

// A child that Process must neither end nor reap: whoever asks for it waits for its end.
void keep_from_sweeps(pid_t pid);
// An adopted descendant that Process must not end (a job's supervisor); it is reaped once it has ended by itself.
void spare_from_sweeps(pid_t pid);

}  // namespace gdnctl
