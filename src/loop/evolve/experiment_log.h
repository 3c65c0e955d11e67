// experiment-log.md in the log directory: an entry a session, in the template of `gdnctl lint-log --template
// experiment`, every number with the evaluation that it is of; and the check of such a log against the journal. Pure.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/time.h"
#include "loop/evolve/state.h"

namespace gdnctl::loop::evolve {

inline constexpr std::string_view k_experiment_log = "experiment-log.md";

struct Session {
    int first = 1;       // attempt
    std::string reason;  // why it ended
    std::string goal;
    double min_gain_pct = .5;
};
std::string experiment_entry(const State& state, const Session& session, WallTime now);

// A measured number (with %, x or a unit of time) that no "(eval N)" follows on its line, or one that names an
// evaluation which is not on record. Fenced blocks are left out.
struct LogProblem {
    std::size_t line = 0;
    std::string number, problem;
};
struct LogCheck {
    std::size_t numbers = 0;
    std::vector<LogProblem> problems;
};
LogCheck check_log(std::string_view text, const std::set<int>& evals);

}  // namespace gdnctl::loop::evolve
