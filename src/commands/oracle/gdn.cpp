#include "commands/oracle/gdn.h"

#include <fmt/format.h>

#include "core/text.h"
#include "harness/files.h"

namespace gdnctl::commands::oracle_gdn {

void describe_op(cli::Args& args, std::string& op) {
    args.positional(op, k_ops, {.name = "OP", .help = "the operator: gdn (Gated DeltaNet)"});
}

void describe_all_ops(cli::Args& args, std::string& op) {
    args.positional(op, k_all_ops,
                    {.name = "OP", .help = "the operator: Gated DeltaNet or fused linear cross-entropy"});
}

void describe_op_or_layer(cli::Args& args, std::string& op) {
    args.positional(op, k_ops_and_layer,
                    {.name = "OP", .help = "the operator; gdn-layer is gdn with convolution, gates and norm"});
}

void describe_contract(cli::Args& args, ContractOptions& options) {
    static const std::string k_contract_help =
        "contract that says what the tensors mean: " + text::join(oracle::contract_names(), ", ");
    static const std::string k_set_help =
        "change one contract field: " + text::join(oracle::contract_field_names(), ", ");
    args.option(options.contract, {.names = "--contract",
                                   .value = "NAME",
                                   .help = k_contract_help,
                                   .group = "Contract",
                                   .complete = cli::Complete::contract});
    args.option(options.sets, {.names = "--set", .value = "FIELD=VALUE", .help = k_set_help, .group = "Contract"});
}

void describe_threads(cli::Args& args, std::int64_t& threads) {
    args.option(threads, {.names = "--threads",
                          .value = "N",
                          .help = "threads to compute with; results do not depend on it",
                          .default_text = "all cores"});
}

void describe_tolerances(cli::Args& args, std::optional<double>& rtol, std::optional<double>& atol, bool& budget) {
    args.option(rtol, {.names = "--rtol",
                       .value = "R",
                       .help = "judge by |x-y| <= A + R|y| instead of the budget",
                       .group = "Judgement"});
    args.option(atol,
                {.names = "--atol", .value = "A", .help = "absolute tolerance of that rule", .group = "Judgement"});
    args.flag(
        budget,
        {.names = "--budget", .help = "judge by the error budget of these inputs (the default)", .group = "Judgement"});
    args.check([&rtol, &atol, &budget]() -> Status {
        if (rtol.has_value() != atol.has_value()) {
            return fail(ErrorKind::usage, "--rtol and --atol must be given together",
                        "give both, or neither for the budget");
        }
        if (rtol && budget) return fail(ErrorKind::usage, "--budget cannot be combined with --rtol and --atol");
        if (rtol && (*rtol < 0 || *atol < 0)) return fail(ErrorKind::usage, "--rtol and --atol must not be negative");
        return {};
    });
}

Result<oracle::GdnDims> parse_shape(const std::string& text) {
    const auto parts = text::split(text, ',');
    std::vector<std::int64_t> numbers;
    for (const std::string_view part : parts) {
        const auto number = text::parse_int(part);
        if (number && *number >= (numbers.size() == 3 ? 0 : 1) && *number < (std::int64_t{1} << 30U))
            numbers.push_back(*number);
    }
    if (numbers.size() != 6 || parts.size() != 6) {
        return fail(ErrorKind::usage,
                    fmt::format("--shape {}: expected B,Hk,Hv,T,dk,dv, as in 1,4,8,4096,128,128", text));
    }
    return oracle::GdnDims{numbers[0], numbers[3], numbers[1], numbers[2], numbers[4], numbers[5]};
}

Result<oracle::GdnReference> make_reference(const oracle::TensorFile& inputs, const ContractOptions& options,
                                            int threads, oracle::Passes passes) {
    GDNCTL_TRY_ASSIGN(auto contract, oracle::resolve_contract(options.contract, inputs.metadata, options.sets));
    GDNCTL_TRY_ASSIGN(auto problem, oracle::read_problem(inputs, contract));
    GDNCTL_TRY(oracle_files::check_memory(problem.dims, problem.sequences.size(), passes));
    return oracle::make_reference(std::move(problem), std::move(contract), threads);
}

}  // namespace gdnctl::commands::oracle_gdn
