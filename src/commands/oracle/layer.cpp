#include "commands/oracle/layer.h"

#include "commands/oracle/compare.h"
#include "commands/oracle/plain.h"
#include "commands/oracle/read.h"
#include "commands/oracle/run.h"
#include "harness/files.h"
#include "harness/gdn/run.h"

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
    if (options.heatmap || options.html || options.rtol || oracle_flashinfer::wanted(options.flashinfer)) {
        return fail(ErrorKind::usage,
                    "--heatmap, --html, --rtol, --atol, --flashinfer and --definition are for the operator, not for "
                    "gdn-layer");
    }
    return {};
}

}  // namespace

constinit const Operator k_operator = {.name = "gdn-layer",
                                       .what = "its layer (convolution, gates, norm)",
                                       .read = &read,
                                       .run = {&run, &check_run},
                                       .compare = {&oracle_plain::compare, &check_compare}};

}  // namespace gdnctl::commands::oracle_layer
