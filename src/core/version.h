// The version of this gdnctl.
#pragma once

#include <string_view>

namespace gdnctl {

std::string_view version();  // "0.2.0"
// As of the last time the build was configured: abbreviated, "unknown" outside a repository.
std::string_view commit();
// Whether the build was configured from the commit with the version's tag ("v0.2.0"), without changes to it.
bool is_release();

}  // namespace gdnctl
