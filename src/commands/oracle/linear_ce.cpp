#include "commands/oracle/linear_ce.h"

#include "commands/oracle/bench.h"
#include "commands/oracle/linear_ce_selftest.h"
#include "commands/oracle/plain.h"
#include "commands/oracle/selftest.h"
#include "commands/oracle/verify.h"
#include "oracle/linear_ce/judge/cases.h"

namespace gdnctl::commands::linear_ce {

void describe_contract(cli::Args& args, Contract& options) {
    const char* group = "linear-ce";
    args.option(options.layout, {.names = "--layout",
                                 .value = "hv|vh",
                                 .help = "linear-ce: layout of w: [H,V] or [V,H]",
                                 .group = group,
                                 .default_text = "as the inputs file says"});
    args.option(options.soft_cap, {.names = "--soft-cap",
                                   .value = "C",
                                   .help = "linear-ce: logits are C tanh(z / C)",
                                   .group = group,
                                   .default_text = "as the inputs file says, or none"});
    args.option(options.logsumexp_weight, {.names = "--logsumexp-weight",
                                           .value = "L",
                                           .help = "linear-ce: penalty L lse^2 added to each loss before its weight",
                                           .group = group,
                                           .default_text = "as the inputs file says, or 0"});
    args.option(options.reduction, {.names = "--reduction",
                                    .value = "mean|sum|none",
                                    .help = "linear-ce: how to reduce the losses; gradients are those of the result",
                                    .group = group,
                                    .default_text = "as the inputs file says, or mean"});
}

Result<Contract> with_sets(const Contract& options, const std::vector<std::string>& sets) {
    Contract contract = options;
    for (const std::string& set : sets) GDNCTL_TRY(oracle::linear_ce::set_field(set, contract));
    return contract;
}

void describe_bench(cli::Args& args, harness::linear_ce::BenchSizes& sizes) {
    const char* group = "linear-ce";
    args.option(sizes.batch, {.names = "--batch", .value = "B", .help = "linear-ce: number of rows", .group = group});
    args.option(sizes.hidden, {.names = "--hidden", .value = "H", .help = "linear-ce: hidden size", .group = group});
    args.option(sizes.vocab, {.names = "--vocab", .value = "V", .help = "linear-ce: vocabulary size", .group = group});
    args.option(sizes.soft_cap, {.names = "--soft-cap",
                                 .value = "C",
                                 .help = "linear-ce: logits are C tanh(z / C)",
                                 .group = group,
                                 .default_text = "none"});
    args.option(sizes.logsumexp_weight, {.names = "--logsumexp-weight",
                                         .value = "L",
                                         .help = "linear-ce: penalty L lse^2 added to each loss",
                                         .group = group});
    args.check([&sizes]() -> Status {
        constexpr std::int64_t k_most = std::int64_t{1} << 31U;
        for (const std::int64_t size : {sizes.batch, sizes.hidden, sizes.vocab}) {
            if (size < 1 || size >= k_most)
                return fail(ErrorKind::usage, "--batch, --hidden and --vocab must be 1 to 2147483647");
        }
        if (sizes.soft_cap < 0) return fail(ErrorKind::usage, "--soft-cap must be positive");
        return {};
    });
}

namespace {

Status check_verify(const oracle_verify::Options& o) {
    Contract contract;
    for (const std::string& set : o.sets) GDNCTL_TRY(oracle::linear_ce::set_field(set, contract));
    if (!o.contract && !o.metamorphic && !o.slow && !o.allow_suspect && o.dtype != oracle_verify::StoredAs::f16) {
        return {};
    }
    return fail(ErrorKind::usage,
                "linear-ce does not support --contract, --metamorphic, --slow, --allow-suspect or --dtype f16");
}

Status check_bench(const oracle_bench::Options& o) {
    if (!o.phases && o.shape == oracle_bench::k_default_shape) return {};
    return fail(ErrorKind::usage, "linear-ce does not support --shape or --phases",
                "its sizes are --batch, --hidden and --vocab");
}

Result<ExitCode> bench(const Operator& op, const oracle_bench::Options& options, Context& context) {
    return oracle_plain::bench_on(op, options, context, [&] {
        harness::linear_ce::BenchSizes sizes = options.ce;
        const auto seed = static_cast<std::uint64_t>(options.seed);
        if (options.hidden.unseen) sizes.batch = unseen_size(sizes.batch, seed);
        return harness::linear_ce::bench_inputs(sizes, seed, options.dtype == oracle_bench::DTypeChoice::bf16);
    });
}

std::vector<std::string> kernel_names(bool /*timed*/) { return {"builtin:fused"}; }

}  // namespace

constinit const Operator k_operator = {.name = harness::linear_ce::k_op,
                                       .what = "fused linear cross-entropy",
                                       .plain = &harness::linear_ce::plain,
                                       .cases = {&oracle_plain::cases},
                                       .read = &read,
                                       .run = {&run, &check_run},
                                       .compare = {&oracle_plain::compare, &check_compare},
                                       .verify = {&oracle_plain::verify, &check_verify},
                                       .bench = {&bench, &check_bench},
                                       .selftest = {&selftest},
                                       .case_names = &oracle::linear_ce::case_names,
                                       .kernel_names = &kernel_names};

}  // namespace gdnctl::commands::linear_ce
