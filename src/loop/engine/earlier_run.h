// What earlier runs and finished iterations leave in a log directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "core/result.h"
#include "loop/engine/artefacts.h"
#include "loop/engine/journal.h"
#include "platform/clock.h"
#include "services/git/checkout.h"

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
// to work there. See GitSetup.
Status mend_repository(const std::filesystem::path& start, const std::filesystem::path& journal, Process& process,
                       Clock& clock);

// Compresses files that are only read after a failure, and removes those older than `keep` iterations.
Status tidy(const Artefacts& artefacts, int iteration, std::int64_t keep, const std::filesystem::path& codex_home);

}  // namespace gdnctl::loop
