#include "platform/descendants.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <set>
#include <thread>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/text.h"
#include "platform/fs.h"

namespace gdnctl {

namespace {

// Files of /proc are short, have no size and may vanish at any moment; the result is then empty.
// `piece`: the most that one read gives. One read is of one moment, several may be of a process before and after its
// exec.
std::string read_proc_file(const std::string& path, std::size_t piece = 4096) {
    const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    std::string content;
    if (!fd.valid()) return content;
    for (std::size_t size = 0;;) {
        content.resize(size + piece);
        const ssize_t n = read(fd.get(), content.data() + size, piece);
        size += n > 0 ? static_cast<std::size_t>(n) : 0;
        if (n <= 0) {
            content.resize(size);
            return content;
        }
    }
}

template <class Number>
bool parse_number(std::string_view word, Number& number) {
    const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), number);
    return problem == std::errc() && end == word.data() + word.size();
}

}  // namespace

std::optional<ProcessInfo> parse_process_stat(std::string_view text) {
    // "PID (NAME) STATE PPID PGRP SESSION ...": the name may contain blanks and brackets, so it ends at the last ')'.
    const std::size_t open = text.find(" (");
    const std::size_t close = text.rfind(") ");
    if (open == std::string_view::npos || close == std::string_view::npos || close < open) return std::nullopt;
    const auto words = text::split(text::trim(text.substr(close + 2)), ' ');
    constexpr std::size_t k_start_ticks = 22 - 3;  // field 22, counted from the state, which is field 3
    ProcessInfo info;
    if (words.size() <= k_start_ticks || words[0].size() != 1 || !parse_number(text.substr(0, open), info.id.pid) ||
        !parse_number(words[1], info.parent) || !parse_number(words[2], info.group) ||
        !parse_number(words[3], info.session) || !parse_number(words[k_start_ticks], info.id.start_ticks)) {
        return std::nullopt;
    }
    info.state = words[0].front();
    return info;
}

std::optional<ProcessInfo> process_info(pid_t pid) {
    return parse_process_stat(read_proc_file(fmt::format("/proc/{}/stat", pid)));
}

bool is_running(const ProcessId& id) {
    const auto info = process_info(id.pid);
    return info && info->id == id && !info->dead();
}

std::string boot_id() { return std::string(text::trim(read_proc_file("/proc/sys/kernel/random/boot_id"))); }

std::vector<ProcessInfo> all_processes() {
    std::vector<ProcessInfo> processes;
    DIR* folder = opendir("/proc");
    if (folder == nullptr) return processes;
    while (const dirent* entry = readdir(folder)) {
        pid_t pid = 0;
        if (!parse_number(std::string_view(static_cast<const char*>(entry->d_name)), pid)) continue;
        if (auto info = process_info(pid)) processes.push_back(*info);
    }
    closedir(folder);
    return processes;
}

std::vector<ProcessId> descendants_of(pid_t root, const std::vector<ProcessInfo>& processes) {
    std::set<pid_t> family = {root};
    std::vector<ProcessId> found;
    // Ids do not grow with age, so a pass may find children before their parent. Repeat until nothing is added.
    for (std::size_t before = 0; before != family.size();) {
        before = family.size();
        for (const auto& process : processes) {
            if (!family.contains(process.parent) || !family.insert(process.id.pid).second) continue;
            if (!process.dead()) found.push_back(process.id);
        }
    }
    return found;
}

std::vector<ProcessId> members_of_session(pid_t session, const std::vector<ProcessInfo>& processes) {
    std::vector<ProcessId> found;
    for (const auto& process : processes) {
        if (process.session == session && !process.dead()) found.push_back(process.id);
    }
    return found;
}

namespace {

// Why a process shows an empty environment, by proc(5): field 9 of stat has the kernel's flags, 50 and 51 are where the
// environment starts and ends.
enum class NoEnvironment { has_none, seems_to_have_none, in_exec };
NoEnvironment why_empty(pid_t pid) {
    constexpr unsigned long k_kernel_thread = 0x200000;  // PF_KTHREAD
    const std::string stat = read_proc_file(fmt::format("/proc/{}/stat", pid));
    const auto info = parse_process_stat(stat);
    if (!info || info->dead()) return NoEnvironment::has_none;
    const auto fields = text::split(std::string_view(stat).substr(stat.rfind(')')), ' ');  // field n is at n - 2
    unsigned long flags = 0, start = 0, end = 0;
    if (fields.size() < 50 || !parse_number(fields[7], flags) || !parse_number(fields[48], start) ||
        !parse_number(fields[49], end) || (flags & k_kernel_thread) != 0) {
        return NoEnvironment::has_none;
    }
    return start != 0 && start == end ? NoEnvironment::seems_to_have_none : NoEnvironment::in_exec;
}

// The environment of a process; empty if we may not read it. Inside exec it is empty for a moment, in which whoever
// looks for a mark would miss it.
std::string environment_of(pid_t pid) {
    constexpr std::size_t k_whole = 131072;  // of nearly every process
    const std::string path = fmt::format("/proc/{}/environ", pid);
    std::string environment = read_proc_file(path, k_whole);
    for (int tries = 0; environment.empty() && tries < 100; ++tries) {
        if (!UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC)).valid()) break;
        const NoEnvironment why = why_empty(pid);
        if (why == NoEnvironment::has_none || (why == NoEnvironment::seems_to_have_none && tries >= 5)) break;
        std::this_thread::sleep_for(std::chrono::microseconds(500));
        environment = read_proc_file(path, k_whole);
    }
    return environment;
}

}  // namespace

