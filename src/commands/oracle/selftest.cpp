#include "commands/oracle/selftest.h"

#include <vector>

#include <fmt/format.h>

#include "commands/oracle/gdn.h"
#include "commands/rows.h"
#include "core/text.h"

namespace gdnctl::commands::oracle_selftest {

namespace {

// nullptr: there is no such operator.
const Operator* meant(const Options& options) {
    if (!options.op) return operators_with(options.operators, &Operator::selftest).front();
    return find_operator(options.operators, *options.op, &Operator::selftest);
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Checks that the oracle tells right from wrong on this machine. It plants one fault at a time in a chunked "
        "kernel, forward and backward (in all heads, in one head, or in one chunk of one head). Each must be found and "
        "localised. Correct variants (other chunk lengths, orders of summation, kernels and instruction sets, on every "
        "generated case) must all be OK. Faults that no hint covers are counted separately. Takes about a minute and a "
        "half.");
    const std::string_view first = operators_with(options.operators, &Operator::selftest).front()->name;
    args.positional(options.op, {.name = "OP", .help = fmt::format("the operator (default: {})", first)});
    args.check([&options]() -> Status {
        const Operator* op = meant(options);
        if (op != nullptr) return op->selftest.check == nullptr ? Status{} : op->selftest.check(options);
        std::vector<std::string> known;
        for (const Operator* each : operators_with(options.operators, &Operator::selftest)) {
            known.emplace_back(each->name);
        }
        return fail(ErrorKind::usage, fmt::format("unknown operator '{}'", *options.op),
                    "known: " + text::join(known, ", "));
    });
    oracle_gdn::describe_threads(args, options.threads);
    args.example("gdnctl oracle selftest", "run it");
    args.example("gdnctl oracle selftest linear-ce", "the same for the fused cross-entropy, in seconds");
    args.example("gdnctl oracle selftest --json", "print JSON (gdnctl.oracle-selftest/1)");
    args.exit_code(1, "a fault was missed, a correct variant flagged, or too many places or stages were wrong");
    args.see_also("oracle compare");
    args.see_also("oracle verify");
}

Result<ExitCode> run(const Options& options, Context& context) {
    const Operator& op = *meant(options);
    return op.selftest.run(op, options, context);
}

}  // namespace gdnctl::commands::oracle_selftest

namespace gdnctl::commands {

constinit const cli::Command k_oracle_selftest_row = cli::make<&oracle_selftest::describe, &oracle_selftest::run>(
    "oracle selftest", "Oracle", "check that the oracle finds planted faults on this machine", Tier::none);

}  // namespace gdnctl::commands
