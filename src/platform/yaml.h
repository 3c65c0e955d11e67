// YAML as a JSON value. Only yaml.cpp knows yaml-cpp.
#pragma once

#include <string_view>

#include "core/json.h"
#include "core/result.h"

namespace gdnctl {

// Scalars become strings as written, or null; maps keep their order; merge keys (`<<`) are resolved. An empty text is
// null. Error: config, naming `what` and the line.
Result<Json> parse_yaml(std::string_view text, std::string_view what);

}  // namespace gdnctl
