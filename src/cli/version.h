// What --version prints.
#pragma once

#include <string>

#include "platform/env.h"

namespace gdnctl::cli {

// What --version prints: version, commit, libraries found. As text, or as gdnctl.version/1.
std::string version_text(const Env& env, bool json);

}  // namespace gdnctl::cli
