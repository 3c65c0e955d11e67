// A performance policy as a file (JSON, `gdnctl.policy/1`) and as the table `gates` of a target. Both are laid over the
// built-in policy: what they do not name stays. Pure but for read_policy_file().
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/config.h"
#include "core/json.h"
#include "core/result.h"
#include "loop/perf/gates.h"

namespace gdnctl::loop {

// Everything, so that the text is a policy file again.
Json policy_json(const PerfPolicy& policy);

// `limits` are merged name by name, `gates` is replaced as a whole. Errors: config, naming `name` and the field: no
// JSON object, unknown key, wrong type, a gate that speaks of a limit that there is not.
Result<PerfPolicy> parse_policy(std::string_view text, std::string_view name, PerfPolicy base);
// A target's `gates`. Errors: the same.
Result<PerfPolicy> policy_of_table(const ConfigTable& table, std::string_view name, PerfPolicy base);
// Errors besides: usage (no such file), local_io.
Result<PerfPolicy> read_policy_file(const std::filesystem::path& path, PerfPolicy base);

}  // namespace gdnctl::loop
