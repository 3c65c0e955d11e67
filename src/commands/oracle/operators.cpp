#include "commands/oracle/operators.h"

#include <fmt/format.h>

#include "commands/oracle/gdn.h"
#include "commands/oracle/linear_ce.h"

namespace gdnctl::commands {

Operators operators() {
    static constexpr const Operator* k_operators[] = {&oracle_gdn::k_operator, &oracle_layer::k_operator,
                                                      &linear_ce::k_operator};
    return k_operators;
}

std::string operators_help(std::span<const Operator* const> known) {
    std::string text = "the operator: ";
    for (std::size_t i = 0; i < known.size(); ++i) {
        const bool last = i + 1 == known.size();
        text += fmt::format("{}{}", i == 0 ? "" : !last ? ", " : i > 1 ? ", or " : " or ", known[i]->what);
    }
    return text;
}

void describe_operator(cli::Args& args, std::string& op, const std::vector<const Operator*>& known) {
    std::vector<std::string_view> names;
    for (const Operator* each : known) names.push_back(each->name);
    args.positional(op, names, {.name = "OP", .help = operators_help(known)});
}

}  // namespace gdnctl::commands
