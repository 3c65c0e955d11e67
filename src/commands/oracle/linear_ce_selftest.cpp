#include "commands/oracle/linear_ce_selftest.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/oracle/selftest.h"
#include "commands/print.h"
#include "core/json.h"
#include "harness/files.h"
#include "harness/linear_ce/operator.h"
#include "oracle/linear_ce/judge/selftest.h"
#include "platform/signals.h"
#include "platform/terminal.h"

namespace gdnctl::commands::linear_ce {

namespace {

namespace lce = oracle::linear_ce;

std::string selftest_text(const lce::SelftestReport& r) {
    std::string text;
    for (const lce::SelftestFinding& f : r.findings) {
        text += fmt::format("{}: {}\n    expected {}, got {}\n", f.kind, f.name, f.expected, f.got);
    }
    text += fmt::format("mutants caught  {:>4} of {:<4} target 100 %\n", r.caught, r.mutants);
    text += fmt::format("right stage     {:>4} of {:<4} target 90 %\n", r.right_stage, r.mutants);
    text += fmt::format("false alarms    {:>4} of {:<4} target 0\n", r.false_alarms, r.variants);
    return text + fmt::format("selftest: {}\n", r.passed() ? "passed" : "FAILED");
}

Json selftest_json(const lce::SelftestReport& r) {
    Json object = {{"schema", "gdnctl.oracle-selftest/1"},
                   {"op", harness::linear_ce::k_op},
                   {"passed", r.passed()},
                   {"mutants", {{"total", r.mutants}, {"caught", r.caught}, {"right_stage", r.right_stage}}},
                   {"honest_variants", {{"total", r.variants}, {"false_alarms", r.false_alarms}}},
                   {"targets", {{"caught_percent", 100}, {"right_stage_percent", 90}, {"false_alarms", 0}}},
                   {"findings", Json::array()}};
    for (const lce::SelftestFinding& f : r.findings) {
        object["findings"].push_back({{"kind", f.kind}, {"name", f.name}, {"expected", f.expected}, {"got", f.got}});
    }
    return object;
}

}  // namespace

Result<ExitCode> selftest(const Operator& /*op*/, const oracle_selftest::Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
    const auto report = lce::run_selftest({threads, [&] { return context.stop.stop_requested(); }});
    if (context.stop.stop_requested()) return tl::unexpected(stopped_error());
    if (context.global.json) {
        print_json(selftest_json(report), context);
    } else {
        context.terminal.out(selftest_text(report));
    }
    return report.passed() ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace gdnctl::commands::linear_ce
