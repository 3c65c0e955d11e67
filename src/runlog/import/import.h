// From entries that people and agents wrote to records.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "core/time.h"
#include "runlog/parse/experiment.h"
#include "runlog/parse/log.h"
#include "runlog/records/record.h"

namespace gdnctl::runlog {

// The record of one entry: everything that the parser reads in its field, the rest verbatim under `raw`. "confidence"
// says by field how sure the reading is: 1 exact, 0.8 by its place or wording, 0.5 a guess.
Json import_entry(const EntryHead& head);
// The same for the `index`th entry of an experiment log (kind "experiment", sections by name).
Json import_experiment(const ExperimentEntry& entry, std::size_t index);

struct Imported {
    std::vector<Json> records;  // new ones, and ones that replace an earlier import of an entry that changed
    std::size_t unchanged = 0;  // entries whose import is up to date
    std::size_t generated = 0;  // entries inside markers: they come from records
};

struct ImportOptions {
    bool brief = false;  // without absent fields and verbatim lines: little memory, and enough for a summary
    std::optional<IterationNumber> only;  // this iteration's entries
};

// Records for the hand-written entries of a log, in their order. `existing`: the records that there are. Errors: usage
// (file over its limits).
Result<Imported> import_log(std::string_view log, std::span<const Json> existing, WallTime now,
                            const ImportOptions& options = {});

}  // namespace gdnctl::runlog
