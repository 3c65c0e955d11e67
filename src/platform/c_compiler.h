// The C compiler of this machine.
#pragma once

#include <string>
#include <vector>

namespace gdnctl {

class Env;

// $CC, which may hold several words ("gcc-13 -flto"), else cc.
std::vector<std::string> c_compiler(const Env& env);

// Whether that compiler can be found.
bool has_c_compiler(const Env& env);

}  // namespace gdnctl
