// Which values of a changed configuration file are put back.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "services/git/calls.h"

namespace gdnctl::git {

struct ConfigChoice {
    std::vector<std::string> changed;  // keys to put back
    std::string bytes;                 // of the file, with the values of before and what may stay
};
// Between a file's bytes `before` (nullopt: there was none) and those that were found. nullopt: git cannot read one of
// them. `copy` is a file that may be written and is removed.
Result<std::optional<ConfigChoice>> choose_config(const Calls& calls, const std::optional<std::string>& before,
                                                  const std::string& found, const std::filesystem::path& copy);

}  // namespace gdnctl::git
