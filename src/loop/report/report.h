// What the views of a loop show: its journal, iteration by iteration, with every stage and each of its gates, and what
// was measured. Reads only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "runlog/records/gain.h"

namespace gdnctl::loop {

struct Record;

// Where a loop writes that was not told where, from the root of the repository.
inline constexpr std::string_view k_usual_log_dir = ".agents/logs/gdn_codex_loop";

// What a person is shown of a text that somebody else wrote: no secrets, one line, control characters and what turns
// the writing direction as escapes ("\n", "\x1b", "\u202e"), invalid UTF-8 as U+FFFD.
std::string shown(std::string_view text);
// The same, cut to `columns` code points at most, "…" for what is left out.
std::string shown(std::string_view text, std::size_t columns);

// 1234567 -> "1,234,567"
std::string grouped(std::int64_t number);
// The same; "unknown" where nobody counted.
std::string grouped(const std::optional<std::int64_t>& number);

// A fact of a stage that reads "<result> [<value> <relation> <limit>] [<words>]": "pass 4.1 <= 5.0", "skip no profile".
struct GateView {
    std::string id;
    std::string result;  // pass, fail, skip
    std::optional<double> value = std::nullopt, limit = std::nullopt;
    std::string relation{};  // "<=", ...; empty: there are no numbers
    std::string words{};
    bool operator==(const GateView&) const = default;
};
struct StageView {
    std::string name, verdict, reason, sign, outcome;
    std::int64_t tpu_ms = 0, wall_ms = 0;
    std::vector<GateView> gates;
    std::vector<std::pair<std::string, std::string>> facts;  // that are no gates
};

struct AttemptView {
    int number = 0;
    bool ended = false;
    std::string class_word, next, reason;  // of attempt_end
    std::int64_t rc = 0, wall_ms = 0;
    std::optional<std::int64_t> tokens = std::nullopt;  // nullopt: the agent did not say
};

struct IterationView {
    int number = 0;
    bool ended = false;
    std::string started, finished;  // as the journal has them; finished: empty while it is open
    std::int64_t wall_ms = 0;       // time that the loop spent on it, without pauses between processes
    std::string base, branch;
    std::string head, diff, leftovers, patch, protected_paths;  // of the candidate
    std::string gone;  // lines: other branches, tags and stashes that went meanwhile
    std::int64_t commits = 0, files = 0;
    std::vector<AttemptView> attempts;
    std::vector<StageView> stages;
    std::string outcome, verdict, reason, sign;  // of the decision; the outcome is the end's where there is one
    std::string settled, tip, log_commit;
    std::string log_number;  // of its entry in the running log; empty: not known
    bool decided = false, counted = false, promoted = false;
    std::int64_t agent_ms = 0, tpu_ms = 0;
    std::optional<std::int64_t> tokens = std::nullopt;  // of the attempts that said; nullopt: none did

    bool kept() const { return verdict == "keep"; }
    int retries() const { return attempts.empty() ? 0 : static_cast<int>(attempts.size()) - 1; }
};

struct RunView {
    std::string run, isolation, loop_id, config, started, last;  // config: JSON text; last: time of the last record
    int total = 0, ended = 0;                                    // iterations
    int open = 0;                                                // number of the one under way; 0: none
    std::string next;                                            // the step that comes
    int failures = 0, promotions = 0;                            // failures: counted ones
    int since_promotion = 0;
    std::map<std::string, int> outcomes;
    std::int64_t agent_ms = 0, tpu_ms = 0;
    std::optional<std::int64_t> tokens = std::nullopt;  // of the attempts that said; nullopt: none did
    std::string stop_reason;
    std::size_t records = 0;
    std::int64_t wall_ms = 0;
    std::optional<std::int64_t> stop_rc = std::nullopt;  // of the last `stop`; nullopt: it has not stopped by itself
    std::vector<IterationView> iterations;

