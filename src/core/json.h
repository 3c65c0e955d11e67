// JSON without its cost: headers see the forward declaration only, .cpp files that build or read values include
// <nlohmann/json.hpp> themselves.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "core/result.h"

namespace gdnctl {

// Keys keep the order in which they were inserted, so that every schema prints the same way each time.
using Json = nlohmann::ordered_json;

// Parses one JSON text (UTF-8). Never throws. On failure: bad_input, naming `what` and the byte offset.
Result<Json> parse_json(std::string_view text, std::string_view what);

// Serialises for stdout and for state files: invalid UTF-8 is replaced by U+FFFD, never thrown about.
// `indent` < 0 gives one line.
std::string to_text(const Json& value, int indent = -1);

}  // namespace gdnctl
