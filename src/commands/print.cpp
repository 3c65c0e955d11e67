#include "commands/print.h"

#include <nlohmann/json.hpp>

#include "platform/terminal.h"

namespace gdnctl::commands {

void print_json(const Json& value, Context& context, int indent) {
    context.terminal.out(to_text(value, indent) + "\n");
}

}  // namespace gdnctl::commands
