// Recorded measurements through another policy: what would have been decided? Each record is judged against what it was
// compared with then, so one changed decision does not change those after it. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "loop/perf/policy.h"

namespace gdnctl::loop {

struct ReplayCase {
    std::string place;                   // "history[3]", "line 4"
    PerfRecord record;                   // with the decision that was made
    std::optional<PerfRecord> champion;  // that it was compared with
    std::string decided;                 // as it is written there; empty: nothing was
    std::string skipped;                 // why it cannot be judged; empty: it can
};

// A performance state, or lines of records: of that state, or of the running log (gdnctl.iteration/1; `metric` is
// looked for in their `metrics`). Records that are no judgement of a candidate (baselines, A/A) are left out. Errors:
// bad_input.
Result<std::vector<ReplayCase>> replay_cases(std::string_view text, std::string_view name, std::string_view metric);

struct Replayed {
    ReplayCase input;
    PerfDecision decision;
    bool differs = false;
};
Replayed replay(const ReplayCase& input, const PerfPolicy& policy, RegressionPolicy on_regression,
                bool higher_is_better);

}  // namespace gdnctl::loop
