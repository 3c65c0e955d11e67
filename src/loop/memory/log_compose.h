// Adds an iteration's entry to the text of a running log. Pure.
#pragma once

#include <optional>
#include <string>

#include "core/json.h"
#include "core/result.h"
#include "core/time.h"

namespace gdnctl::loop {

// The log and its records (`<log>.records.jsonl`) in various commits; empty: missing.
struct LogSources {
    std::string name;                     // for messages
    std::string text, records;            // at the tip of the branch
    std::string base_text;                // at the candidate's base
    std::string head_text, head_records;  // in the candidate; empty: missing
};

struct ComposedLog {
    std::string text, records;
    std::string id;         // of the record; empty: the agent's entry has none
    std::string iteration;  // number in the log: "12"
    bool stamped = false;   // the agent's own entry got its commit
};

// Makes one entry for the iteration of `record`, however often it is called:
//  - If `landed` (the candidate's commits are on the branch) and the commits brought an entry, that one. An entry made
//    by `log append` gets a record that supersedes its own, with the measurements. In a hand-written one, the commit
//    replaces `this commit` or `(pending)`, and nothing else changes.
//  - Otherwise a new one at the end. It takes over what the agent wrote about its idea in an entry that did not land.
//    An older entry is never changed. nullopt: no change is needed. Errors: bad_input, usage (an unreadable log: over
//    its limits, an unclosed fence, invalid records).
Result<std::optional<ComposedLog>> compose_log(const LogSources& sources, Json record, bool landed, WallTime at);

// The entry of a record as a separate text, for a git note. `number`: of the iteration in its run. Errors: bad_input.
Result<std::string> compose_note(Json record, int number, WallTime at);

// Whether entries can be added to a log with these records. Errors: as compose_log(), with the cause.
Status check_log(const std::string& name, const std::string& text, const std::string& records);

}  // namespace gdnctl::loop
