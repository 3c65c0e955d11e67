// The contents of the views of a loop: its journal by iteration, with every stage and gate, and the measurements. Only
// reads.
#pragma once

#include <chrono>
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

#include "core/for_people.h"
#include "core/result.h"
#include "loop/engine/journal.h"
#include "runlog/records/gain.h"

namespace gdnctl::loop {

struct Record;

// Where a loop writes by default, relative to the root of the repository.
inline constexpr std::string_view k_usual_log_dir = ".agents/logs/gdn_codex_loop";

// Makes untrusted text safe to show to a person: no secrets, one line, control characters and bidirectional overrides
// escaped ("\n", "\x1b", "\u202e"), invalid UTF-8 as U+FFFD.
std::string shown(std::string_view text);
// The same, cut to `columns` code points; "…" marks the cut.
std::string shown(std::string_view text, std::size_t columns);

// "TITLE: WHY" in `columns` code points, both as shown() makes them. The title is cut first, and WHY only if there is
// no room for it beside a short title.
std::string title_and_why(std::string_view title, std::string_view why, std::size_t columns);

// The agent in the configuration of a run: "codex, gpt-5", "command ./agent.sh"; empty: unknown.
std::string agent_text(const Json& config);

// Two times of a journal, in local time: "2026-03-10 17:53 to 18:20"; empty: one of them is not a time.
std::string dates_text(std::string_view from, std::string_view to);

using gdnctl::grouped;
// "" if it was not counted.
std::string grouped(const std::optional<std::int64_t>& number);

// A fact of a stage of the form "<result> [<value> <relation> <limit>] [<words>]": "pass 4.1 <= 5.0", "skip no
// profile".
struct GateView {
    std::string id;
    std::string result;  // pass, fail, skip
    std::optional<double> value = std::nullopt, limit = std::nullopt;
    std::string relation{};  // "<=", ...; empty: no numbers
    std::string words{};
    bool operator==(const GateView&) const = default;
};
struct StageView {
    std::string name, verdict, reason, sign, outcome;
    std::int64_t tpu_ms = 0, wall_ms = 0;
    std::vector<GateView> gates;
    Json oracle = nullptr;                                   // see oracle_record()
    std::vector<std::string> trace_lines = {};               // of the running log, from a profile's trace
    std::vector<std::pair<std::string, std::string>> facts;  // the others
};

struct AttemptView {
    int number = 0;
    bool ended = false;
    std::string class_word, next, reason;  // of attempt_end
    std::int64_t rc = 0, wall_ms = 0;
    std::optional<std::int64_t> tokens = std::nullopt;  // nullopt: not reported by the agent
};

struct IterationView {
    int number = 0;
    bool ended = false;
    std::string started, finished;  // as in the journal; finished: empty while it is open
    std::int64_t wall_ms = 0;       // time that the loop spent on it, without the time between processes
    std::string base, branch;
    std::string head, diff, leftovers, patch, protected_paths;  // of the candidate
    std::string title;  // from the agent's report, else the subject of its last commit; empty: neither
    std::string gone;   // one per line: other branches, tags and stashes that disappeared meanwhile
    std::int64_t commits = 0, files = 0;
    std::vector<AttemptView> attempts;
    std::vector<StageView> stages;
    std::string outcome, verdict, reason, sign;  // of the decision; the outcome is the end's if there is one
    std::string settled, tip, log_commit;
    std::string log_number;  // of its entry in the running log; empty: unknown
    bool decided = false, counted = false, promoted = false;
    std::int64_t agent_ms = 0, tpu_ms = 0;
    std::optional<std::int64_t> tokens = std::nullopt;  // sum over the attempts that reported them; nullopt: none did

    bool kept() const { return verdict == "keep"; }
    int retries() const { return attempts.empty() ? 0 : static_cast<int>(attempts.size()) - 1; }
};

struct RunView {
    std::string run, isolation, loop_id, config, started, last;  // config: JSON text; last: time of the last record
    int total = 0, ended = 0;                                    // iterations
    int open = 0;                                                // number of the open iteration; 0: none
    std::string next;                                            // the next step
    int failures = 0, promotions = 0;                            // failures: only those that count
    int since_promotion = 0;
    std::map<std::string, int> outcomes;
    std::int64_t agent_ms = 0, tpu_ms = 0;
    std::optional<std::int64_t> tokens = std::nullopt;  // sum over the attempts that reported them; nullopt: none did
    std::string stop_reason;
    std::size_t records = 0;
    std::int64_t wall_ms = 0;
    std::optional<std::int64_t> stop_rc = std::nullopt;  // of the last `stop`; nullopt: the loop has not stopped by
                                                         // itself
    std::vector<IterationView> iterations;

