#include "oracle/judge/selftest.h"

#include <utility>

#include <fmt/format.h>

namespace gdnctl::oracle {

bool SelftestTotals::reached() const {
    return mistakes > 0 && caught == mistakes && right_stage * 10 >= mistakes * 9 &&
           right_place * 20 >= mistakes * 19 && variants > 0 && false_alarms == 0;
}

void count_mistake(const JudgedMistake& m, SelftestTotals& totals, SelftestReport& report) {
    ++totals.mistakes;
    if (m.verdict != Verdict::wrong && m.verdict != Verdict::suspect) {
        report.findings.push_back({"missed", m.name, "WRONG", std::string(name_of(m.verdict))});
        return;
    }
    ++totals.caught;
    totals.right_stage += m.right_stage ? 1 : 0;
    totals.right_place += m.right_place ? 1 : 0;
    if (!m.right_stage) report.findings.push_back({"stage", m.name, m.stage, m.found_stage});
    if (!m.right_place) report.findings.push_back({"place", m.name, m.place, m.found_place});
}

void count_variant(std::string name, Verdict verdict, const std::string& reason, SelftestTotals& totals,
                   SelftestReport& report) {
    ++totals.variants;
    if (verdict == Verdict::ok) return;
    ++totals.false_alarms;
    report.findings.push_back({"false alarm", std::move(name), "OK", fmt::format("{}: {}", name_of(verdict), reason)});
}

}  // namespace gdnctl::oracle
