#include "loop/engine/log_dir.h"

#include <algorithm>

#include <fmt/format.h>
#include <unistd.h>

#include "core/for_people.h"
#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "platform/compression.h"
#include "platform/descendants.h"
#include "platform/fs.h"
#include "platform/signals.h"
#include "services/agent/agent.h"
#include "services/git/settings.h"

namespace gdnctl::loop {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view k_start = "iteration-", k_now = "now.txt";

bool is_there(const fs::path& path) {
    std::error_code problem;
    return fs::exists(fs::symlink_status(path, problem)) ||
           fs::exists(fs::symlink_status(path.string() + ".gz", problem));
}

Result<std::vector<fs::path>> files_in(const fs::path& folder) {
    std::vector<fs::path> files;
    std::error_code problem;
    for (const auto& entry : fs::directory_iterator(folder, problem)) files.push_back(entry.path());
    if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "list", folder, problem.value()));
    std::sort(files.begin(), files.end());
    return files;
}

// Next to the lock, since it says more than a process id. Only for people.
void say_who(const fs::path& lock, const fs::path& log_dir, WallTime now) {
    const auto self = process_info(getpid());
    const Json who = {{"pid", getpid()},
                      {"start_ticks", self ? self->id.start_ticks : 0},
                      {"started_at", format_iso8601(now)},
                      {"log_dir", log_dir.string()}};
    // A full disk must not prevent locking.
    [[maybe_unused]] const auto written = atomic_replace(lock.string() + ".json", gdnctl::to_text(who) + "\n", 0600);
}

std::string who_holds(const fs::path& lock, const fs::path& place) {
    const auto text = read_file_if_exists(lock.string() + ".json", std::size_t{64} << 10);
    if (!text || !*text) return {};
    const Json who = Json::parse(**text, nullptr, false);
    if (!who.is_object()) return {};
    const auto word = [&](const char* key) { return json::maybe_text(who, key).value_or("?"); };
    const std::string log_dir = word("log_dir");
    return fmt::format(": process {}, since {}{}", json::integer(who, "pid").value_or(0),
                       local_time_of(word("started_at")),
                       log_dir == place ? std::string() : ", log directory " + log_dir);
}

Result<FileLock> take(const fs::path& lock, std::string_view what, const fs::path& place) {
    auto taken = FileLock::acquire(lock, {k_after_a_kill});
    if (taken || taken.error().kind != ErrorKind::conflict) return taken;
    return fail(ErrorKind::conflict,
                fmt::format("another codex-loop is running {} {}{}", what, place.string(), who_holds(lock, place)),
                "wait for it, or create a file STOP in its log directory to end it after the current iteration");
}

}  // namespace

std::string iteration_prefix(int iteration) { return fmt::format("{}{:03}-", k_start, iteration); }

int iteration_of(std::string_view file_name) {
    if (!file_name.starts_with(k_start)) return 0;
    file_name.remove_prefix(k_start.size());
    const auto digits = file_name.substr(0, file_name.find('-'));
    if (digits.size() < 3 || digits.size() == file_name.size()) return 0;
    const auto number = text::parse_int(digits);
    return number && *number > 0 && *number < 1'000'000'000 ? static_cast<int>(*number) : 0;
}

Result<Artefacts> Artefacts::open(fs::path log_dir) {
    GDNCTL_TRY(make_private_directory(log_dir, "choose another log directory with --log-dir"));
    return Artefacts(std::move(log_dir));
}

fs::path Artefacts::path(int iteration, std::string_view name) const {
    return m_folder / (iteration_prefix(iteration) + std::string(name));
}

fs::path Artefacts::unused(int iteration, std::string_view stem, std::string_view ending) const {
    fs::path candidate = path(iteration, fmt::format("{}{}", stem, ending));
    for (int n = 2; is_there(candidate); ++n) candidate = path(iteration, fmt::format("{}.{}{}", stem, n, ending));
    return candidate;
}