    const IterationView* find(int number) const;  // nullptr: no such iteration
    // The current step, or the last one if the run has ended: "attempt 2 of the agent", "stage perf has ended".
    std::string step_text() const;
};
// The process that holds the lock of the log directory. Writes nothing and does not disturb a starting loop.
struct RunningLoop {
    std::int64_t pid = 0;
    std::string since;  // ISO 8601; empty: unknown
};
std::optional<RunningLoop> running(const std::filesystem::path& log_dir);

// A run as stored in its log directory.
struct LoadedRun {
    std::filesystem::path log_dir;
    RunView view;
    std::optional<RunningLoop> holder;
    bool stop_asked = false;  // there is a file STOP
    std::shared_ptr<const std::vector<Record>> records;
};
// Errors: remote_missing (exit 6: no journal, or an empty one), config (unknown version), conflict (a changed or lost
// line), local_io.
Result<LoadedRun> load_run(const std::filesystem::path& log_dir);

// A record described for someone who watches.
struct RunEvent {
    std::string time, text;
    int iteration = 0;  // 0: of the whole run
};
// The events of the records from number `from` (0-based) on; records with nothing to say are skipped.
std::vector<RunEvent> events(const LoadedRun& run, std::size_t from);

// Error: config (exit 2), a state.json exists but does not parse.
Status check_state(const std::filesystem::path& log_dir);
// Rewrites state.json from the journal; the old file becomes state.json.bak. Errors: conflict (a loop is running and
// writes it itself); local_io.
Status rebuild_state(const LoadedRun& run);

// Names of the files iteration-NNN-* in the log directory, sorted.
std::vector<std::string> evidence_of(const std::filesystem::path& log_dir, int iteration);
// For all iterations, by number.
std::map<int, std::vector<std::string>> evidence(const std::filesystem::path& log_dir);

// Pairs of measurements of a candidate and the champion; gains are the candidate's.
struct PairsView {
    std::int64_t n = 0;
    double gain_pct = 0, low_pct = 0, high_pct = 0, deviation_pct = 0;
    std::string verdict;
};

// One line of the history.
struct MeasuredView {
    int iteration = 0;
    std::string commit, metric, source, decision, run_url, key;  // key: of the fingerprint; empty: none
    std::string unit;                                            // of the metric; empty: unknown
    std::optional<double> value = std::nullopt, delta_pct = std::nullopt;
    std::vector<double> points;
    std::optional<PairsView> pairs = std::nullopt;
    std::optional<runlog::Gain> gain = std::nullopt;  // the comparison; nullopt: nothing was compared
    std::vector<GateView> gates;
    std::int64_t timestamp_unix = 0;
    bool suspect = false;
    std::optional<std::int64_t> window_points = std::nullopt;  // steps per value in `points`, if each is from a window

    bool became_champion() const;
};

struct MeasuredRun {
    std::vector<MeasuredView> history;  // oldest first
    std::optional<MeasuredView> champion = std::nullopt;

    // The record of an iteration of a run, found by number and candidate, else by number and time. nullptr: not
    // measured.
    const MeasuredView* of(const IterationView& iteration) const;
    // The spread between measurements of equal code, in per cent of the value: the median of the pairs' standard
    // deviations, else that of the champion's own points. nullopt: unknown.
    std::optional<double> noise_pct() const;
};

// The performance state in a log directory, unless --perf-state-file names another file.
inline constexpr std::string_view k_perf_state = "perf_state.json";

// Reads what a run measured, from the place in its `run` and `resume` records (--perf-state-file), else from
// <log-dir>/k_perf_state. nullopt: no such file. Errors: config (not a JSON object), local_io.
Result<std::optional<MeasuredRun>> read_measured(const std::filesystem::path& log_dir, std::span<const Record> records);
Result<std::optional<MeasuredRun>> read_measured(const LoadedRun& run);

// Derives the contents of the views from records. Pure.

// nullopt: the fact is not a gate.
std::optional<GateView> parse_gate(std::string_view id, std::string_view fact);

RunView view_of(std::span<const Record> records);

// The arguments of summarise() that follow from a journal.
RunState state_of(std::span<const Record> records);

// The time between two timestamps of the journal, never below 0; nullopt: one of them is not a time.
std::optional<std::chrono::milliseconds> between(std::string_view earlier, std::string_view later);

// Parses a perf_state.json, version 1 or 2. Fields of the wrong type count as missing. Error: config, not a JSON
// object.
Result<MeasuredRun> parse_measured(std::string_view text, std::string_view name);

}  // namespace gdnctl::loop
