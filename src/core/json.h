// Keeps nlohmann/json out of headers: they see only a forward declaration. A .cpp file that builds or reads values
// includes <nlohmann/json.hpp> itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "core/result.h"
#include "core/time.h"

namespace gdnctl {

// Keys keep their insertion order, so that output has the same order each time.
using Json = nlohmann::ordered_json;

// Parses one JSON text (UTF-8). Never throws. On failure: bad_input, naming `what` and the byte offset.
Result<Json> parse_json(std::string_view text, std::string_view what);

// Serialises for stdout and state files. Invalid UTF-8 becomes U+FFFD; this never throws. `indent` < 0 prints one line.
// Characters that text::visible() escapes are written as \uXXXX, which is the same JSON.
std::string to_text(const Json& value, int indent = -1);

}  // namespace gdnctl

namespace gdnctl::json {

// Reads fields of JSON that others wrote: a field that is missing, null or of another type is nothing.

// nullptr: missing or null, or `value` is no object.
const Json* find(const Json& value, std::string_view name);
// "/a/b": field `b` of field `a`, or an index of a list (a JSON pointer without its escapes).
const Json* find_at(const Json& value, std::string_view pointer);

const Json& field(const Json& value, std::string_view name);  // a null where `find` gives nullptr
const Json& field_at(const Json& value, std::string_view pointer);

// nullptr also for a value of another type.
const Json* object(const Json& value, std::string_view name);
const Json* object_at(const Json& value, std::string_view pointer);
const Json* array(const Json& value, std::string_view name);
const Json* array_at(const Json& value, std::string_view pointer);

std::optional<std::string> maybe_text(const Json& value, std::string_view name);
std::string text(const Json& value, std::string_view name);                // "": nothing
std::vector<std::string> texts(const Json& value, std::string_view name);  // the strings of a list
std::optional<double> number(const Json& value, std::string_view name);
std::optional<std::int64_t> integer(const Json& value, std::string_view name);
std::optional<bool> boolean(const Json& value, std::string_view name);
std::optional<WallTime> time_ms(const Json& value, std::string_view name);  // from milliseconds since 1970

std::string text_at(const Json& value, std::string_view pointer);
std::vector<std::string> texts_at(const Json& value, std::string_view pointer);
std::optional<double> number_at(const Json& value, std::string_view pointer);
std::optional<std::int64_t> integer_at(const Json& value, std::string_view pointer);

// For writing: null where there is nothing, the number is not finite, or the text is empty.
Json or_null(const std::optional<double>& value);
Json or_null(const std::optional<std::int64_t>& value);
Json or_null(const std::optional<int>& value);
Json or_null(const std::optional<std::string>& value);
Json or_null(const std::string& value);

}  // namespace gdnctl::json
