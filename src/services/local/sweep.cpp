#include "services/local/sweep.h"

#include <algorithm>

#include <fmt/format.h>
#include <sys/stat.h>

namespace gdnctl::local {

namespace {

constexpr std::string_view k_job_prefix = "local-job-";
constexpr std::string_view k_supervisor_prefix = "local-supervisor-";

std::string mark_of(std::string_view prefix, const std::filesystem::path& folder) {
    struct stat jobs{};
    stat(folder.parent_path().c_str(), &jobs);
    return fmt::format("{}{}@{}.{}", prefix, folder.filename().string(), jobs.st_dev, jobs.st_ino);
}

void append_unique(std::vector<ProcessId>& into, const std::vector<ProcessId>& more) {
    into.insert(into.end(), more.begin(), more.end());
    std::sort(into.begin(), into.end());
    into.erase(std::unique(into.begin(), into.end()), into.end());
}

}  // namespace

std::string job_mark(const std::filesystem::path& folder) { return mark_of(k_job_prefix, folder); }
std::string supervisor_mark(const std::filesystem::path& folder) { return mark_of(k_supervisor_prefix, folder); }

std::vector<ProcessId> family_of(pid_t ancestor) {
    const std::vector<ProcessInfo> all = all_processes();
    const std::string own = process_mark(ancestor);
    std::vector<ProcessId> family = descendants_of(ancestor, all);
    // A job may submit other jobs. We adopt their supervisors when their parents end, but must not touch them.
    std::vector<ProcessId> foreign;
    for (const ProcessId& process : family) {
        const std::string mark = process_mark(process.pid);
        // The ancestor's own mark: a child that has not yet executed its program.
        if (!mark.starts_with(k_supervisor_prefix) || mark == own) continue;
        foreign.push_back(process);
        append_unique(foreign, descendants_of(process.pid, all));
    }
    std::erase_if(family, [&](const ProcessId& process) {
        return std::find(foreign.begin(), foreign.end(), process) != foreign.end();
    });
    return family;
}

std::vector<ProcessId> orphans_of(const std::filesystem::path& folder, const std::optional<ProcessIdentity>& child) {
    const std::vector<ProcessInfo> all = all_processes();
    std::vector<ProcessId> found = processes_with_mark(job_mark(folder), all);
    if (child && is_same_process(*child)) {
        append_unique(found, {child->id});
        append_unique(found, family_of(child->id.pid));
        append_unique(found, members_of_session(child->id.pid, all));
    }
    return found;
}

void end_orphans(const std::filesystem::path& folder, const std::optional<ProcessIdentity>& child, Clock& clock) {
    constexpr std::chrono::milliseconds k_quiet{20};
    for (int quiet = 0; quiet < 2;) {
        const EndReport report = end_processes([&] { return orphans_of(folder, child); }, {}, clock);
        if (report.left > 0) return;
        quiet = report.ended == 0 ? quiet + 1 : 0;
        clock.sleep_for(k_quiet, {});
    }
}

}  // namespace gdnctl::local
