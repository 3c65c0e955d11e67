// Queries to the GraphQL API and its answers, as values. Pure.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "services/hub/wandb/wandb.h"

namespace gdnctl::wandb {

// Request bodies.
std::string run_question(const WandbPath& path, const WandbWindow& window);
std::string runs_question(const std::string& entity, const std::string& project, std::string_view in_name, int count);

// Parse answers with status 200. Errors: remote_missing, authentication (from their `errors`), infrastructure (no such
// API).
Result<WandbRun> parse_run(std::string_view body, const WandbPath& path, const WandbWindow& window);
Result<std::vector<WandbRun>> parse_runs(std::string_view body, const std::string& entity, const std::string& project);

// "2026-03-10T16:53:07", with or without a fraction, with or without Z: always UTC.
std::optional<WallTime> parse_created(std::string_view text);

// The error in an answer of another status, on one line of at most 300 bytes.
std::string complaint(std::string_view body);

std::string base64(std::string_view bytes);

// Helpers for all queries and answers. `data_in`: the data of an answer; errors as above.
std::string question(std::string_view query, const Json& variables);
Result<Json> data_in(std::string_view body);
// The object at a path of fields; nullptr: it, or one before it, is null or missing.
const Json* object_at(const Json& data, std::initializer_list<std::string_view> fields);

}  // namespace gdnctl::wandb
