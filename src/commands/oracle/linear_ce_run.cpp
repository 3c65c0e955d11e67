#include "commands/oracle/linear_ce_run.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/oracle/read.h"
#include "commands/oracle/run.h"
#include "commands/print.h"
#include "core/json.h"
#include "core/version.h"
#include "harness/files.h"
#include "harness/linear_ce/operator.h"
#include "oracle/linear_ce/report/report.h"
#include "platform/signals.h"
#include "platform/terminal.h"

namespace gdnctl::commands::linear_ce {

namespace {

namespace hce = harness::linear_ce;
namespace lce = oracle::linear_ce;

void print(const oracle::TensorFile& file, const lce::Problem& p, const std::string& out, Context& context) {
    if (!context.global.json) {
        for (const auto& [name, tensor] : file.tensors) {
            context.terminal.out(
                fmt::format("{:<8} {:<9} {}\n", name, oracle::name_of(tensor.dtype), oracle::text_of(tensor.shape)));
        }
        context.terminal.out(lce::contract_text(p.contract) + fmt::format("wrote {}\n", out));
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
    const bool shape = o.ce.batch || o.ce.hidden || o.ce.vocab;
    const int sources = (shape ? 1 : 0) + (o.case_name ? 1 : 0) + (o.inputs.empty() ? 0 : 1);
    if (sources != 1) {
        return fail(ErrorKind::usage, "pass one of --case, --inputs, and --batch with --hidden and --vocab");
    }
    GDNCTL_TRY(with_sets({}, o.contract.sets));
    const bool contract = o.contract.contract != oracle_gdn::ContractOptions{}.contract;
    const bool method = o.method != oracle_run::Method::recurrent64 || o.chunk;
    if (contract || o.shape || method || o.backward || o.parts || o.stream) {
        return fail(ErrorKind::usage,
                    "linear-ce does not support --contract, --shape, --method, --chunk, --backward, --parts or "
                    "--stream",
                    "results and gradients are always exact");
    }
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

}  // namespace gdnctl::commands::linear_ce
