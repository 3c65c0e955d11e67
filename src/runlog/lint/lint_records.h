// What the linter needs from a log's records.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "runlog/lint/lint.h"

namespace gdnctl::runlog {

struct RecordFactsFile {
    std::vector<RecordFacts> records;   // current records (superseded ones omitted), in file order
    std::vector<std::string> warnings;  // a torn last line was dropped
};

// Pure. Errors: bad_input for a line that is not a record; `name` is for errors.
Result<RecordFactsFile> read_record_facts(std::string_view jsonl, std::string_view name);

}  // namespace gdnctl::runlog
