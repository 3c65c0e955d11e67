#include "commands/oracle/linear_ce.h"

#include <array>

#include <fmt/format.h>

#include "commands/common.h"
#include "commands/oracle/operators.h"
#include "commands/oracle/plain.h"
#include "commands/oracle/verbs.h"
#include "core/json.h"
#include "core/version.h"
#include "harness/files.h"
#include "harness/linear_ce/operator.h"
#include "oracle/linear_ce/judge/cases.h"
#include "oracle/linear_ce/judge/selftest.h"
#include "oracle/linear_ce/report/report.h"
#include "platform/signals.h"
#include "platform/terminal.h"

namespace gdnctl::commands::linear_ce {

namespace {

namespace hce = harness::linear_ce;
namespace lce = oracle::linear_ce;

constexpr std::array<cli::Choice<lce::Level>, 3> k_levels = {{
    {"exact", lce::Level::exact, "every row and column"},
    {"sampled", lce::Level::sampled, "some rows and columns, and the invariants"},
    {"invariants", lce::Level::invariants, "only relations between gradients: can reject a result, never accept it"},
}};

}  // namespace

void describe_compare(cli::Args& args, CompareOptions& options) {
    describe_contract(args, options.contract);
    const char* group = "linear-ce";
    args.option(options.contract.matmul, {.names = "--matmul",
                                          .value = "exact|bf16|tf32",
                                          .help = "linear-ce: round the operands first: bf16 as a TPU does by default, "
                                                  "tf32 as JAX and PyTorch do on NVIDIA devices",
                                          .group = group,
                                          .default_text = "exact"});
    args.option(options.contract.ignore_index, {.names = "--ignore-index",
                                                .value = "N",
                                                .help = "linear-ce: rows with label N have weight 0",
                                                .group = group});
    args.option(options.level, k_levels,
                {.names = "--level", .value = "LEVEL", .help = "linear-ce: how much to compare", .group = group});
    args.option(options.rows,
                {.names = "--rows", .value = "N", .help = "linear-ce: number of rows to sample", .group = group});
    args.option(
        options.columns,
        {.names = "--cols", .value = "N", .help = "linear-ce: number of columns of gw to sample", .group = group});
    args.option(options.seed,
                {.names = "--seed", .value = "N", .help = "linear-ce: seed of the sample", .group = group});
    args.check([&options]() -> Status {
        if (options.rows < 1 || options.columns < 1)
            return fail(ErrorKind::usage, "--rows and --cols must be at least 1");
        if (options.seed < 0) return fail(ErrorKind::usage, "--seed must not be negative");
        return {};
    });
}

// What says nothing about this operator is refused, not ignored.
Status check_compare(const oracle_compare::Options& o) {
    GDNCTL_TRY(with_sets({}, o.contract.sets));
    return refuse(k_operator.name, {{"--contract", o.contract.contract != oracle_gdn::ContractOptions{}.contract},
                                    {"--rtol", o.rtol.has_value()},
                                    {"--atol", o.atol.has_value()},
                                    {"--budget", o.budget},
                                    {"--heatmap", o.heatmap},
                                    {"--allow-suspect", o.allow_suspect},
                                    {"--flashinfer", o.flashinfer.root.has_value()},
                                    {"--definition", o.flashinfer.definition.has_value()}});
}

Result<std::unique_ptr<harness::Reading>> read(const Operator& /*op*/, const oracle::TensorFile& inputs,
                                               const ReadOptions& options) {
    const CompareOptions& ce = options.ce;
    const oracle::Tensor* x = inputs.find("x");
    const oracle::Tensor* w = inputs.find("w");
    if (x != nullptr && w != nullptr && x->shape.size() == 2 && x->shape[1] > 0) {  // before they are copied
        const auto hidden = static_cast<std::size_t>(x->shape[1]);
        GDNCTL_TRY(hce::check_memory(x->count() / hidden, hidden, w->count() / hidden, ce.level == lce::Level::exact));
    }
    GDNCTL_TRY_ASSIGN(const Contract contract, with_sets(ce.contract, options.contract.sets));
    GDNCTL_TRY_ASSIGN(lce::Problem problem, hce::read_problem(inputs, contract));
    lce::CompareOptions how;
    how.level = ce.level;
    how.rows = static_cast<std::size_t>(ce.rows);
    how.columns = static_cast<std::size_t>(ce.columns);
    how.seed = static_cast<std::uint64_t>(ce.seed);
    return std::make_unique<hce::ReadProblem>(std::move(problem), inputs, how);
}

namespace {

namespace hce = harness::linear_ce;
namespace lce = oracle::linear_ce;

void print(const oracle::TensorFile& file, const lce::Problem& p, const std::string& out, Context& context) {
    if (!context.global.json) {
        for (const auto& [name, tensor] : file.tensors) {
            print_lines(
                fmt::format("{:<8} {:<9} {}\n", name, oracle::name_of(tensor.dtype), oracle::text_of(tensor.shape)),
                context);
        }
        print_lines(lce::contract_text(p.contract) + fmt::format("wrote {}\n", out), context);
        return;
    }
    Json report = {{"schema", "gdnctl.oracle-run/1"}, {"op", hce::k_op}, {"path", out}, {"method", "exact64"}};
    report["tensors"] = Json::array();
    for (const auto& [name, tensor] : file.tensors) {
        report["tensors"].push_back(
            {{"name", name}, {"dtype", oracle::name_of(tensor.dtype)}, {"shape", tensor.shape}});
    }
    report["contract"] = lce::contract_json(p.contract);
    print_json(report, context);
}

}  // namespace

void describe_run(cli::Args& args, RunOptions& options) {
    const char* group = "linear-ce";
    args.option(options.batch,
                {.names = "--batch", .value = "B", .help = "linear-ce: number of rows to generate", .group = group});
    args.option(options.hidden,
                {.names = "--hidden", .value = "H", .help = "linear-ce: hidden size (columns of x)", .group = group});
    args.option(options.vocab,
                {.names = "--vocab", .value = "V", .help = "linear-ce: vocabulary size", .group = group});
    args.option(options.weights, {.names = "--weights",
                                  .value = "zero-every=K",
                                  .help = "linear-ce: give every K-th row weight 0, the others weight 1",
                                  .group = group});
}

Status check_run(const oracle_run::Options& o) {
    GDNCTL_TRY(refuse(k_operator.name,
                      {{"--contract", o.contract.contract != oracle_gdn::ContractOptions{}.contract},
                       {"--method", o.method != oracle_run::Method::recurrent64},
                       {"--chunk", o.chunk.has_value()},
                       {"--backward", o.backward},
                       {"--parts", o.parts},
                       {"--stream", o.stream.has_value()}},
                      "results and gradients are always exact"));
    GDNCTL_TRY(
        refuse(k_operator.name, {{"--shape", o.shape.has_value()}}, "its sizes are --batch, --hidden and --vocab"));
    const bool shape = o.ce.batch || o.ce.hidden || o.ce.vocab;
    const int sources = (shape ? 1 : 0) + (o.case_name ? 1 : 0) + (o.inputs.empty() ? 0 : 1);
    if (sources != 1) {
        return fail(ErrorKind::usage, "pass one of --case, --inputs, and --batch with --hidden and --vocab");
    }
    GDNCTL_TRY(with_sets({}, o.contract.sets));
    return {};
}

Result<ExitCode> run(const Operator& op, const oracle_run::Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
    GDNCTL_TRY_ASSIGN(oracle::TensorFile file,
                      oracle_run::inputs(options, context, [&]() -> Result<oracle::TensorFile> {
                          hce::Generated from = options.ce;
                          from.case_name = options.case_name;
                          from.layout = options.ce_contract.layout;
                          GDNCTL_TRY_ASSIGN(const Contract set, with_sets({}, options.contract.sets));
                          if (const auto layout = set.sets.find("layout"); layout != set.sets.end()) {
                              from.layout = layout->second;
                          }
                          from.seed = options.seed;
                          from.bf16 = options.dtype == oracle::DType::bf16;
                          return hce::generate(from);
                      }));
    const CompareOptions all{options.ce_contract, lce::Level::exact};
    GDNCTL_TRY_ASSIGN(const auto reading, op.read(op, file, {options.contract, all}));
    const lce::Problem& problem = static_cast<const hce::ReadProblem&>(*reading).value();
    if (!problem.unstable_reason.empty()) return fail(ErrorKind::bad_input, problem.unstable_reason);
    hce::add_results(problem, {threads, [&] { return context.stop.stop_requested(); }}, file);
    for (auto& [field, value] : problem.contract.as_metadata()) file.metadata[field] = value;
    file.metadata["op"] = op.name;
    file.metadata["method"] = "exact64";
    file.metadata["loss"] = "lse - label logit, before penalty and weight";
    file.metadata["version"] = fmt::format("gdnctl {}", gdnctl::version());
    if (context.stop.stop_requested()) return tl::unexpected(stopped_error());
    GDNCTL_TRY(oracle_files::write(context, options.out, file));
    print(file, problem, options.out, context);
    return ExitCode::ok;
}

Result<ExitCode> selftest(const Operator& op, const oracle_selftest::Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
    const auto report = lce::run_selftest({threads, [&] { return context.stop.stop_requested(); }});
    return oracle_selftest::print(op, report, context);
}

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
    return refuse(k_operator.name, {{"--contract", o.contract.has_value()},
                                    {"--metamorphic", o.metamorphic},
                                    {"--slow", o.slow},
                                    {"--allow-suspect", o.allow_suspect},
                                    {"--dtype f16", o.dtype == oracle_verify::StoredAs::f16}});
}

Status check_bench(const oracle_bench::Options& o) {
    return refuse(k_operator.name, {{"--shape", o.shape != oracle_bench::k_default_shape}},
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
