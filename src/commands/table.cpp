#include "gdnctl/commands/table.h"

#include <array>

namespace gdnctl::commands {

namespace {

constexpr std::array<cli::Command, 0> k_table = {};

}  // namespace

std::span<const cli::Command> table() { return k_table; }

}  // namespace gdnctl::commands
