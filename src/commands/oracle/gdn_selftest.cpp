#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/oracle/gdn.h"
#include "commands/oracle/selftest.h"
#include "commands/print.h"
#include "core/json.h"
#include "harness/files.h"
#include "oracle/gdn/selftest/selftest.h"
#include "platform/signals.h"
#include "platform/terminal.h"

namespace gdnctl::commands::oracle_gdn {

namespace {

double percent(std::size_t part, std::size_t whole) {
    return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string line(std::string_view what, std::size_t part, std::size_t whole, std::string_view target) {
    return fmt::format("{:<22} {:>4} of {:<4} {:>6.1f} %   target {}\n", what, part, whole, percent(part, whole),
                       target);
}

std::string report_text(const oracle::SelftestReport& report) {
    std::string text;
    for (const oracle::SelftestFinding& f : report.findings) {
        text += fmt::format("{}: {}\n    expected {}, got {}\n", f.kind, f.name, f.expected, f.got);
    }
    for (const auto& [what, t] : {std::pair{"forward, faults that no hint knows", &report.unexpected},
                                  {"backward, faults that no hint knows", &report.backward_unexpected},
                                  {"forward", &report.totals},
                                  {"backward", &report.backward}}) {
        text += fmt::format("{}\n", what);
        text += line("  mutants caught", t->caught, t->mutants, "100 %");
        text += line("  right stage", t->right_stage, t->mutants, "90 %");
        text += line("  right head and chunk", t->right_place, t->mutants, "95 %");
        if (t->variants > 0) text += line("  false alarms", t->false_alarms, t->variants, "0");
    }
    return text + fmt::format("selftest: {}\n", report.passed() ? "passed" : "FAILED");
}

Json mutants_json(const oracle::SelftestTotals& t) {
    return {{"total", t.mutants}, {"caught", t.caught}, {"right_stage", t.right_stage}, {"right_place", t.right_place}};
}

Json variants_json(const oracle::SelftestTotals& t) {
    return {{"total", t.variants}, {"false_alarms", t.false_alarms}};
}

Json report_json(std::string_view op, const oracle::SelftestReport& report) {
    Json object = {
        {"schema", "gdnctl.oracle-selftest/1"},
        {"op", op},
        {"passed", report.passed()},
        {"mutants", mutants_json(report.totals)},
        {"honest_variants", variants_json(report.totals)},
        {"unexpected_mutants", mutants_json(report.unexpected)},
        {"backward",
         {{"mutants", mutants_json(report.backward)},
          {"honest_variants", variants_json(report.backward)},
          {"unexpected_mutants", mutants_json(report.backward_unexpected)}}},
        {"targets",
         {{"caught_percent", 100}, {"right_stage_percent", 90}, {"right_place_percent", 95}, {"false_alarms", 0}}},
        {"findings", Json::array()}};
    for (const oracle::SelftestFinding& f : report.findings) {
        object["findings"].push_back({{"kind", f.kind}, {"name", f.name}, {"expected", f.expected}, {"got", f.got}});
    }
    return object;
}

}  // namespace

Result<ExitCode> selftest(const Operator& op, const oracle_selftest::Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
    const auto report = oracle::run_selftest({threads, 1, [&] { return context.stop.stop_requested(); }});
    if (context.stop.stop_requested()) return tl::unexpected(stopped_error());
    if (context.global.json) {
        print_json(report_json(op.name, report), context);
    } else {
        context.terminal.out(report_text(report));
    }
    return report.passed() ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace gdnctl::commands::oracle_gdn
