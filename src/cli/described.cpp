#include "cli/described.h"

#include "cli/dispatch.h"

namespace gdnctl::cli {

std::unique_ptr<Descriptions> describe_all(const Table& table) {
    auto all = std::make_unique<Descriptions>();
    describe_globals(all->globals, all->flags);
    for (const Command& command : table) {
        if (is_hidden(command)) continue;
        Described one{&command, command.create(), {}};
        one.invocation->describe(one.args);
        all->commands.push_back(std::move(one));
    }
    return all;
}

}  // namespace gdnctl::cli
