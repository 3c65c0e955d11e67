// The options of a command in the configuration: a table whose keys are their names without the dashes.
#pragma once

#include <functional>
#include <string_view>

#include "cli/args.h"
#include "core/config.h"

namespace gdnctl::cli {

// Assigns the table's values to the options that `is_given` does not claim. Errors: config, with file and line: a key
// that names no option (with a suggestion), a value that the option does not take.
Status assign_option_table(const Args& command, const ConfigTable& table, std::string_view name,
                           const std::function<bool(const OptionDef&)>& is_given);

// The option's name as a key: "post-check" for --post-check.
std::string_view option_key(const OptionDef& option);

}  // namespace gdnctl::cli
