// The version of this gdnctl.
#pragma once

#include <string_view>

namespace gdnctl {

std::string_view version();  // "0.1.0"
std::string_view commit();   // abbreviated, as of the last time the build was configured; "unknown" outside a
                             // repository

}  // namespace gdnctl
