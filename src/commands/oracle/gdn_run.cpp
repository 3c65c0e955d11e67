#include "commands/oracle/gdn.h"
#include "commands/oracle/read.h"
#include "commands/oracle/run.h"
#include "harness/files.h"
#include "harness/gdn/run.h"

namespace gdnctl::commands::oracle_gdn {

Status check_run(const oracle_run::Options& o) {
    if (o.parts || o.stream) return fail(ErrorKind::usage, "--parts and --stream are for gdn-layer");
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

}  // namespace gdnctl::commands::oracle_gdn
