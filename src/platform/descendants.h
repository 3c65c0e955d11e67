// Finds and ends orphaned processes, and no others.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "platform/clock.h"

namespace gdnctl {

// Identifies a process for good: the system reuses ids, but not the pair (within one boot).
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
// Whether exactly this process exists and has not ended (a zombie has ended).
bool is_running(const ProcessId& id);
std::string boot_id();  // of the running system; together with it, a ProcessId stays unique across reboots

// Every process that /proc shows.
std::vector<ProcessInfo> all_processes();
// Children of `root`, their children and so on, without `root` itself and without ended processes. Pure.
std::vector<ProcessId> descendants_of(pid_t root, const std::vector<ProcessInfo>& processes);
std::vector<ProcessId> members_of_session(pid_t session, const std::vector<ProcessInfo>& processes);

// For every run, Process appends a word of its own to this variable in the child's environment, after the inherited
// ones (separated by ':'). A process that leaves its group, session and parent and also replaces the value by its own,
// as a job's supervisor does, is meant to live on and is not swept.
inline constexpr std::string_view k_process_mark = "GDNCTL_PROCESS_MARK";
std::string process_mark(pid_t pid);  // the value; empty: none, or we may not read it
// Those of `processes` whose environment has exactly this entry ("NAME=value"), if we may read it.
std::vector<ProcessId> processes_with_entry(std::string_view entry, const std::vector<ProcessInfo>& processes);
std::string process_command(pid_t pid);                      // its argv, shell-quoted, at most 300 bytes; empty: the
                                                             // process is gone
std::chrono::milliseconds process_age(const ProcessId& id);  // since its start
// Those of `processes` whose mark holds the word.
std::vector<ProcessId> processes_with_mark(std::string_view word, const std::vector<ProcessInfo>& processes);

// Sends a signal to exactly this process, never to a later one with the same id. False: it is gone, or we may not
// signal it.
bool send_signal(const ProcessId& id, int signal);

struct EndReport {
    int ended = 0;  // signalled and gone
    int left = 0;   // still running 5 s after SIGKILL, or we may not signal them
};
// Sends TERM to the processes that `find` returns, and calls it again until none of them runs; KILL after `grace`.
EndReport end_processes(const std::function<std::vector<ProcessId>()>& find, std::chrono::milliseconds grace,
                        Clock& clock);

// A child that Process must neither end nor reap: whoever asks for it waits for its end.
void keep_from_sweeps(pid_t pid);
// An adopted descendant that Process must not end (a job's supervisor); it is reaped once it has ended by itself.
void spare_from_sweeps(pid_t pid);

// Tracks which run of Process each child and adopted descendant of this program belongs to.

class Family {
public:
    static Family& instance();

    // Makes a process that calls `child` in our memory (vfork) while this thread waits. The child must exec or end,
    // must not change anything that we read, and must not run our signal handlers. Returns its id, or -1 with errno.
    // From then on it is registered as the leader of a run.
    struct Leader {
        std::string word;  // its word in the mark
        bool takes_strays = false;
    };
    pid_t start_leader(const Leader& facts, void (*child)(void*), void* argument);
    void forget_leader(pid_t leader);

    // Living descendants that belong to the run, including its leader.
    std::vector<ProcessId> members(const ProcessId& leader);

    // Records which processes and sessions are below which leader now, since they may have lost their parents by the
    // time it matters.
    void note_descendants();

    // Whether this program has any children (cheap). False: no run has anything left to end.
    static bool has_children();

    // Reaps adopted descendants, so that they do not stay as zombies.
    void reap_adopted();

    void keep(const ProcessId& id);   // neither ended nor reaped
    void spare(const ProcessId& id);  // not ended; reaped once it ends by itself

private:
    Family();
    bool is_left_alone(const ProcessId& id) const { return m_kept.contains(id) || m_spared.contains(id); }
    bool belongs(const ProcessInfo& child, const ProcessId& leader) const;
    bool takes_strays(pid_t leader) const;

    mutable std::mutex m_mutex;
    std::map<pid_t, Leader> m_leaders;
    std::map<ProcessId, pid_t> m_seen;  // descendants, with the leader they were seen below
    std::map<pid_t, pid_t> m_sessions;  // and their sessions
    std::set<ProcessId> m_kept;         // children from before the first run, and those passed to keep()
    std::set<ProcessId> m_spared;
};

}  // namespace gdnctl
