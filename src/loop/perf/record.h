// The JSON form of a record of the performance state is declared in state.h; these are its parts.
#pragma once

#include <map>
#include <string>

#include "core/json.h"
#include "loop/perf/policy.h"

namespace gdnctl::loop {

Json gates_json(const std::vector<GateResult>& gates);  // [{"id", "result", "reason", "numbers"}]
Json pairs_json(const PairLook& look);                  // shares as per cent

// A Measurement as evidence of a stage: `gdnctl.measurement/1`.
Json measurement_json(const Measurement& measurement);
Measurement parse_measurement(const Json& value);

}  // namespace gdnctl::loop
