// The Link header (RFC 8288), which links to the next page of a listing. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gdnctl::hub {

// The target of the link with the relation "next"; nullopt: none.
std::optional<std::string> next_link(std::string_view header);

}  // namespace gdnctl::hub
