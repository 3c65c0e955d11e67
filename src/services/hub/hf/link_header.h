// The Link header of RFC 8288, by which listings continue. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gdnctl::hub {

// The target of the link whose relation is "next"; nullopt: there is none.
std::optional<std::string> next_link(std::string_view header);

}  // namespace gdnctl::hub
