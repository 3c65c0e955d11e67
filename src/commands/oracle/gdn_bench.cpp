#include <nlohmann/json.hpp>

#include "commands/oracle/bench.h"
#include "commands/oracle/bench_run.h"
#include "commands/oracle/bench_sweep.h"
#include "commands/oracle/gdn.h"
#include "core/json.h"
#include "harness/files.h"
#include "platform/terminal.h"

namespace gdnctl::commands::oracle_gdn {

Result<ExitCode> bench(const Operator& /*op*/, const oracle_bench::Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
    const oracle::Isa isa = oracle_bench::isa_of(options.isa);
    if (options.sweep) return oracle_bench::run_sweep(options, context, threads, isa);
    oracle_bench::Bench bench(options, context, threads, isa);
    GDNCTL_TRY(bench.run());
    context.terminal.out(context.global.json ? to_text(bench.json(), 2) + "\n" : bench.text());
    if (!bench.measured()) return ExitCode::nothing_done;
    return bench.exit_code();
}

}  // namespace gdnctl::commands::oracle_gdn
