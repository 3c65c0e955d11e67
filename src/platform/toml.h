// TOML text -> configuration tree. The only door to toml++.
#pragma once

#include <string_view>

#include "core/config.h"
#include "core/result.h"

namespace gdnctl {

// Every value gets `origin` with its own line. Error: config, "<source>:<line>: <what is wrong>".
Result<ConfigTable> parse_toml(std::string_view text, const ConfigOrigin& origin);

}  // namespace gdnctl
