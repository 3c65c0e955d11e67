// This machine: home folders, its name, its C compiler, random digits.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gdnctl {

// "~" and "~/x" with `home` (empty: the home folder of the user database), "~name/x" with that user's; anything else,
// and an unknown user, unchanged. Shells do this only at the beginning of a word, so not in --option=~/x.
std::string expand_home(std::string_view path, std::string_view home);

// The name of this machine.

std::optional<std::string> host_name();  // nullopt: the system does not tell it

// The C compiler of this machine.

class Env;

// $CC, which may hold several words ("gcc-13 -flto"), else cc.
std::vector<std::string> c_compiler(const Env& env);

// Whether that compiler can be found.
bool has_c_compiler(const Env& env);

// Random names: nonces, ids of runs, unpredictable folder names.

std::string random_hex(std::size_t digits);  // lower-case digits, from the system's random device

}  // namespace gdnctl
