// How verdicts on linear-ce look: lines for people, objects for programs.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "oracle/linear_ce/judge/compare.h"

namespace gdnctl::oracle::linear_ce {

// "contract: layout=hv (inputs metadata), ..."
std::string contract_text(const ResolvedContract& contract);
std::string tensors_text(const Report& report);
// Stage, hints and where; empty for a dump that is right.
std::string diagnosis_text(const Report& report);
std::string report_text(const Problem& problem, const CompareOptions& options, const Report& report,
                        const std::vector<std::string>& inputs, const std::vector<std::string>& outputs);

// Everything of gdnctl.oracle-compare/1 but schema and op.
void add_report(Json& object, const Problem& problem, const CompareOptions& options, const Report& report);
Json contract_json(const ResolvedContract& contract);
// The verdict as a page; `verdict`: what add_report() says.
std::string page(const Problem& problem, const CompareOptions& options, const Report& report, const Json& verdict);

}  // namespace gdnctl::oracle::linear_ce
