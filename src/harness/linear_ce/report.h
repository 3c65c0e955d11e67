// How verdicts on linear-ce look: lines for people, objects for programs.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "oracle/linear_ce/judge/compare.h"

namespace gdnctl::harness::linear_ce {

// "contract: layout=hv (inputs metadata), ..."
std::string contract_text(const oracle::linear_ce::ResolvedContract& contract);
std::string tensors_text(const oracle::linear_ce::Report& report);
// Stage, hints and where; empty for a dump that is right.
std::string diagnosis_text(const oracle::linear_ce::Report& report);
std::string report_text(const oracle::linear_ce::Problem& problem, const oracle::linear_ce::CompareOptions& options,
                        const oracle::linear_ce::Report& report, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs);

// Everything of gdnctl.oracle-compare/1 but schema and op.
void add_report(Json& object, const oracle::linear_ce::Problem& problem,
                const oracle::linear_ce::CompareOptions& options, const oracle::linear_ce::Report& report);
Json contract_json(const oracle::linear_ce::ResolvedContract& contract);

}  // namespace gdnctl::harness::linear_ce
