// What runs leave in a log directory: that of an earlier run, and that of iterations that have ended.
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

namespace gdnctl::loop {

// Ends a job: see JobService::stop().
using StopJob = std::function<Status(const std::string& id, const std::string& cluster)>;

// The job that a broken-off run was waiting for goes on without it, and holds what it was given: it is stopped. Only
// the last one can be under way. Errors: interrupted, terminated.
Status stop_job_of(std::span<const Record> records, const StopJob& stop);

// A run that ended in the middle of an iteration, as found by a new run.
struct BrokenOffRun {
    std::string run;
    int iteration = 0;
    std::string advice() const;    // while --resume can still go on with it
    std::string farewell() const;  // once it cannot
};
// nullopt: there is none, or its journal is damaged. Error config: a newer gdnctl wrote it.
Result<std::optional<BrokenOffRun>> broken_off_run(const std::filesystem::path& journal);

// A run that is not continued: its processes and its job are ended, and work in a stash that only it would bring
// back is named. Errors: those of stop_job_of().
Status look_at_earlier_run(const std::filesystem::path& journal, Clock& clock, const StopJob& stop);
// The name of the run that wrote the journal; `otherwise`: it cannot be told.
std::string earlier_name(const std::filesystem::path& journal, const std::string& otherwise);

// Packs what is only read when something went wrong, and forgets what is older than `keep` iterations.
Status tidy(const Artefacts& artefacts, int iteration, std::int64_t keep, const std::filesystem::path& codex_home);

}  // namespace gdnctl::loop
