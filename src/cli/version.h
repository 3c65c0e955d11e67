// Which gdnctl this is.
#pragma once

#include <string>
#include <string_view>

#include "platform/env.h"

namespace gdnctl::cli {

std::string_view version();  // "0.1.0"
std::string_view commit();   // abbreviated, as of the last configuration of the build; "unknown" outside a repository

// What --version prints: version, commit, libraries found. As text, or as gdnctl.version/1.
std::string version_text(const Env& env, bool json);

}  // namespace gdnctl::cli
