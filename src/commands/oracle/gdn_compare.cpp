#include <nlohmann/json.hpp>

#include "commands/oracle/compare.h"
#include "commands/oracle/gdn.h"
#include "core/json.h"
#include "harness/files.h"
#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/report/html.h"
#include "oracle/gdn/report/report.h"
#include "platform/fs.h"
#include "platform/signals.h"
#include "platform/terminal.h"

namespace gdnctl::commands::oracle_gdn {

Result<ExitCode> compare(const Operator& op, const oracle_compare::Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
    if (oracle_flashinfer::wanted(options.flashinfer)) {
        return oracle_flashinfer::run(options.flashinfer, threads, options.allow_suspect, context);
    }
    GDNCTL_TRY_ASSIGN(const auto dump, oracle_compare::read(options, context));
    const auto& [inputs, outputs] = dump;
    const bool gradients = outputs.any_name(
        [](std::string_view name) { return oracle::canonical_name(name).role == oracle::GdnRole::gradient; });
    GDNCTL_TRY_ASSIGN(auto reference,
                      harness::make_reference(inputs, options.contract, threads,
                                              gradients ? oracle::Passes::with_gradients : oracle::Passes::forward));
    GDNCTL_TRY(oracle::add_backward(reference, inputs, outputs, threads));
    if (context.stop.stop_requested()) return tl::unexpected(stopped_error());
    GDNCTL_TRY_ASSIGN(auto report,
                      oracle::judge(reference, outputs, {options.rtol, options.atol, !options.no_hints, threads}));
    report.outputs_are_truth = oracle::is_written_truth(outputs, report);
    oracle::list_left_alone(inputs, oracle::canonical_name, report.unknown, report.unread);
    if (options.html) {
        GDNCTL_TRY(atomic_replace(context.cwd / *options.html, oracle_html::page(reference, report)));
    }
    if (context.global.json) {
        Json object = {{"schema", "gdnctl.oracle-compare/1"}, {"op", op.name}};
        oracle_report::add_report(object, reference, report, oracle::condition_of(reference, threads));
        context.terminal.out(to_text(object, 2) + "\n");
    } else {
        if (options.heatmap) context.terminal.out(oracle_report::heatmap_text(reference, report));
        context.terminal.out(oracle_report::report_text(reference, report));
    }
    return oracle_report::exit_code_of(report.verdict, options.allow_suspect);
}

}  // namespace gdnctl::commands::oracle_gdn
