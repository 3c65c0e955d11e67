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

std::vector<ProcessId> family_of(pid_t ancestor) {
    const std::vector<ProcessInfo> all = all_processes();
    std::vector<ProcessId> family = descendants_of(ancestor, all);
    // A job may submit others; their supervisors come to us when their parents end, and are none of our business.
    std::vector<ProcessId> foreign;
    for (const ProcessId& id : family) {
        if (!process_mark(id.pid).starts_with(k_supervisor_prefix)) continue;
        foreign.push_back(id);
        append_unique(foreign, descendants_of(id.pid, all));
    }
    std::erase_if(family,
                  [&](const ProcessId& id) { return std::find(foreign.begin(), foreign.end(), id) != foreign.end(); });
    return family;
}

std::vector<ProcessId> orphans_of(std::string_view id, const std::optional<ProcessIdentity>& child) {
    const std::vector<ProcessInfo> all = all_processes();
    std::vector<ProcessId> found = processes_with_mark(job_mark(id), all);
    if (child && is_same_process(*child)) {
        append_unique(found, {child->id});
        append_unique(found, family_of(child->id.pid));
        append_unique(found, members_of_session(child->id.pid, all));
    }
    return found;
}

}  // namespace gdnctl::local
