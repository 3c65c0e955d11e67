#include "commands/oracle/linear_ce_compare.h"

#include <array>

#include <nlohmann/json.hpp>

#include "commands/oracle/compare.h"
#include "core/json.h"
#include "harness/files.h"
#include "harness/linear_ce/operator.h"
#include "harness/linear_ce/page.h"
#include "harness/linear_ce/report.h"
#include "oracle/judge/report.h"
#include "platform/fs.h"
#include "platform/signals.h"
#include "platform/terminal.h"

namespace gdnctl::commands::linear_ce {

namespace {

namespace hce = harness::linear_ce;
namespace lce = oracle::linear_ce;

constexpr std::array<cli::Choice<lce::Level>, 3> k_levels = {{
    {"exact", lce::Level::exact, "every row and column"},
    {"sampled", lce::Level::sampled, "some rows and columns, and the invariants"},
    {"invariants", lce::Level::invariants, "relations between gradients alone: accepts nothing"},
}};

}  // namespace

void describe_compare(cli::Args& args, CompareOptions& options) {
    describe_contract(args, options.contract);
    const char* group = "linear-ce";
    args.option(options.contract.matmul, {.names = "--matmul",
                                          .value = "exact|bf16",
                                          .help = "linear-ce: bf16 rounds operands first, as a TPU does by default",
                                          .group = group,
                                          .default_text = "exact"});
    args.option(options.contract.ignore_index, {.names = "--ignore-index",
                                                .value = "N",
                                                .help = "linear-ce: rows with label N have weight 0",
                                                .group = group});
    args.option(options.level, k_levels,
                {.names = "--level", .value = "LEVEL", .help = "linear-ce: how much to compare", .group = group});
    args.option(options.rows, {.names = "--rows", .value = "N", .help = "linear-ce: rows of a sample", .group = group});
    args.option(options.columns,
                {.names = "--cols", .value = "N", .help = "linear-ce: columns of gw in a sample", .group = group});
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
    const bool contract = o.contract.contract != oracle_gdn::ContractOptions{}.contract || !o.contract.sets.empty();
    if (contract || o.rtol || o.budget || o.heatmap || o.allow_suspect || oracle_flashinfer::wanted(o.flashinfer)) {
        return fail(ErrorKind::usage,
                    "linear-ce takes none of --contract, --set, --rtol, --atol, --budget, --heatmap, --allow-suspect "
                    "and the options of FlashInfer-Bench");
    }
    return {};
}

Result<ExitCode> compare(const Operator& op, const oracle_compare::Options& options, Context& context) {
    const CompareOptions& ce = options.ce;
    GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
    GDNCTL_TRY_ASSIGN(const auto dump, oracle_compare::read(options, context));
    GDNCTL_TRY_ASSIGN(const lce::Problem problem, hce::read_problem(dump.inputs, ce.contract));
    GDNCTL_TRY(hce::check_memory(problem.batch, problem.hidden, problem.vocab, ce.level == lce::Level::exact));
    lce::CompareOptions how;
    how.level = ce.level;
    how.rows = static_cast<std::size_t>(ce.rows);
    how.columns = static_cast<std::size_t>(ce.columns);
    how.seed = static_cast<std::uint64_t>(ce.seed);
    how.hints = !options.no_hints;
    how.work = {threads, [&] { return context.stop.stop_requested(); }};
    GDNCTL_TRY_ASSIGN(auto report, lce::compare(problem, dump.outputs, how));
    if (context.stop.stop_requested()) return tl::unexpected(stopped_error());
    for (const std::string& name : problem.unknown) report.unknown.push_back(name);
    if (options.html) GDNCTL_TRY(atomic_replace(context.cwd / *options.html, hce::page(problem, how, report)));
    if (context.global.json) {
        Json object = {{"schema", "gdnctl.oracle-compare/1"}, {"op", op.name}};
        hce::add_report(object, problem, how, report);
        context.terminal.out(to_text(object, 2) + "\n");
    } else {
        context.terminal.out(hce::report_text(problem, how, report, options.inputs, options.outputs));
    }
    if (report.invariants_hold) return ExitCode::ok;
    return oracle_report::exit_code_of(report.verdict, false);
}

}  // namespace gdnctl::commands::linear_ce
