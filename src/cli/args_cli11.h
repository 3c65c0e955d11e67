// Turns words into options. Only this header and its source know CLI11.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/args.h"
#include "core/config.h"
#include "core/result.h"

namespace gdnctl::cli {

// Looks up a variable, for OptionSpec::env.
using Lookup = std::function<std::optional<std::string>(std::string_view)>;

// What the configuration says about the command's options; asked for once the global options are known.
struct OptionTable {
    std::string_view name = {};
    std::function<Result<const ConfigTable*>()> find = {};  // nullptr: nothing
};

// Parses the words after the command's name: assigns every option, positional and trailing word that `globals` and
// `command` describe, then runs the command's checks. Errors are ErrorKind::usage and name the option or argument.
//
// Contract, whatever the parser underneath does: a repeated scalar takes the last value; a list takes one value a use,
// word for word; numbers are decimal and finite, never empty; `--name=` is an empty value; a value that is the name of
// a known option must be written `--name=--value`; words after the first `--` are the trailing command; names are never
// abbreviated. When a help or version flag of `globals` has been assigned, missing arguments are no error and checks
// do not run (`stop_early`).
//
// An option that has no word takes its value from its environment variable, else from `table`.
Status parse_words(const Args& globals, const Args& command, const std::vector<std::string>& words,
                   const Lookup& environment, const std::function<bool()>& stop_early, const OptionTable& table = {});

}  // namespace gdnctl::cli
