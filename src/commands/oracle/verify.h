// gdnctl oracle verify
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/args.h"
#include "commands/oracle/hidden.h"
#include "commands/oracle/kernel_options.h"
#include "commands/oracle/operators.h"
#include "platform/context.h"

namespace gdnctl::commands::oracle_verify {

enum class StoredAs { as_listed, f32, bf16, f16 };
std::string_view name_of(StoredAs dtype);  // as --dtype spells it

struct Options {
    std::string op;
    std::string kernel;
    std::optional<std::string> contract;  // of the kernel, as it is declared
    std::vector<std::string> sets;
    std::optional<std::string> vectors;
    std::vector<std::string> cases;
    StoredAs dtype = StoredAs::as_listed;
    std::optional<std::string> seed;
    bool allow_suspect = false;
    bool metamorphic = false;
    bool slow = false;
    std::int64_t threads = 0;
    LimitOptions limits;
    Hidden hidden;
    Operators operators = commands::operators();
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::oracle_verify
