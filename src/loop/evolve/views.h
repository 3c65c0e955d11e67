// An evolve run for people and for scripts: its status and the index of it, its report, and its experiment log. Pure
// except for load_evolve() and the index.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "core/time.h"
#include "loop/evolve/state.h"

namespace gdnctl::loop::evolve {

// Whether the journal of this directory is that of an evolve run.
bool is_evolve_run(const std::filesystem::path& log_dir);

struct RunView {
    std::filesystem::path log_dir;
    State state;
    bool running = false;  // a process holds its lock
};
// Errors: remote_missing (exit 6), conflict (a damaged journal).
Result<RunView> load_evolve(const std::filesystem::path& log_dir);

// `id`: a number, "best", "base", or seven and more digits of a commit. Error: remote_missing (exit 6).
Result<int> attempt_of(const State& state, std::string_view id);

// Members of gdnctl.loop-status/1: mode, run, state, attempts, best, running, noise, spent, lineages.
Json status_json(const RunView& view);
std::string status_text(const RunView& view);

// Members of gdnctl.evolve-show/1.
Result<Json> attempt_json(const RunView& view, int attempt);
Result<std::string> attempt_text(const RunView& view, int attempt);

// One object, and one line, for each attempt.
Json log_json(const State& state);
// Lines no wider than `columns`.
std::string log_text(const State& state, std::size_t columns = 100);
// From an attempt back to the base, by first parents.
std::vector<int> ancestry(const State& state, int attempt);
std::string lineage_text(const State& state, const std::vector<int>& numbers, std::size_t columns = 100);
Json lineage_json(const State& state, const std::vector<int>& numbers);

// state.json in the log directory: the state of a run, so that a long journal need not be read. Derived: it is valid
// only while it names the journal's size and the hash of its last line.

inline constexpr std::string_view k_index = "state.json";

// A failed write is ignored, because the index can be rebuilt.
void write_index(const std::filesystem::path& log_dir, const State& state, std::string_view last_line);

struct StatusIndex {
    std::string status;  // of status_json(), as text
    std::string text;    // of status_text()
};
// nullopt: there is none, or the journal has grown since.
std::optional<StatusIndex> read_index(const std::filesystem::path& log_dir, bool running);

// A run of evolve as a document: its tree, its gains with intervals, what it spent. Pure.

std::string report_markdown(const RunView& view);
// One page that loads nothing, light or dark like the system.
std::string report_html(const RunView& view);
Json report_json(const RunView& view);

// experiment-log.md in the log directory: an entry a session, in the template of `gdnctl lint-log --template
// experiment`, every number with the evaluation that it is of; and the check of such a log against the journal. Pure.

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
