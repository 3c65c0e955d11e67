// Turns entries that people and agents wrote into records.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "core/time.h"
#include "runlog/parse/log.h"
#include "runlog/records/record.h"

namespace gdnctl::runlog {

// The record of one entry. What the parser reads goes to its field; the rest goes to `raw` verbatim. "confidence" says
// for each field how sure the reading is: 1 exact, 0.8 by place or wording, 0.5 a guess.
Json import_entry(const EntryHead& head);

struct Imported {
    std::vector<Json> records;  // new records, and those that replace an earlier import because the entry changed
    std::size_t unchanged = 0;  // entries whose import is current
    std::size_t generated = 0;  // entries inside markers, which were rendered from records
};

struct ImportOptions {
    bool brief = false;  // omits absent fields and verbatim lines: saves memory, and is enough for a summary
    std::optional<IterationNumber> only;  // only the entries of this iteration
    bool lost = false;                    // also entries inside markers whose record is missing
};

// Records for the hand-written entries of a log, in file order. `existing`: the current records. Errors: usage (file
// over its limits).
Result<Imported> import_log(std::string_view log, std::span<const Json> existing, WallTime now,
                            const ImportOptions& options = {});

}  // namespace gdnctl::runlog
