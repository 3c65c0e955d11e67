// The log directory of a run: its files and their names, its lock, the space left on its disk, and what earlier runs
// left in it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"
#include "core/time.h"
#include "loop/engine/journal.h"
#include "platform/clock.h"
#include "platform/lock.h"
#include "services/git/checkout.h"

namespace gdnctl::loop {

// "iteration-007-"; at least three digits.
std::string iteration_prefix(int iteration);
// The number in "iteration-NNN-..."; 0: another kind of name.
int iteration_of(std::string_view file_name);

// iteration-NNN-repositories: repositories that the agent created in the tree with `git init`.
inline constexpr std::string_view k_repositories = "repositories";

class Artefacts {
public:
    // Error: local_io (see make_private_directory()).
    static Result<Artefacts> open(std::filesystem::path log_dir);
    const std::filesystem::path& folder() const { return m_folder; }

    // <log-dir>/iteration-NNN-<name>, whether it exists or not.
    std::filesystem::path path(int iteration, std::string_view name) const;
    // A name that no file has yet: iteration-NNN-<stem><ending>, then ...-<stem>.2<ending>, and so on. Packed files
    // (".gz") count as existing.
    std::filesystem::path unused(int iteration, std::string_view stem, std::string_view ending) const;

    // Moves what earlier runs left (iteration-*, journal.jsonl, state.json, state.json.bak) to previous/<run>/, under
    // new names if those exist there. For a fresh start; a resumed run continues beside its own files. Returns how many
    // were moved.
    Result<int> set_earlier_aside(std::string_view run) const;

    // Removes the files of iterations up to `latest` - `keep`; returns how many. Leaves git's refs and k_repositories
    // folders alone.
    Result<int> prune(int latest, int keep) const;

    // <log-dir>/STOP exists: the run was asked to end. The file is not removed.
    bool stop_requested() const;

private:
    explicit Artefacts(std::filesystem::path folder) : m_folder(std::move(folder)) {}
    std::filesystem::path m_folder;
};

// What a run is doing inside its current step ("pair 3 of at most 9, ..."), for those who watch. It has a file of its
// own, <log-dir>/now.txt, because the journal only says what has ended. A file that cannot be written is no failure.
void note_work(const std::filesystem::path& log_dir, std::string_view text);
// Empty: nothing was noted since the journal's last record.
std::string noted_work(const std::filesystem::path& log_dir);

// Allows one loop at a time per repository and per log directory.

// Holds the locks while it lives; the system releases them however the process ends.
class LoopLock {
public:
    // Error conflict (exit 7): another loop holds one of the two locks; the message names its process, start time and
    // log directory. local_io: a lock file cannot be created.
    static Result<LoopLock> acquire(const std::filesystem::path& log_dir, const std::filesystem::path& git_common_dir,
                                    WallTime now);

private:
    LoopLock(FileLock log_dir, FileLock repository)
        : m_log_dir(std::move(log_dir)), m_repository(std::move(repository)) {}
    FileLock m_log_dir, m_repository;
};

// Whether the disks that a run writes to have space left. A failure on a full disk says nothing about the candidate.

// Error local_io: one of these disks is almost full. For a path that does not exist, the folder that would contain it
// counts.
Status check_room(std::span<const std::filesystem::path> places);

}  // namespace gdnctl::loop

// What earlier runs and finished iterations leave in a log directory.
namespace gdnctl {
class Process;
}

namespace gdnctl::loop {

// Stops a job: see JobService::stop().
using StopJob = std::function<Status(const std::string& id, const std::string& cluster)>;

// Stops the job that an interrupted run was waiting for, since it would keep running and hold its device. Only the last
// job can still be active. Errors: interrupted, terminated.
Status stop_job_of(std::span<const Record> records, const StopJob& stop);

// A run that was interrupted during an iteration, as found by a new run.
struct BrokenOffRun {
    std::string run;
    int iteration = 0;
    std::string advice() const;    // while --resume can still continue it
    std::string farewell() const;  // when it no longer can
};
// nullopt: there is none, or its journal is damaged. Error config: a newer gdnctl wrote it.
Result<std::optional<BrokenOffRun>> broken_off_run(const std::filesystem::path& journal);

// Cleans up after a run that is not continued: ends its processes and its job, and names stashed work that only that
// run would have restored. Errors: those of stop_job_of().
Status look_at_earlier_run(const std::filesystem::path& journal, Clock& clock, const StopJob& stop);
// Name of the run that wrote the journal; `otherwise`: the value to return if it cannot be determined.
std::string earlier_name(const std::filesystem::path& journal, const std::string& otherwise);

// When the run in this folder was last seen alive, by the files that it writes, and some seconds more. nullopt: there
// is none.
std::optional<std::filesystem::file_time_type> last_alive(const std::filesystem::path& log_dir);
// If the last session of this journal was killed: until when it was alive, by last_alive(), and whether it worked in
// the user's checkout: in place, or as its last step.
std::optional<GitForcedEnd> killed_session(std::span<const Record> records,
                                           std::optional<std::filesystem::file_time_type> alive);

// Before the run of this journal is continued: its agent may have left the repository at `start` such that git refuses
// to work there. See GitSettings.
Status mend_repository(const std::filesystem::path& start, const std::filesystem::path& journal, Process& process,
                       Clock& clock);

// Compresses files that are only read after a failure, and removes those older than `keep` iterations.
Status tidy(const Artefacts& artefacts, int iteration, std::int64_t keep, const std::filesystem::path& codex_home);

}  // namespace gdnctl::loop