std::string process_mark(pid_t pid) {
    const std::string environment = environment_of(pid);
    const std::string wanted = fmt::format("{}=", k_process_mark);
    for (const auto entry : text::split(environment, '\0')) {
        if (entry.starts_with(wanted)) return std::string(entry.substr(wanted.size()));
    }
    return {};
}

std::vector<ProcessId> processes_with_mark(std::string_view word, const std::vector<ProcessInfo>& processes) {
    std::vector<ProcessId> found;
    for (const auto& process : processes) {
        if (process.dead()) continue;
        const std::string mark = process_mark(process.id.pid);
        const auto words = text::split(mark, ':');
        if (std::find(words.begin(), words.end(), word) != words.end()) found.push_back(process.id);
    }
    return found;
}

std::vector<ProcessId> processes_with_entry(std::string_view entry, const std::vector<ProcessInfo>& processes) {
    std::vector<ProcessId> found;
    for (const auto& process : processes) {
        if (process.dead()) continue;
        const std::string environment = environment_of(process.id.pid);
        const auto entries = text::split(environment, '\0');
        if (std::find(entries.begin(), entries.end(), entry) != entries.end()) found.push_back(process.id);
    }
    return found;
}

std::string process_command(pid_t pid) {
    constexpr std::size_t k_longest = 300;
    std::string line = read_proc_file(fmt::format("/proc/{}/cmdline", pid));
    if (line.ends_with('\0')) line.pop_back();
    if (line.empty()) return {};
    std::vector<std::string> words;
    for (const auto word : text::split(line, '\0')) words.emplace_back(word);
    std::string command = text::repair_utf8(text::shell_join(words));
    if (command.size() > k_longest) command = text::repair_utf8(command.substr(0, k_longest)) + "...";
    return command;
}

std::chrono::milliseconds process_age(const ProcessId& id) {
    const std::string uptime = read_proc_file("/proc/uptime");
    const auto seconds = text::parse_double(text::split(uptime, ' ').front());
    const long ticks = sysconf(_SC_CLK_TCK);
    if (!seconds || ticks <= 0) return std::chrono::milliseconds(0);
    const double age = *seconds - static_cast<double>(id.start_ticks) / static_cast<double>(ticks);
    return std::chrono::milliseconds(static_cast<std::int64_t>(std::max(0.0, age) * 1000));
}

bool send_signal(const ProcessId& id, int signal) {
    // The descriptor pins the process, so check only now whether it is the right one.
    const UniqueFd fd(static_cast<int>(syscall(SYS_pidfd_open, id.pid, 0)));
    const bool unsupported = !fd.valid() && errno == ENOSYS;
    if (!is_running(id)) return false;
    if (unsupported) return kill(id.pid, signal) == 0;
    return fd.valid() && syscall(SYS_pidfd_send_signal, fd.get(), signal, nullptr, 0) == 0;
}

EndReport end_processes(const std::function<std::vector<ProcessId>()>& find, std::chrono::milliseconds grace,
                        Clock& clock) {
    constexpr std::chrono::milliseconds k_pause{20};
    constexpr std::chrono::seconds k_patience{5};
    const auto kill_at = clock.monotonic() + grace;
    const auto give_up_at = kill_at + k_patience;
    std::set<ProcessId> asked;
    for (;;) {
        auto running = find();
        std::erase_if(running, [](const ProcessId& id) { return !is_running(id); });
        const auto now = clock.monotonic();
        if (running.empty() || now >= give_up_at) {
            const int left = static_cast<int>(running.size());
            for (const auto& id : running) asked.erase(id);
            return {static_cast<int>(asked.size()), left};
        }
        for (const auto& id : running) {
            const bool is_new = asked.insert(id).second;
            if (now >= kill_at) {
                send_signal(id, SIGKILL);
            } else if (is_new) {
                send_signal(id, SIGTERM);
                send_signal(id, SIGCONT);  // a stopped process does not react to SIGTERM
            }
        }
        clock.sleep_for(k_pause, {});
    }
}

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
