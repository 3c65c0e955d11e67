#include "oracle/gdn/selftest/tally.h"

#include <algorithm>

#include <fmt/format.h>

namespace gdnctl::oracle {

void count_mutant(const JudgedMutant& m, SelftestTotals& totals, SelftestReport& report) {
    ++totals.mutants;
    if (m.report.verdict != Verdict::wrong && m.report.verdict != Verdict::suspect) {
        report.findings.push_back({"missed", m.name, "WRONG", std::string(name_of(m.report.verdict))});
        return;
    }
    ++totals.caught;
    if (std::find(m.stages.begin(), m.stages.end(), m.report.stage) != m.stages.end()) {
        ++totals.right_stage;
    } else {
        const std::string hint = m.report.hints.empty() ? "" : m.report.hints.front().text;
        report.findings.push_back({"stage", m.name, m.stages.front(), fmt::format("{} ({})", m.report.stage, hint)});
    }
    if (m.right_place) {
        ++totals.right_place;
    } else {
        report.findings.push_back({"place", m.name, m.changed, m.report.place ? m.found : "nowhere"});
    }
}

void count_variant(std::string_view what, std::string_view case_name, const GdnReport& verdict, SelftestTotals& totals,
                   SelftestReport& report) {
    ++totals.variants;
    if (verdict.verdict == Verdict::ok) return;
    ++totals.false_alarms;
    report.findings.push_back({"false alarm", fmt::format("{} ({})", what, case_name), "OK",
                               fmt::format("{}: {}", name_of(verdict.verdict), verdict.reason)});
}

}  // namespace gdnctl::oracle
