#include "services/jobs/sweep.h"

#include <algorithm>

namespace gdnctl::local {

namespace {

constexpr std::string_view k_supervisor_prefix = "local-supervisor-";

void append_unique(std::vector<ProcessId>& into, const std::vector<ProcessId>& more) {
    into.insert(into.end(), more.begin(), more.end());
    std::sort(into.begin(), into.end());
    into.erase(std::unique(into.begin(), into.end()), into.end());
}

}  // namespace

std::string job_mark(std::string_view id) { return "local-job-" + std::string(id); }
std::string supervisor_mark(std::string_view id) { return std::string(k_supervisor_prefix) + std::string(id); }

std::vector<ProcessId> family_of(pid_t ancestor, std::string_view id) {
    const std::vector<ProcessInfo> all = all_processes();
    std::vector<ProcessId> family = descendants_of(ancestor, all);
    // A job may submit others; their supervisors come to us when their parents end, and are none of our business.
    std::vector<ProcessId> foreign;
    for (const ProcessId& process : family) {
        const std::string mark = process_mark(process.pid);
        // Our own mark: a child that has not executed its program yet.
        if (!mark.starts_with(k_supervisor_prefix) || mark == supervisor_mark(id)) continue;
        foreign.push_back(process);
        append_unique(foreign, descendants_of(process.pid, all));
    }
    std::erase_if(family, [&](const ProcessId& process) {
        return std::find(foreign.begin(), foreign.end(), process) != foreign.end();
    });
    return family;
}

std::vector<ProcessId> orphans_of(std::string_view id, const std::optional<ProcessIdentity>& child) {
    const std::vector<ProcessInfo> all = all_processes();
    std::vector<ProcessId> found = processes_with_mark(job_mark(id), all);
    if (child && is_same_process(*child)) {
        append_unique(found, {child->id});
        append_unique(found, family_of(child->id.pid, id));
        append_unique(found, members_of_session(child->id.pid, all));
    }
    return found;
}

void end_orphans(std::string_view id, const std::optional<ProcessIdentity>& child, Clock& clock) {
    constexpr std::chrono::milliseconds k_quiet{20};
    for (int quiet = 0; quiet < 2;) {
        const EndReport report = end_processes([&] { return orphans_of(id, child); }, {}, clock);
        if (report.left > 0) return;
        quiet = report.ended == 0 ? quiet + 1 : 0;
        clock.sleep_for(k_quiet, {});
    }
}

}  // namespace gdnctl::local
