// Which of this program's children and adopted descendants belongs to which run of Process.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "platform/descendants.h"

namespace gdnctl {

class Family {
public:
    static Family& instance();

    // Makes a process that calls `child`, on our memory while this thread waits: it must become another program or end,
    // may change nothing that we look at, and have no handler of ours run in it. Returns its id, or -1 with errno. From
    // here on it is known as the leader of a run.
    struct Leader {
        std::string word;  // in the mark
        bool takes_strays = false;
    };
    pid_t start_leader(const Leader& facts, void (*child)(void*), void* argument);
    void forget_leader(pid_t leader);

    // Living descendants that belong to the run, its leader included.
    std::vector<ProcessId> members(const ProcessId& leader);

    // Writes down which process and session is below which leader now: it may have lost its parents when it matters.
    void note_descendants();

    // Whether this program has children at all (cheap). False: no run has anything left to end.
    static bool has_children();

    // Collects the exit status of adopted descendants, so that they do not stay as zombies.
    void reap_adopted();

    void keep(const ProcessId& id);   // neither ended nor reaped
    void spare(const ProcessId& id);  // not ended; reaped once it has ended by itself

private:
    Family();
    bool is_left_alone(const ProcessId& id) const { return m_kept.contains(id) || m_spared.contains(id); }
    bool belongs(const ProcessInfo& child, const ProcessId& leader) const;
    bool takes_strays(pid_t leader) const;

    mutable std::mutex m_mutex;
    std::map<pid_t, Leader> m_leaders;
    std::map<ProcessId, pid_t> m_seen;  // descendants, with the leader that they were seen below
    std::map<pid_t, pid_t> m_sessions;  // and their sessions
    std::set<ProcessId> m_kept;         // children from before the first run, and those asked to be kept
    std::set<ProcessId> m_spared;
};

}  // namespace gdnctl
