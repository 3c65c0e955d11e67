// The checks of `gdnctl doctor`.
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
    std::string fix;      // the command that fixes it; empty if it is ok
};

// In display order. Opens the optional libraries and runs `PROGRAM --version` for the programs found.
std::vector<Check> all_checks(Context& context);

}  // namespace gdnctl::commands::doctor
