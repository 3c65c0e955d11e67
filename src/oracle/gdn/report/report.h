// How verdicts on gdn look: lines for people, objects for programs.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "oracle/gdn/compare/compare.h"
#include "oracle/judge/report.h"

namespace gdnctl::oracle_report {

// Place, stage and hints, one per line; empty for a correct dump.
std::string diagnosis_text(const oracle::GdnReference& reference, const oracle::GdnReport& report);
std::string hint_text(const oracle::GdnReport& report);  // all hints in one line, joined by "; or "
std::string contract_text(const oracle::ResolvedContract& contract);
// Error / budget of out, and of the worst gradient if there are any, by value head and chunk, one character per cell:
// '.' up to 1, '-' up to the OK band, '+' up to the WRONG band, '#' above. Above 72 chunks, several share a cell.
std::string heatmap_text(const oracle::GdnReference& reference, const oracle::GdnReport& report);
// Metrics of one tensor, on one or two lines.
std::string tensor_text(const oracle::TensorReport& tensor);
// Gradients that were not compared.
std::vector<std::string> missing_gradients(const oracle::GdnReport& report);
std::string report_text(const oracle::GdnReference& reference, const oracle::GdnReport& report);

Json contract_json(const oracle::ResolvedContract& contract);
Json tensor_json(const oracle::TensorReport& tensor);
// All fields of gdnctl.oracle-compare/1 except the schema.
void add_report(Json& object, const oracle::GdnReference& reference, const oracle::GdnReport& report,
                const oracle::Condition& condition);

}  // namespace gdnctl::oracle_report
