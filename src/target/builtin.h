// Private to target/: the targets that need no configuration, and how a table overrides one.
#pragma once

#include <vector>

#include "target/target.h"

namespace gdnctl::detail {

// In the order in which a checkout is compared with their root markers; the last one is the embedded default.
const std::vector<Target>& builtin_targets();

// Reads [targets.NAME] over `base`. Errors: config.
Result<Target> parse_target(Target base, const ConfigTable& table);

Result<JobCommand> levanter_test(const Target& target, const TestSelection& selection);
Result<JobCommand> levanter_profile(const Target& target, const ProfileSettings& settings);
EnvList levanter_cluster_env();

}  // namespace gdnctl::detail
