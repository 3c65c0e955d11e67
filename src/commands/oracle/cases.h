// gdnctl oracle cases
#pragma once

#include <string>

#include "cli/args.h"
#include "commands/oracle/operators.h"
#include "harness/plain/operator.h"
#include "platform/context.h"

namespace gdnctl::commands::oracle_cases {

struct Options {
    std::string op;
    Operators operators = commands::operators();
};

// For people, or as JSON.
ExitCode print(std::string_view op, const harness::CaseList& cases, Context& context);

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::oracle_cases
