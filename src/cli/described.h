// All commands with their descriptions, for the generators.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "cli/command.h"
#include "cli/globals.h"

namespace gdnctl::cli {

struct Described {
    const Command* command = nullptr;
    std::unique_ptr<Invocation> invocation;  // owns the variables that `args` assigns to
    Args args;
};

struct Descriptions {
    GlobalFlags flags;
    Args globals;
    std::vector<Described> commands;  // visible ones, in the order of the table
};

std::unique_ptr<Descriptions> describe_all(const Table& table);

}  // namespace gdnctl::cli
