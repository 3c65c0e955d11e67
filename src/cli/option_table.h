// The options of a command in the configuration: a table whose keys are their names without the dashes.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "cli/args.h"
#include "core/config.h"

namespace gdnctl::cli {

// Assigns the table's values to the options that `is_given` does not claim. `home`: the folder that "~" means. Errors:
// config, with file and line: a key that names no option (with a suggestion), a value that the option does not take.
Status assign_option_table(const Args& command, const ConfigTable& table, std::string_view name, std::string_view home,
                           const std::function<bool(const OptionDef&)>& is_given);

// The word to assign to the option: in a path, or after the prefix of a kernel, the folder `home` takes the place of a
// leading "~", which shells leave alone in --option=~/x and src:~/x.
std::string with_home(const OptionDef& option, std::string_view word, std::string_view home);

// The option's name as a key: "post-check" for --post-check.
std::string_view option_key(const OptionDef& option);

}  // namespace gdnctl::cli
