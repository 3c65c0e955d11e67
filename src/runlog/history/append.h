// Adds a new entry to a log: numbers it, records it and renders it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "core/time.h"
#include "runlog/parse/log.h"
#include "runlog/records/record.h"
#include "runlog/records/store.h"

namespace gdnctl::runlog {

// The template of a log, even if it has no entry yet.
Template template_of(const Document& document);

// Whether the file may take entries: it has some, or the head of a log, or is empty.
bool is_log(const Document& document);

// The number after the last one in log and records; 0 for the first. In an experiment log, the count of entries.
IterationNumber next_iteration(const Document& document, const std::vector<Json>& records);

// The same, skipping numbers that a draft next to the log already uses.
IterationNumber next_free_iteration(const LogWriter& writer, const Document& document);

// Adds the output of a job command with --json (`gdnctl ray-test --json`) to the record: a check, or a profile run with
// its metrics; an infrastructure failure; and the outcome if none is given. Errors: bad_input (not such an object),
// usage (the job has not ended).
Status add_job(Json& record, const Json& job);

// Sections of an experiment entry from the fields of the record: hypothesis, changes, checks, next hypothesis.
void fill_sections(Json& record);

struct Appended {
    std::vector<std::string> repaired;  // what an interrupted writer had omitted and this call added
    std::vector<std::string> warnings;  // problems that a person must resolve
};

struct AppendOptions {
    WallTime now;
    bool keep_number = false;  // the record already has a number and id, because it is a completed draft
    std::function<void(LogWriter::Step)> on_step;
};

// Whether an entry appended to the log would be visible. Errors, prefixed with `name` unless it is empty: conflict
// (unresolved merge), bad_input (unclosed code fence or comment).
Status check_appendable(const Document& document, const std::string& name);

// Gives the record its number, id and times, removes secrets and home directories, and writes it and its entry. Errors:
// usage (the file is not a log), conflict (the number is taken; an unresolved merge), bad_input (an unclosed code fence
// hides the end of the log; the record is invalid), local_io with nothing changed.
Result<Appended> append_entry(LogWriter& writer, Json& record, const AppendOptions& options);

}  // namespace gdnctl::runlog
