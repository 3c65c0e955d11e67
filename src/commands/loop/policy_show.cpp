// gdnctl policy show
#include <nlohmann/json.hpp>

#include "commands/loop/loop_gate_options.h"
#include "commands/loop/policy_common.h"
#include "commands/print.h"
#include "commands/rows.h"
#include "loop/perf/policy_file.h"
#include "platform/context.h"
#include "platform/terminal.h"

namespace gdnctl::commands::policy_show {

struct Options {
    loop::PerfOptions perf;
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Prints the performance policy that codex-loop would use here, as JSON: thresholds and gates. The output is a "
        "policy file: change it and pass it with --perf-policy-file.");
    describe_perf_policy(args, options.perf);
    args.example("gdnctl policy show >policy.json", "start your own policy");
    args.example("gdnctl policy show --perf-max-while-increase-ms 2", "with another threshold");
    args.exit_code(2, "usage error, or a policy file that cannot be parsed");
    args.see_also("policy test");
    args.see_also("policy simulate");
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const loop::PerfPolicy policy, policy_in_force(options.perf, context));
    const int indent = context.global.json ? -1 : 2;
    print_json(loop::policy_json(policy), context, indent);
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::policy_show

namespace gdnctl::commands {

constinit const cli::Command k_policy_show_row = cli::make<&policy_show::describe, &policy_show::run>(
    "policy show", "Loop", "print the policy that judges candidates", Tier::none);

}  // namespace gdnctl::commands
