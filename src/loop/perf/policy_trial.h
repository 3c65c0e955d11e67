// A performance policy tried out: on recorded measurements (what would it have decided?), and on invented pairs whose
// truth is known. Each record is judged against what it was compared with then, so that one changed decision does not
// change those after it. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "loop/measure/pairs.h"
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

// How often the keep rule is right when the truth is known: invented pairs through the real rule. Pure and repeatable.

enum class NoiseShape {
    normal,
    heavy,  // one pair in twenty is five times as noisy: a neighbour on the machine
    drift,  // the device slows down by one deviation from pair to pair; taking turns cancels most of it
};
std::string_view to_text(NoiseShape shape);

struct Simulated {
    double kept = 0.0, refused = 0.0, tied = 0.0;  // shares of the trials
    double pairs = 0.0;                            // on average
    double claimed_gain = 0.0;                     // what the kept ones seemed to gain on average; 0: none was kept
};

// `noise`: standard deviation of one pair's d; `gain`: the truth, of T (0.01: one per cent faster).
Simulated simulate_pairs(const PairRule& rule, NoiseShape shape, double noise, double gain, int trials,
                         std::uint64_t seed);

}  // namespace gdnctl::loop
