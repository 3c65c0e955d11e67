// What a long log says as a whole: what won, what each slot gained, what failed, and where to continue; in full, or as
// context for an agent.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"

namespace gdnctl::runlog {

// The metric that iterations are ranked by.
struct Objective {
    std::string key;  // "throughput/mfu", "gdn/forward_ms"
    bool lower_is_better = false;
    std::string unit = {};  // empty: from the records, if they have one
};

// Every iteration of a log as a record, in the log's order. Hand-written entries, and generated ones whose record is
// missing, are included as a brief import would read them. Errors: usage (file over its limits).
Result<std::vector<Json>> history_of(std::string_view log, const std::vector<Json>& records);

// How many generated entries of the log have no record.
std::size_t count_lost(std::string_view log, const std::vector<Json>& records);

// The complete record for one of that history. Errors as above.
Result<Json> whole_record(std::string_view log, const std::vector<Json>& records, const Json& brief);

// `wanted` if any record has it; else the metric of the latest recorded gain; else throughput/mfu or step_duration_ms,
// if a record has it. An empty key: none.
Objective choose_objective(const std::vector<Json>& history, const Objective& wanted);

// gdnctl.log-summary/1 without the log's path; see docs/reference/json.md.
Json summarize(const std::vector<Json>& history, const Objective& objective);
std::string summary_text(const Json& summary);

// Markdown of at most `bytes` bytes for a prompt: champion, counts, then as many iterations as fit, newest first.
std::string context_pack(const std::vector<Json>& history, const Objective& objective, std::size_t bytes);

}  // namespace gdnctl::runlog
