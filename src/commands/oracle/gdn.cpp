#include "commands/oracle/gdn.h"

#include <fmt/format.h>

#include "commands/oracle/plain.h"
#include "commands/oracle/read.h"
#include "core/text.h"
#include "oracle/gdn/bench/bench.h"
#include "oracle/gdn/under_test/kernel_under_test.h"
#include "oracle/linear_ce/judge/contract.h"

namespace gdnctl::commands::oracle_gdn {

namespace {

Result<std::unique_ptr<harness::Reading>> read(const Operator& /*op*/, const oracle::TensorFile& inputs,
                                               const ReadOptions& options) {
    return harness::GdnReading::read(inputs, options.contract, options.chunk, options.rule);
}

std::vector<std::string> kernel_names(bool timed) {
    if (timed) return oracle::timed_kernel_names();
    std::vector<std::string> names = oracle::builtin_kernel_names();
    for (std::string& name : names) name.insert(0, "builtin:");
    return names;
}

}  // namespace

constinit const Operator k_operator = {.name = "gdn",
                                       .what = "Gated DeltaNet",
                                       .cases = {&cases},
                                       .read = &read,
                                       .run = {&run, &check_run},
                                       .compare = {&oracle_plain::compare},
                                       .verify = {&verify},
                                       .bench = {&bench},
                                       .selftest = {&selftest},
                                       .case_names = &oracle::gdn_case_names,
                                       .kernel_names = &kernel_names};

harness::TruthOf truth_of(const Operator& op, const harness::ContractChoice& choice) {
    return [&op, choice](const oracle::TensorFile& inputs, int threads) -> Result<oracle::GdnReference> {
        GDNCTL_TRY_ASSIGN(const auto reading, op.read(op, inputs, {choice, {}}));
        return static_cast<harness::GdnReading&>(*reading).take_reference(threads);
    };
}

const std::string& contract_help() {
    static const std::string k_help =
        "contract that defines what the tensors mean: " + text::join(oracle::contract_names(), ", ");
    return k_help;
}

void describe_contract(cli::Args& args, ContractOptions& options) {
    static const std::string k_set_help =
        "change one contract field: " + text::join(oracle::contract_field_names(), ", ") +
        "; linear-ce: " + text::join(oracle::linear_ce::contract_field_names(), ", ");
    args.option(options.contract, {.names = "--contract",
                                   .value = "NAME",
                                   .help = contract_help(),
                                   .group = "Contract",
                                   .complete = cli::Complete::contract});
    args.option(options.sets, {.names = "--set", .value = "FIELD=VALUE", .help = k_set_help, .group = "Contract"});
}

void describe_threads(cli::Args& args, std::int64_t& threads) {
    args.option(threads, {.names = "--threads",
                          .value = "N",
                          .help = "number of threads; results do not depend on it",
                          .default_text = "all cores"});
}

void describe_tolerances(cli::Args& args, std::optional<double>& rtol, std::optional<double>& atol, bool& budget) {
    args.option(rtol, {.names = "--rtol",
                       .value = "R",
                       .help = "relative tolerance: judge by |x-y| <= A + R|y| instead of the error budget",
                       .group = "Judgement"});
    args.option(atol,
                {.names = "--atol", .value = "A", .help = "absolute tolerance A for --rtol", .group = "Judgement"});
    args.flag(
        budget,
        {.names = "--budget", .help = "judge by the error budget of these inputs (the default)", .group = "Judgement"});
    args.check([&rtol, &atol, &budget]() -> Status {
        if (rtol.has_value() != atol.has_value()) {
            return fail(ErrorKind::usage, "--rtol and --atol must be given together",
                        "pass both, or neither to use the budget");
        }
        if (rtol && budget) return fail(ErrorKind::usage, "--budget cannot be combined with --rtol and --atol");
        if (rtol && (*rtol < 0 || *atol < 0)) return fail(ErrorKind::usage, "--rtol and --atol must not be negative");
        return {};
    });
}

}  // namespace gdnctl::commands::oracle_gdn
