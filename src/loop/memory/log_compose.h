// How a running log becomes one that has an iteration's entry. Pure.
#pragma once

#include <optional>
#include <string>

#include "core/json.h"
#include "core/result.h"
#include "core/time.h"

namespace gdnctl::loop {

// The log and its records (`<log>.records.jsonl`) as they stand in commits; empty: not there.
struct LogSources {
    std::string name;                     // for messages
    std::string text, records;            // at the tip of the branch
    std::string base_text;                // where the candidate began
    std::string head_text, head_records;  // in the candidate; empty: there is none
};

struct ComposedLog {
    std::string text, records;
    std::string id;         // of the record; empty: the agent's entry has none
    std::string iteration;  // number in the log: "12"
    bool stamped = false;   // the agent's own entry got its commit
};

// One entry for the iteration that `record` is of, however often it is asked for:
//  - the agent's own, when `landed` (its commits are on the branch) and they brought one. One that was made by `log
//    append` gets a record that supersedes its own, with what was measured; one written by hand gets the commit
//    where it says `this commit` or `(pending)`, and no other change
//  - else a new one at the end. What the agent wrote of its idea in an entry that did not land is taken over.
// An older entry is never touched. nullopt: there is nothing to change. Errors: bad_input, usage (a log that cannot be
// read: its limits, a fence that is not closed, records that are none).
Result<std::optional<ComposedLog>> compose_log(const LogSources& sources, Json record, bool landed, WallTime at);

// The entry of a record as a text of its own, for a note. `number`: of the iteration in its run. Errors: bad_input.
Result<std::string> compose_note(Json record, int number, WallTime at);

// Whether entries can be added to a log with these records. Errors: those of compose_log(), with what is wrong.
Status check_log(const std::string& name, const std::string& text, const std::string& records);

}  // namespace gdnctl::loop
