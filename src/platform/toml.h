// Turns TOML text into a configuration tree. Only this header and its source know toml++.
#pragma once

#include <string_view>

#include "core/config.h"
#include "core/result.h"

namespace gdnctl {

// Every value gets `origin` with its own line. Error: config, "<source>:<line>: <what is wrong>".
Result<ConfigTable> parse_toml(std::string_view text, const ConfigOrigin& origin);

}  // namespace gdnctl
