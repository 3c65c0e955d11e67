#include "harness/timing/gdn_bench.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/oracle/bench.h"
#include "commands/oracle/gdn.h"
#include "commands/print.h"
#include "core/json.h"
#include "harness/files.h"
#include "platform/terminal.h"

namespace gdnctl::commands::oracle_gdn {

Result<ExitCode> bench(const Operator& op, const oracle_bench::Options& options, Context& context) {
    harness::GdnBenchRequest request;
    GDNCTL_TRY_ASSIGN(request.threads, oracle_files::thread_count(options.threads));
    request.op = op.name;
    request.truth_of = truth_of(op);
    request.kernel = options.kernel;
    request.peers = options.peers;
    request.shape = options.shape;
    GDNCTL_TRY_ASSIGN(request.dims, harness::parse_shape(options.shape));
    if (options.hidden.unseen) {
        const oracle::GdnDims& d = request.dims;
        request.dims.T = unseen_size(d.T, static_cast<std::uint64_t>(options.seed));
        request.shape = fmt::format("{},{},{},{},{},{}", d.B, d.Hk, d.Hv, d.T, d.dk, d.dv);
    }
    if (options.dtype == oracle_bench::DTypeChoice::bf16) request.storage = oracle::Storage::bf16;
    request.seed = static_cast<std::uint64_t>(options.seed);
    request.rounds = options.rounds;
    request.runs = options.runs;
    request.isa = oracle_bench::isa_of(options.isa);
    request.phases = options.phases;
    request.limits = limits_of(options.limits);
    harness::GdnBench bench(request, context);
    GDNCTL_TRY(bench.run());
    if (context.global.json) {
        Json report = bench.json();
        add_hidden(report, options.hidden);
        print_json(report, context);
    } else {
        context.terminal.out(bench.text() + hidden_text(options.hidden));
    }
    return bench.measured() ? bench.exit_code() : ExitCode::nothing_done;
}

}  // namespace gdnctl::commands::oracle_gdn
