#include "platform/process_family.h"

#include <algorithm>
#include <cerrno>
#include <csignal>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/text.h"

namespace gdnctl {

namespace {

// In the middle of an exec, a process shows no environment, so an empty result is read up to three more times.
std::string settled_mark(pid_t pid) {
    constexpr int k_most_looks = 4;
    std::string mark = process_mark(pid);
    for (int i = 1; mark.empty() && i < k_most_looks; ++i) {
        usleep(1000);
        mark = process_mark(pid);
    }
    return mark;
}

}  // namespace

Family& Family::instance() {
    static auto* family = new Family;  // never destroyed: threads may be running children at exit
    return *family;
}

Family::Family() {
    // Descendants whose parent ends become children of this program, not of init, whatever session they are in.
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    // If SIGCHLD was ignored when we were started, children would vanish without a status.
    struct sigaction plain{};
    plain.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &plain, nullptr);
    if (!has_children()) return;
    for (const auto& process : all_processes()) {
        if (process.parent == getpid()) m_kept.insert(process.id);
    }
}

bool Family::has_children() {
    siginfo_t info{};
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

pid_t Family::start_leader(const Leader& facts, void (*child)(void*), void* argument) {
    const std::lock_guard lock(m_mutex);
    // fork() would copy our page tables only to discard them, which takes longer than most programs run.
    const pid_t pid = vfork();  // NOLINT(bugprone-unsafe-functions): see the header
    if (pid == 0) {
        child(argument);
        _exit(127);
    }
    if (pid > 0) m_leaders.emplace(pid, facts);
    return pid;
}

void Family::forget_leader(pid_t leader) {
    const std::lock_guard lock(m_mutex);
    m_leaders.erase(leader);
    std::erase_if(m_seen, [&](const auto& entry) { return entry.second == leader; });
    std::erase_if(m_sessions, [&](const auto& entry) { return entry.second == leader; });
}

void Family::keep(const ProcessId& id) {
    const std::lock_guard lock(m_mutex);
    m_kept.insert(id);
}

// Whether an adopted descendant comes from this run, by group, session or mark. One that shed all three belongs to the
// run below which it was seen; else to the only active run, or to the one that takes strays; else it stays unassigned
// until only one run is left. It cannot be older than its leader. Words are only ever added to a mark, so a mark
// without any of ours was set on purpose, by a process that wants to be left alone.
bool Family::belongs(const ProcessInfo& child, const ProcessId& leader) const {
    if (child.id.start_ticks < leader.start_ticks) return false;
    if (child.group == leader.pid || child.session == leader.pid) return true;
    if (m_leaders.contains(child.group) || m_leaders.contains(child.session)) return false;
    const std::string mark = settled_mark(child.id.pid);
    const auto words = text::split(mark, ':');
    for (const auto& [pid, facts] : m_leaders) {
        if (std::find(words.begin(), words.end(), facts.word) != words.end()) return pid == leader.pid;
    }
    if (!mark.empty()) return false;
    if (const auto seen = m_seen.find(child.id); seen != m_seen.end()) return seen->second == leader.pid;
    if (const auto seen = m_sessions.find(child.session); seen != m_sessions.end()) return seen->second == leader.pid;
    return m_leaders.size() == 1 || takes_strays(leader.pid);
}

bool Family::takes_strays(pid_t leader) const {
    const auto takers =
        std::count_if(m_leaders.begin(), m_leaders.end(), [](const auto& entry) { return entry.second.takes_strays; });
    const auto found = m_leaders.find(leader);
    return takers == 1 && found != m_leaders.end() && found->second.takes_strays;
}

void Family::note_descendants() {
    const auto processes = all_processes();
    const std::lock_guard lock(m_mutex);
    std::erase_if(m_seen, [](const auto& entry) { return !is_running(entry.first); });
    for (const auto& [leader, facts] : m_leaders) {
        for (const auto& id : descendants_of(leader, processes)) m_seen.emplace(id, leader);
    }
    for (const auto& process : processes) {
        const auto seen = m_seen.find(process.id);
        if (seen == m_seen.end() || process.session == getsid(0) || m_leaders.contains(process.session)) continue;
        m_sessions.emplace(process.session, seen->second);
    }
}

std::vector<ProcessId> Family::members(const ProcessId& leader) {
    const auto processes = all_processes();
    const std::lock_guard lock(m_mutex);
    std::vector<ProcessId> found;
    for (const auto& child : processes) {
        if (child.parent != getpid() || is_left_alone(child.id)) continue;
        if (child.id.pid != leader.pid && (m_leaders.contains(child.id.pid) || !belongs(child, leader))) continue;
        if (!child.dead()) found.push_back(child.id);
        const auto below = descendants_of(child.id.pid, processes);
        found.insert(found.end(), below.begin(), below.end());
    }
    std::erase_if(found, [&](const ProcessId& id) { return is_left_alone(id); });
    return found;
}

void Family::spare(const ProcessId& id) {
    const std::lock_guard lock(m_mutex);
    m_spared.insert(id);
}

void Family::reap_adopted() {
    const std::lock_guard lock(m_mutex);
    for (;;) {
        siginfo_t info{};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
        const auto dead = process_info(info.si_pid);
        // Each run reaps its leader; kept processes are reaped by whoever asked to keep them.
        if (m_leaders.contains(info.si_pid) || (dead && m_kept.contains(dead->id))) return;
        waitpid(info.si_pid, nullptr, WNOHANG);
    }
}

void keep_from_sweeps(pid_t pid) {
    if (const auto info = process_info(pid)) Family::instance().keep(info->id);
}

void spare_from_sweeps(pid_t pid) {
    if (const auto info = process_info(pid)) Family::instance().spare(info->id);
}

}  // namespace gdnctl
