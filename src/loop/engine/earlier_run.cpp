#include "loop/engine/earlier_run.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/log.h"
#include "loop/engine/journal.h"
#include "loop/engine/resume.h"
#include "platform/fs.h"
#include "platform/gzip.h"
#include "platform/signals.h"
#include "services/agent/agent.h"
#include "services/git/setup.h"

namespace gdnctl::loop {

namespace fs = std::filesystem;

Status stop_job_of(std::span<const Record> records, const StopJob& stop) {
    const Record* job = last_of(open_iteration(records), RecordType::job);
    if (job == nullptr) return {};
    const Record* stage = last_of(open_iteration(records), RecordType::stage);
    if (stage != nullptr && stage > job) return {};
    const std::string& id = job->word("job");
    const Status ended = stop(id, job->word("cluster"));
    if (ended) {
        log::warning("job {} of the interrupted run is no longer running", id);
        return {};
    }
    const ErrorKind kind = ended.error().kind;
    if (kind == ErrorKind::interrupted || kind == ErrorKind::terminated) return ended;
    if (kind != ErrorKind::remote_missing) {  // otherwise it was never submitted
        log::warning("job {} of the interrupted run may still be running: it could not be stopped", id);
    }
    return {};
}

Result<std::optional<BrokenOffRun>> broken_off_run(const fs::path& journal) {
    const std::optional<BrokenOffRun> none;
    const auto text = read_file_if_exists(journal, std::size_t{256} << 20);
    if (!text || !*text) return none;
    const auto records = parse_records(**text, journal.string());
    if (!records && records.error().kind == ErrorKind::config) return tl::unexpected(records.error());
    if (!records || records->empty()) return none;
    const auto open = open_iteration(*records);
    if (open.empty()) return none;
    return std::optional(BrokenOffRun{records->front().word("run"), open.front().iteration});
}

std::string BrokenOffRun::advice() const {
    return fmt::format("run {} was interrupted in iteration {}: --resume continues it and saves its work on refs", run,
                       iteration);
}

std::string BrokenOffRun::farewell() const {
    return fmt::format(
        "run {} was interrupted in iteration {} and is not continued; its work is at refs/gdnctl/{}/iter-{:03}/", run,
        iteration, run, iteration);
}

Status look_at_earlier_run(const fs::path& journal, Clock& clock, const StopJob& stop) {
    const auto text = read_file_if_exists(journal, std::size_t{256} << 20);
    if (!text || !*text) return {};
    const auto records = parse_records(**text, journal.string());
    if (!records || records->empty()) return {};
    if (const std::string& id = records->front().word("loop_id"); !id.empty()) sweep_loop(id, clock);
    const auto open = open_iteration(*records);
    const Record* stash = last_of(open, RecordType::stashed);
    const Record* restored = last_of(open, RecordType::restored);
    if (stash != nullptr && !stash->word("commit").empty() && (restored == nullptr || restored < stash)) {
        log::warning("the previous run was interrupted with your uncommitted work in the stash {}",
                     stash->word("commit"));
        log::warning("hint: git stash apply {} restores it (--resume would have)", stash->word("commit"));
    }
    return stop_job_of(*records, stop);
}

std::string earlier_name(const fs::path& journal, const std::string& otherwise) {
    const auto text = read_file_if_exists(journal, std::size_t{256} << 20);
    if (!text || !*text) return otherwise;
    const std::string_view line = std::string_view(**text).substr(0, (*text)->find('\n'));
    const Json first = Json::parse(line, nullptr, false);
    if (!first.is_object() || !first.contains("run") || !first["run"].is_string()) return otherwise;
    const std::string name = first["run"].get<std::string>();
    const bool plain =
        !name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos;
    return plain ? name : otherwise;
}

std::optional<fs::file_time_type> last_alive(const fs::path& log_dir) {
    constexpr std::chrono::seconds k_more{5};
    std::optional<fs::file_time_type> last;
    std::error_code problem;
    fs::recursive_directory_iterator at(log_dir, fs::directory_options::skip_permission_denied, problem);
    for (; !problem && at != fs::recursive_directory_iterator(); at.increment(problem)) {
        std::error_code gone;
        const std::string name = at->path().filename().string();
        if (name.ends_with(k_repositories)) at.disable_recursion_pending();
        const fs::path kind = at->path().extension();
        if (kind != ".jsonl" && kind != ".json" && kind != ".log" && kind != ".txt") continue;  // a report, a lock
        const auto written = fs::last_write_time(at->path(), gone);
        if (!gone) last = std::max(last.value_or(written), written);
    }
    return last ? std::optional(*last + k_more) : std::nullopt;
}

std::optional<GitForcedEnd> killed_session(std::span<const Record> records, std::optional<fs::file_time_type> alive) {
    if (!alive) return std::nullopt;
    if (records.empty() || records.back().type == RecordType::stop) return std::nullopt;
    const auto begun = std::find_if(records.rbegin(), records.rend(), [](const Record& record) {
        return record.type == RecordType::run || record.type == RecordType::resume;
    });
    const auto time = begun == records.rend() ? std::nullopt : parse_iso8601(begun->time);
    if (!time) return std::nullopt;
    const RecordType last = records.back().type;
    const bool was_about_to = last == RecordType::settle_intent || last == RecordType::log_intent ||
                              last == RecordType::merge_intent || last == RecordType::stash_intent;
    const bool in_place = records.front().word("isolation") != "worktree";
    return GitForcedEnd{fs::file_time_type::clock::from_sys(*time), *alive, in_place || was_about_to};
}

Status mend_repository(const fs::path& start, const fs::path& journal, Process& process, Clock& clock) {
    return GitSetup::mend(start, earlier_name(journal, ""), last_alive(journal.parent_path()), process, clock);
}

Status tidy(const Artefacts& artefacts, int iteration, std::int64_t keep, const fs::path& codex_home) {
    std::error_code problem;
    const std::string prefix = iteration_prefix(iteration);
    std::vector<fs::path> large;
    for (const auto& entry : fs::directory_iterator(artefacts.folder(), problem)) {
        const std::string name = entry.path().filename().string();
        const bool packs =
            name.ends_with(".jsonl") || name.ends_with("-stderr.log") || name.ends_with("transcript.log");
        if (name.starts_with(prefix) && packs) large.push_back(entry.path());
    }
    GDNCTL_TRY(gzip_in_place(large));
    if (!codex_home.empty()) fs::remove_all(codex_home / "sessions", problem);  // its rollout was copied
    return artefacts.prune(iteration, static_cast<int>(std::min<std::int64_t>(keep, 1'000'000))).map([](int) {});
}

}  // namespace gdnctl::loop
