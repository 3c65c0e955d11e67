// Turns words into options. Only this header and its source know CLI11.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/args.h"
#include "core/result.h"

namespace gdnctl::cli {

// Looks up a variable, for OptionSpec::env.
using Lookup = std::function<std::optional<std::string>(std::string_view)>;

// Parses the words after the command's name: assigns every option, positional and trailing word that `globals` and
// `command` describe, then runs the command's checks. Errors are ErrorKind::usage and name the option or argument.
//
// These rules hold whatever the parser underneath does. A repeated scalar takes the last value. A list takes one value
// per use, unchanged. Numbers are decimal and finite, never empty. `--name=` is an empty value. A value that is the
// name of a known option must be written `--name=--value`. Words after the first `--` are the trailing command. Names
// are never abbreviated. Once a help or version flag of `globals` is assigned, missing arguments are not an error and
// checks do not run (`stop_early`).
Status parse_words(const Args& globals, const Args& command, const std::vector<std::string>& words,
                   const Lookup& environment, const std::function<bool()>& stop_early);

}  // namespace gdnctl::cli
