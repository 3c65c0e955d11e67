// What `gdnctl doctor` looks at.
#pragma once

#include <string>
#include <vector>

#include "platform/context.h"

namespace gdnctl::commands::doctor {

struct Check {
    enum class Need { required, optional, information };
    std::string name;
    Need need = Need::optional;
    bool ok = false;
    std::string detail;   // version, path, or what is wrong
    std::string purpose;  // what it is for
    std::string fix;      // the command that mends it; empty when it is ok
};

// In the order in which they are shown. Opens the optional libraries and starts `PROGRAM --version` of what is found.
std::vector<Check> all_checks(Context& context);

}  // namespace gdnctl::commands::doctor
