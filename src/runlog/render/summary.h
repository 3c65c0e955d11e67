// A long log in short: what won, what each slot gave, what failed, where to go on.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"

namespace gdnctl::runlog {

// The number by which iterations are ranked.
struct Objective {
    std::string key;  // "throughput/mfu", "gdn/forward_ms"
    bool lower_is_better = false;
    std::string unit = {};  // empty: the records tell, or nobody
};

// Every iteration of a log as a record, in the log's order: recorded ones, and hand-written entries as an import would
// read them, in brief. Errors: usage (file over its limits).
Result<std::vector<Json>> history_of(std::string_view log, const std::vector<Json>& records);

// The whole of one record of that history. Errors as above.
Result<Json> whole_record(std::string_view log, const std::vector<Json>& records, const Json& brief);

// `wanted` if any record has it, else the metric that the latest recorded gain is of, else the first of throughput/mfu,
// step_duration_ms that a record has; an empty key: none.
Objective choose_objective(const std::vector<Json>& history, const Objective& wanted);

// Whether the iteration became, or set, the standing best.
bool is_champion(const Json& record);

// gdnctl.log-summary/1 without the log's path; docs/reference/json.md describes it.
Json summarize(const std::vector<Json>& history, const Objective& objective);
std::string summary_text(const Json& summary);

// Markdown of at most `bytes` bytes for a prompt: champion, counts, then iterations from the newest on, as many as fit.
std::string context_pack(const std::vector<Json>& history, const Objective& objective, std::size_t bytes);

}  // namespace gdnctl::runlog