Result<int> Artefacts::set_earlier_aside(std::string_view run) const {
    GDNCTL_TRY_ASSIGN(const auto files, files_in(m_folder));
    const fs::path place = m_folder / "previous" / run;
    int moved = 0;
    for (const auto& file : files) {
        const std::string name = file.filename().string();
        const bool ours = name == "journal.jsonl" || name == "state.json" || name == "state.json.bak";
        if (!ours && iteration_of(name) == 0) continue;
        if (moved == 0) GDNCTL_TRY(make_private_directory(place));
        fs::path to = place / name;
        for (int n = 2; is_there(to); ++n) to = place / fmt::format("{}.{}", name, n);
        std::error_code problem;
        fs::rename(file, to, problem);
        if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "move", file, problem.value()));
        ++moved;
    }
    if (moved > 0) GDNCTL_TRY(sync_directory(m_folder));
    return moved;
}

Result<int> Artefacts::prune(int latest, int keep) const {
    GDNCTL_TRY_ASSIGN(const auto files, files_in(m_folder));
    int removed = 0;
    for (const auto& file : files) {
        const std::string name = file.filename().string();
        const int number = iteration_of(name);
        if (number == 0 || number > latest - keep) continue;
        if (name == iteration_prefix(number) + std::string(k_repositories)) {
            // Other branches, stashes and uncommitted files of these repositories exist nowhere else.
            if (number == latest - keep) log::info("keeping {}: it contains repositories of the agent", file.string());
            continue;
        }
        std::error_code problem;
        fs::remove_all(file, problem);
        if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "remove", file, problem.value()));
        ++removed;
    }
    return removed;
}

bool Artefacts::stop_requested() const {
    std::error_code problem;
    return fs::exists(fs::symlink_status(m_folder / "STOP", problem));
}

void note_work(const fs::path& log_dir, std::string_view text) {
    (void)atomic_replace(log_dir / k_now, std::string(text) + "\n", 0600);
}

std::string noted_work(const fs::path& log_dir) {
    std::error_code problem;
    const auto noted = fs::last_write_time(log_dir / k_now, problem);
    if (problem) return {};
    const auto recorded = fs::last_write_time(log_dir / "journal.jsonl", problem);
    if (problem || noted < recorded) return {};
    const auto text = read_file_if_exists(log_dir / k_now);
    return text && *text ? std::string(text::trim(**text)) : std::string();
}

Result<LoopLock> LoopLock::acquire(const fs::path& log_dir, const fs::path& git_common_dir, WallTime now) {
    const fs::path ours = log_dir / "codex-loop.lock";
    const fs::path repositorys = git_common_dir / "gdnctl-codex-loop.lock";
    GDNCTL_TRY_ASSIGN(FileLock first, take(ours, "with the log directory", log_dir));
    GDNCTL_TRY_ASSIGN(FileLock second, take(repositorys, "on the repository of", git_common_dir));
    say_who(ours, log_dir, now);
    say_who(repositorys, log_dir, now);
    return LoopLock(std::move(first), std::move(second));
}

Status check_room(std::span<const fs::path> places) {
    constexpr std::uintmax_t k_next_to_nothing = std::uintmax_t{256} << 10;
    for (fs::path place : places) {
        std::error_code problem;
        while (!fs::exists(place, problem) && place.has_relative_path()) place = place.parent_path();
        const fs::space_info disk = fs::space(place, problem);
        // Some file systems do not report their size.
        if (problem || disk.capacity == 0 || disk.available >= k_next_to_nothing) continue;
        return fail(ErrorKind::local_io,
                    fmt::format("the disk that holds {} is full (No space left on device): {} KB left", place.string(),
                                disk.available >> 10U),
                    "free space there, then run the command again with --resume");
    }
    return {};
}

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
        log::warning("hint: `git stash apply {}` restores it (--resume would have)", stash->word("commit"));
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
    return GitSettings::mend(start, earlier_name(journal, ""), last_alive(journal.parent_path()), process, clock);
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
