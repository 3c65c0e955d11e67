// A performance policy as a file (JSON, `gdnctl.policy/1`) and as the table `gates` of a target. Both are laid over the
// built-in policy: what they do not name stays. Pure but for read_policy_file().
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/json.h"
#include "core/result.h"
#include "loop/perf/gates.h"
#include "target/target.h"

namespace gdnctl::loop {

// Everything, so that the text is a policy file again.
Json policy_json(const PerfPolicy& policy);

// `limits` are merged name by name, `gates` is replaced as a whole. Errors: config, naming `name` and the field: no
// JSON object, unknown key, wrong type, a gate that speaks of a limit that there is not.
Result<PerfPolicy> parse_policy(std::string_view text, std::string_view name, const PerfPolicy& base);
// A target's `gates`. Errors: the same, naming the file and line.
Result<PerfPolicy> policy_of_target(const Target& target, const PerfPolicy& base);
// The errors of policy_of_target().
Status check_gates(const Target& target);
// Errors besides: usage (no such file), local_io.
Result<PerfPolicy> read_policy_file(const std::filesystem::path& path, const PerfPolicy& base);

}  // namespace gdnctl::loop
