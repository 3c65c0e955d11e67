// Keeps nlohmann/json out of headers: they see only a forward declaration. A .cpp file that builds or reads values
// includes <nlohmann/json.hpp> itself.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "core/result.h"

namespace gdnctl {

// Keys keep their insertion order, so that output has the same order each time.
using Json = nlohmann::ordered_json;

// Parses one JSON text (UTF-8). Never throws. On failure: bad_input, naming `what` and the byte offset.
Result<Json> parse_json(std::string_view text, std::string_view what);

// Serialises for stdout and state files. Invalid UTF-8 becomes U+FFFD; this never throws. `indent` < 0 prints one line.
// Characters that text::visible() escapes are written as \uXXXX, which is the same JSON.
std::string to_text(const Json& value, int indent = -1);

}  // namespace gdnctl
