// gdnctl log append
#pragma once

#include <span>
#include <string_view>

namespace gdnctl::commands::log_append {

// The values of --outcome.
std::span<const std::string_view> outcome_words();

}  // namespace gdnctl::commands::log_append
