// Tracks which run of Process each child and adopted descendant of this program belongs to.
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
