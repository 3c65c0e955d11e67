// What `gdnctl --version` says.
#pragma once

#include <string>

namespace gdnctl::cli {

std::string version_text(bool json);

}  // namespace gdnctl::cli
