// How verdicts on gdn look: lines for people, objects for programs.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "oracle/gdn/compare/compare.h"
#include "oracle/judge/charts.h"
#include "oracle/judge/report.h"

namespace gdnctl::oracle_report {

// Place, stage and hints, one per line; empty for a correct dump.
std::string diagnosis_text(const oracle::GdnReference& reference, const oracle::GdnReport& report);
std::string contract_text(const oracle::ResolvedContract& contract);
// Error / budget by sequence and head (rows) and chunk; `state` is the column next to them.
oracle::ErrorMap head_error_map(const oracle::GdnReference& reference, const std::vector<oracle::HeadErrors>& errors,
                                std::string_view state);
// The map of out, and of the worst gradient if there are any, for terminals.
std::string heatmap_text(const oracle::GdnReference& reference, const oracle::GdnReport& report);
// Gradients that were not compared.
std::vector<std::string> missing_gradients(const oracle::GdnReport& report);
std::string report_text(const oracle::GdnReference& reference, const oracle::GdnReport& report);

Json contract_json(const oracle::ResolvedContract& contract);
// The verdict as a page; `verdict`: what add_report() says.
std::string page(const oracle::GdnReference& reference, const oracle::GdnReport& report, const Json& verdict);
// All fields of gdnctl.oracle-compare/1 except the schema.
void add_report(Json& object, const oracle::GdnReference& reference, const oracle::GdnReport& report,
                const oracle::Condition& condition);

}  // namespace gdnctl::oracle_report
