// Formats the oracle's verdicts: text for people, JSON for programs.
#pragma once

#include <string>
#include <vector>

#include "core/exit_code.h"
#include "core/json.h"
#include "oracle/gdn/compare/compare.h"

namespace gdnctl::oracle_report {

ExitCode exit_code_of(oracle::Verdict verdict, bool allow_suspect);

// Joins words by ", " and wraps before 100 columns; later lines are indented by two.
std::string wrapped(std::string_view first, const std::vector<std::string>& words);

// Place, stage and hints, one per line; empty for a correct dump.
std::string diagnosis_text(const oracle::GdnReference& reference, const oracle::GdnReport& report);
std::string hint_text(const oracle::GdnReport& report);  // all hints in one line, joined by "; or "
std::string place_text(const oracle::Worst& worst);      // "out[b=0,t=3,h=1,v=2] got 0.5, want 0.25"
std::string contract_text(const oracle::ResolvedContract& contract);
// Error / budget of out, and of the worst gradient if there are any, by value head and chunk, one character per cell:
// '.' up to 1, '-' up to the OK band, '+' up to the WRONG band, '#' above. Above 72 chunks, several share a cell.
std::string heatmap_text(const oracle::GdnReference& reference, const oracle::GdnReport& report);
// Metrics of one tensor, on one or two lines.
std::string tensor_text(const oracle::TensorReport& tensor);
// Grouped by reason, so that eight tensors with the same reason take one line.
std::string not_compared_text(const std::vector<oracle::NotCompared>& missing);
// The lines about unexpected tensors; empty if there are none.
std::string left_alone_text(const std::vector<std::string>& unknown, const std::vector<oracle::UnreadTensor>& unread);
std::vector<std::string> unread_names(const std::vector<oracle::UnreadTensor>& unread);  // "scales (F8_E8M0)"
// Gradients that were not compared.
std::vector<std::string> missing_gradients(const oracle::GdnReport& report);
// "FORWARD ONLY: ..." if there are no gradients at all, "GRADIENTS MISSING: ..." if some are missing; else empty.
std::string missing_gradients_text(bool some, const std::vector<std::string>& missing);
std::string report_text(const oracle::GdnReference& reference, const oracle::GdnReport& report);

// JSON has no NaN or infinity: they become the strings "NaN", "Infinity", "-Infinity".
Json number(double x);
Json contract_json(const oracle::ResolvedContract& contract);
// Sets `unknown_tensors` and `unread_tensors`.
void add_left_alone(Json& object, const std::vector<std::string>& unknown,
                    const std::vector<oracle::UnreadTensor>& unread);
Json tensor_json(const oracle::TensorReport& tensor);
Json worst_json(const std::optional<oracle::Worst>& worst);
// All fields of gdnctl.oracle-compare/1 except the schema.
void add_report(Json& object, const oracle::GdnReference& reference, const oracle::GdnReport& report,
                const oracle::Condition& condition);

}  // namespace gdnctl::oracle_report
