// The holder for clusters, as Python text.
#pragma once

#include <string_view>

namespace gdnctl::devtpu {

extern const std::string_view k_holder_script;

}  // namespace gdnctl::devtpu
