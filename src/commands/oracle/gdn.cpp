#include "commands/oracle/gdn.h"

#include <algorithm>

#include <fmt/format.h>

#include "commands/common.h"
#include "commands/oracle/plain.h"
#include "commands/oracle/verbs.h"
#include "core/json.h"
#include "core/text.h"
#include "harness/child/library.h"
#include "harness/engine/bench.h"
#include "harness/files.h"
#include "harness/gdn/kernel.h"
#include "harness/gdn/run.h"
#include "oracle/gdn/bench/bench.h"
#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/report/report.h"
#include "oracle/gdn/selftest/selftest.h"
#include "oracle/linear_ce/judge/contract.h"
#include "platform/progress.h"
#include "platform/signals.h"
#include "platform/terminal.h"

namespace gdnctl::commands::oracle_gdn {

Status check_run(const oracle_run::Options& o) {
    GDNCTL_TRY(refuse("gdn", {{"--parts", o.parts},
                              {"--stream", o.stream.has_value()},
                              {"--batch", o.ce.batch.has_value()},
                              {"--hidden", o.ce.hidden.has_value()},
                              {"--vocab", o.ce.vocab.has_value()}}));
    return oracle_run::check_sources(o);
}

Result<ExitCode> run(const Operator& op, const oracle_run::Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
    GDNCTL_TRY_ASSIGN(oracle::TensorFile file,
                      oracle_run::inputs(options, context, [&] { return generate_gdn(options); }));
    GDNCTL_TRY_ASSIGN(const auto reading, op.read(op, file, {options.contract, {}, options.chunk}));
    const auto& gdn = static_cast<const harness::GdnReading&>(*reading);
    GDNCTL_TRY(add_gdn_results(gdn, options, threads, file));
    GDNCTL_TRY(oracle_run::finish(options, gdn.contract(), file, context));
    return ExitCode::ok;
}

namespace {

Status check_verify(const oracle_verify::Options& o) {
    const auto declared = oracle::read_declared(o.contract, o.sets);
    return declared ? Status{} : tl::unexpected(declared.error());
}

}  // namespace

Status check_bench(const oracle_bench::Options& o) {
    const harness::linear_ce::BenchSizes usual;
    return refuse("gdn",
                  {{"--batch", o.ce.batch != usual.batch},
                   {"--hidden", o.ce.hidden != usual.hidden},
                   {"--vocab", o.ce.vocab != usual.vocab},
                   {"--soft-cap", o.ce.soft_cap != usual.soft_cap},
                   {"--logsumexp-weight", o.ce.logsumexp_weight != usual.logsumexp_weight}},
                  "its sizes are in --shape");
}

Result<ExitCode> bench(const Operator& op, const oracle_bench::Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
    GDNCTL_TRY_ASSIGN(const harness::BenchRequest request, oracle_plain::bench_request(options, threads, context));
    std::string shape = options.shape;
    GDNCTL_TRY_ASSIGN(oracle::GdnDims d, harness::parse_shape(shape));
    if (options.hidden.unseen) {
        d.T = unseen_size(d.T, request.seed);
        shape = fmt::format("{},{},{},{},{},{}", d.B, d.Hk, d.Hv, d.T, d.dk, d.dv);
    }
    GDNCTL_TRY(oracle_files::check_memory(d, static_cast<std::size_t>(d.B)));
    const auto plan = harness::gdn_plan(d, shape, request, context);
    return oracle_plain::run_bench(op.name, *plan, request, options.hidden, context);
}

Result<ExitCode> selftest(const Operator& op, const oracle_selftest::Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
    Progress progress(context.terminal, context.clock,
                      {.label = "selftest", .quiet = context.global.quiet, .after = std::chrono::seconds(2)});
    progress.tick();
    const auto report = oracle::run_selftest(threads, ticking(progress, [&] { return context.stop.stop_requested(); }));
    progress.finish();
    return oracle_selftest::print(op, report, context);
}

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
                                       .plain = &harness::gdn_operator,
                                       .cases = {&oracle_plain::cases},
                                       .read = &read,
                                       .run = {&run, &check_run},
                                       .compare = {&oracle_plain::compare},
                                       .verify = {&oracle_plain::verify, &check_verify},
                                       .bench = {&bench, &check_bench},
                                       .selftest = {&selftest},
                                       .case_names = &oracle::gdn_case_names,
                                       .kernel_names = &kernel_names};

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
    args.option(options.sets, {.names = "--set",
                               .value = "FIELD=VALUE",
                               .help = k_set_help,
                               .group = "Contract",
                               .complete = cli::Complete::contract_set});
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

namespace gdnctl::commands::oracle_layer {

namespace {

Result<std::unique_ptr<harness::Reading>> read(const Operator& /*op*/, const oracle::TensorFile& inputs,
                                               const ReadOptions& options) {
    return harness::LayerReading::read(inputs, options.contract);
}

Status check_run(const oracle_run::Options& o) {
    if (o.case_name) return fail(ErrorKind::usage, "--case: named cases exist only for the operator", "give --shape");
    if (o.method != oracle_run::Method::recurrent64 || o.chunk) {
        return fail(ErrorKind::usage, "gdn-layer is computed in fp64 only: drop --method and --chunk");
    }
    if (o.stream && *o.stream < 1) return fail(ErrorKind::usage, "--stream must be at least one token");
    return oracle_run::check_sources(o);
}

Result<ExitCode> run(const Operator& op, const oracle_run::Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
    GDNCTL_TRY_ASSIGN(oracle::TensorFile file,
                      oracle_run::inputs(options, context, [&] { return generate_layer(options); }));
    GDNCTL_TRY_ASSIGN(const auto reading, op.read(op, file, {options.contract, {}}));
    const auto& layer = static_cast<const harness::LayerReading&>(*reading);
    GDNCTL_TRY(add_layer_results(layer, options, threads, file));
    GDNCTL_TRY(oracle_run::finish(options, layer.contract().resolved, file, context));
    return ExitCode::ok;
}

Status check_compare(const oracle_compare::Options& options) {
    return refuse("gdn-layer", {{"--heatmap", options.heatmap},
                                {"--html", options.html.has_value()},
                                {"--rtol", options.rtol.has_value()},
                                {"--atol", options.atol.has_value()},
                                {"--flashinfer", options.flashinfer.root.has_value()},
                                {"--definition", options.flashinfer.definition.has_value()}});
}

}  // namespace

constinit const Operator k_operator = {.name = "gdn-layer",
                                       .what = "its layer (convolution, gates, norm)",
                                       .read = &read,
                                       .run = {&run, &check_run},
                                       .compare = {&oracle_plain::compare, &check_compare}};

}  // namespace gdnctl::commands::oracle_layer
