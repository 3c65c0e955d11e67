// Shared by all commands: how they print JSON, and the target that they use.
#pragma once

#include <optional>
#include <string_view>

#include "core/json.h"
#include "platform/context.h"
#include "target/target.h"

namespace gdnctl::commands {

// One JSON value and a newline on stdout: indented on a terminal, one line elsewhere.
void print_json(const Json& value, Context& context);

// Lines for people on stdout, folded to a terminal's width: text::folded().
void print_lines(std::string_view lines, Context& context, std::optional<int> hang = std::nullopt);

// The target that commands use.

// The target in effect: select_target(), with its `gates` checked. Error: config.
Result<Target> target_in_use(const Context& context);

}  // namespace gdnctl::commands
