// The name of this machine.
#pragma once

#include <optional>
#include <string>

namespace gdnctl {

std::optional<std::string> host_name();  // nullopt: the system does not tell it

}  // namespace gdnctl
