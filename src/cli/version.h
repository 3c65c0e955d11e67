// The output of --version.
#pragma once

#include <string>

#include "platform/env.h"

namespace gdnctl::cli {

// Version, commit and the libraries found, as text or as gdnctl.version/1.
std::string version_text(const Env& env, bool json);

}  // namespace gdnctl::cli