    const IterationView* find(int number) const;  // nullptr: no such iteration
    // What it does now, or did when it ended: "attempt 2 of the agent", "stage perf has ended".
    std::string step_text() const;
};
// The process that has the log directory's lock. Nothing is written, and no starting loop is disturbed.
struct RunningLoop {
    std::int64_t pid = 0;
    std::string since;  // ISO 8601; empty: not known
};
std::optional<RunningLoop> running(const std::filesystem::path& log_dir);

// A run as its log directory has it.
struct LoadedRun {
    std::filesystem::path log_dir;
    RunView view;
    std::optional<RunningLoop> holder;
    bool stop_asked = false;  // there is a file STOP
    std::shared_ptr<const std::vector<Record>> records;
};
// Errors: remote_missing (exit 6: no journal, or an empty one), config (a version that is not known), conflict (a
// changed or lost line), local_io.
Result<LoadedRun> load_run(const std::filesystem::path& log_dir);

// What a record says to somebody who watches.
struct RunEvent {
    std::string time, text;
    int iteration = 0;  // 0: of the run
};
// Of the records from number `from` on, counted from 0; those that say nothing are left out.
std::vector<RunEvent> events(const LoadedRun& run, std::size_t from);

// Error config (exit 2): there is a state.json, and it does not parse.
Status check_state(const std::filesystem::path& log_dir);
// The state that the journal gives in place of state.json; what was there is state.json.bak. Errors: conflict, a loop
// is at work and writes it itself; local_io.
Status rebuild_state(const LoadedRun& run);

// Names of the files iteration-NNN-* in the log directory, sorted.
std::vector<std::string> evidence_of(const std::filesystem::path& log_dir, int iteration);
// Of all iterations, by number.
std::map<int, std::vector<std::string>> evidence(const std::filesystem::path& log_dir);

// Pairs of measurements of a candidate and the champion; gains are those of the candidate.
struct PairsView {
    std::int64_t n = 0;
    double gain_pct = 0, low_pct = 0, high_pct = 0, deviation_pct = 0;
    std::string verdict;
};

// One line of the history.
struct MeasuredView {
    int iteration = 0;
    std::string commit, metric, source, decision, run_url, key;  // key: of the fingerprint; empty: it had none
    std::string unit;                                            // of the metric; empty: none is known
    std::optional<double> value = std::nullopt, delta_pct = std::nullopt;
    std::vector<double> points;
    std::optional<PairsView> pairs = std::nullopt;
    std::optional<runlog::Gain> gain = std::nullopt;  // what was compared with what; nullopt: nothing was
    std::vector<GateView> gates;
    std::int64_t timestamp_unix = 0;
    bool suspect = false;
    std::optional<std::int64_t> window_points = std::nullopt;  // steps behind each of `points`, where it is of a window

    bool became_champion() const;
};

struct MeasuredRun {
    std::vector<MeasuredView> history;  // the last one last
    std::optional<MeasuredView> champion = std::nullopt;

    // The record that belongs to an iteration of a run: of its number and candidate, else of its number and time.
    // nullptr: it was not measured.
    const MeasuredView* of(const IterationView& iteration) const;
    // The spread by which equal code differs from one measurement to the next, in per cent of the value: the median of
    // the pairs' standard deviations, else that of the champion's own points. nullopt: nothing to tell it from.
    std::optional<double> noise_pct() const;
};

// The performance state in a log directory, unless --perf-state-file names another place.
inline constexpr std::string_view k_perf_state = "perf_state.json";

// What a run measured, read from where its `run` and `resume` records say (--perf-state-file), else from
// <log-dir>/k_perf_state. nullopt: there is none. Errors: config (no JSON object), local_io.
Result<std::optional<MeasuredRun>> read_measured(const std::filesystem::path& log_dir, std::span<const Record> records);
Result<std::optional<MeasuredRun>> read_measured(const LoadedRun& run);

}  // namespace gdnctl::loop
