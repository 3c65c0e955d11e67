// YAML as a JSON value. yaml-cpp is known to yaml.cpp alone.
#pragma once

#include <string_view>

#include "core/json.h"
#include "core/result.h"

namespace gdnctl::cluster {

// Scalars are strings as they are written, or null; maps keep their order; merge keys (`<<`) are resolved. An empty
// text is null. Error: config, naming `what` and the line.
Result<Json> parse_yaml(std::string_view text, std::string_view what);

}  // namespace gdnctl::cluster
