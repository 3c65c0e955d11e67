// A new entry: numbered, recorded, rendered.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "core/time.h"
#include "runlog/parse/log.h"
#include "runlog/records/record.h"
#include "runlog/records/store.h"

namespace gdnctl::runlog {

// The style of a log, also of one that has no entry yet.
Template template_of(const Document& document);

// Whether entries belong into a file: it has some, or the head of a log, or nothing at all.
bool is_log(const Document& document);

// The number after the last one of the log and the records; 0 for the first. An experiment log counts its entries.
IterationNumber next_iteration(const Document& document, const std::vector<Json>& records);

// The same, leaving out numbers that a draft beside the log has taken.
IterationNumber next_free_iteration(const LogWriter& writer, const Document& document);

// Takes what a job command printed with --json (`gdnctl ray-test --json`) into the record: a check, or a profile run
// with its metrics; an infrastructure failure; the outcome where none is given. Errors: bad_input (not such an object),
// usage (the job has not ended).
Status add_job(Json& record, const Json& job);

// Sections of an experiment entry from the fields of the record: hypothesis, changes, checks, next hypothesis.
void fill_sections(Json& record);

struct Appended {
    std::vector<std::string> repaired;  // what an interrupted writer had left out and is there now
    std::vector<std::string> warnings;  // what only a person can decide
};

struct AppendOptions {
    WallTime now;
    bool keep_number = false;  // the record has its number and id: a draft that was filled in
    std::function<void(LogWriter::Step)> on_step;
};

// Whether an entry at the log's end would be seen. Errors, with `name` in front unless it is empty: conflict (a mark of
// an unresolved merge), bad_input (an unclosed code fence or comment).
Status check_appendable(const Document& document, const std::string& name);

// Gives the record its number, id and times, makes it public (no secrets, no home directories) and writes it and its
// entry. Errors: usage (the file is no log), conflict (the number is taken; an unresolved merge), bad_input (the log
// hides its end in an unclosed code fence; the record is no record), local_io with nothing changed.
Result<Appended> append_entry(LogWriter& writer, Json& record, const AppendOptions& options);

}  // namespace gdnctl::runlog
