// The home folder in paths.
#pragma once

#include <string>
#include <string_view>

namespace gdnctl {

// "~" and "~/x" with `home` (empty: the home folder of the user database), "~name/x" with that user's; anything else,
// and an unknown user, unchanged. Shells do this only at the beginning of a word, so not in --option=~/x.
std::string expand_home(std::string_view path, std::string_view home);

}  // namespace gdnctl
