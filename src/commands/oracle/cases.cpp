#include "commands/oracle/cases.h"

#include <nlohmann/json.hpp>

#include "commands/print.h"
#include "commands/rows.h"
#include "core/json.h"
#include "platform/terminal.h"

namespace gdnctl::commands::oracle_cases {

void describe(cli::Args& args, Options& options) {
    args.about(
        "Lists the cases that `oracle verify` runs and `oracle run --case` writes: shapes of known test suites, inputs "
        "that break kernels, goldens with results from other programs, a covering array of conditions and contract "
        "fields (`crossed`), and steps for kernels that decode. A case has the same bytes on every machine.");
    describe_operator(args, options, &Operator::cases);
    args.example("gdnctl oracle cases gdn", "list the cases and what is special about each");
    args.example("gdnctl oracle cases gdn --json", "print JSON (gdnctl.oracle-cases/1)");
    args.see_also("oracle run");
    args.see_also("oracle verify");
}

Result<ExitCode> run(const Options& options, Context& context) {
    return run_operator(options, &Operator::cases, context);
}

ExitCode print(std::string_view op, const harness::CaseList& cases, Context& context) {
    if (context.global.json) {
        print_json(json_of(op, cases), context);
    } else {
        context.terminal.out(text_of(cases));
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::oracle_cases

namespace gdnctl::commands {

constinit const cli::Command k_oracle_cases_row = cli::make<&oracle_cases::describe, &oracle_cases::run>(
    "oracle cases", "Oracle", "list the generated cases", Tier::none);

}  // namespace gdnctl::commands
