#include "loop/clean.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/log.h"
#include "core/text.h"
#include "loop/engine/transaction.h"
#include "loop/memory/run_view.h"
#include "platform/fs.h"

namespace gdnctl::loop {

namespace fs = std::filesystem;

namespace {

std::optional<WallTime> wall_time_of(fs::file_time_type time) {
    return std::chrono::floor<std::chrono::milliseconds>(fs::file_time_type::clock::to_sys(time));
}

// 20260310t165307-ab12 or ...z-ab12: the time at which the run began.
std::optional<WallTime> time_in_name(std::string_view run) {
    constexpr std::size_t k_time = 15;
    if (run.size() < k_time || run[8] != 't') return std::nullopt;
    return parse_iso8601(fmt::format("{}-{}-{}T{}:{}:{}Z", run.substr(0, 4), run.substr(4, 2), run.substr(6, 2),
                                     run.substr(9, 2), run.substr(11, 2), run.substr(13, 2)));
}

// When the run was last at work, by its journal; where that is missing, when it began. nullopt: unknown.
std::optional<WallTime> last_seen(const fs::path& log_dir, const std::string& latest, const std::string& run) {
    const fs::path folder = run == latest ? log_dir : log_dir / "previous" / run;
    std::error_code problem;
    const auto time = fs::last_write_time(folder / "journal.jsonl", problem);
    return problem ? time_in_name(run) : wall_time_of(time);
}

// When anything in the folder last changed. nullopt: it cannot be read.
std::optional<WallTime> last_change(const fs::path& folder) {
    std::error_code problem;
    fs::file_time_type latest = fs::last_write_time(folder, problem);
    if (problem) return std::nullopt;
    for (auto it = fs::recursive_directory_iterator(folder, problem); it != fs::recursive_directory_iterator();
         it.increment(problem)) {
        std::error_code skipped;
        const bool link = it->is_symlink(skipped);
        const auto time = fs::last_write_time(it->path(), skipped);
        if (!link && !skipped) latest = std::max(latest, time);
    }
    return problem ? std::nullopt : wall_time_of(latest);
}

// The run in refs/gdnctl/<run>/... and refs/gdnctl-others/<run>/...; empty: the ref is not of a climb.
std::string run_of(std::string_view ref) {
    for (const std::string_view prefix : {"refs/gdnctl/", "refs/gdnctl-others/"}) {
        if (!ref.starts_with(prefix)) continue;
        const std::string_view rest = ref.substr(prefix.size());
        const std::string run(rest.substr(0, rest.find('/')));
        return time_in_name(run) ? run : std::string();
    }
    return {};
}

}  // namespace

fs::path measure_folder(const fs::path& slot) { return slot.string() + "-measure"; }

Result<Remains> find_remains(const GitCheckout& repository, const fs::path& log_dir, const fs::path& state_dir,
                             WallTime before) {
    Remains remains;
    std::string latest;
    if (const auto run = load_run(log_dir)) {
        latest = run->view.run;
        if (run->view.open > 0 || !run->view.stop_rc) {
            remains.kept = fmt::format("run {} was interrupted; --resume continues it", shown(latest, 60));
        }
    } else if (run.error().kind != ErrorKind::remote_missing) {
        return tl::unexpected(run.error());
    }
    GDNCTL_TRY_ASSIGN(const fs::path slot, slot_folder(state_dir, repository.common_dir()));
    for (const fs::path& folder : {slot, measure_folder(slot)}) {
        std::error_code problem;
        if (remains.kept.empty() && fs::exists(folder, problem)) remains.worktrees.push_back(folder);
    }
    for (const std::string_view prefix : {"refs/gdnctl/", "refs/gdnctl-others/"}) {
        GDNCTL_TRY_ASSIGN(const auto refs, repository.refs(prefix));
        for (const auto& [name, target] : refs) {
            const std::string run = run_of(name);
            if (run.empty() || (run == latest && !remains.kept.empty())) continue;
            const auto seen = last_seen(log_dir, latest, run);
            if (seen && *seen < before) remains.refs.push_back({name, std::string(k_no_object), target});
        }
    }
    for (const char* cache : {"loops", "traces"}) {
        std::error_code problem;
        for (const auto& entry : fs::directory_iterator(state_dir / cache, problem)) {
            const auto changed = last_change(entry.path());
            if (changed && *changed < before) remains.caches.push_back(entry.path());
        }
    }
    std::sort(remains.caches.begin(), remains.caches.end());
    return remains;
}

Status remove_worktrees(const GitCheckout& repository, const std::vector<fs::path>& folders) {
    for (const fs::path& folder : folders) {
        std::error_code problem;
        if (fs::exists(folder, problem)) GDNCTL_TRY(repository.remove_worktree(folder));
    }
    return {};
}

Status remove_remains(const GitCheckout& repository, const Remains& remains, Process& process, Clock& clock) {
    for (const fs::path& folder : remains.worktrees) {
        GDNCTL_TRY_ASSIGN(const auto slot, PrivateWorktree::open(repository, folder, false, process, clock));
        for (const std::string& ref : slot.rescued()) log::warning("work in {} is kept at {}", folder.string(), ref);
    }
    GDNCTL_TRY(remove_worktrees(repository, remains.worktrees));
    if (!remains.refs.empty()) GDNCTL_TRY(repository.update_refs(remains.refs));
    for (const fs::path& folder : remains.caches) {
        std::error_code problem;
        fs::remove_all(folder, problem);
        if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "remove", folder, problem.value()));
    }
    return {};
}

}  // namespace gdnctl::loop
