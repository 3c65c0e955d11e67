// What a run has to do next, from its records alone: the same function drives an undisturbed run and one that goes on
// after a kill. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "loop/engine/journal.h"

namespace gdnctl::loop {

enum class StepKind {
    start_run,        // no journal yet: append `run`
    begin_iteration,  // append `iteration`
    set_aside,        // in place with the stash policy: `stash_intent`, stash, `stashed`
    take_base,        // pin the base, make the tree ready: `base`
    put_away,         // `attempt` was interrupted, or is to be repeated: keep what it left, then run attempt + 1
    run_attempt,      // `attempt`, the agent, `attempt_end`
    collect,          // `candidate`
    judge,            // the stages that have no result yet, then `decision`
    settle,           // land or take back: `settle_intent`, `settled`
    write_log,        // `log_intent`, `logged`
    restore_stash,    // `restored`
    end_iteration,    // `iteration_end`
    finished,         // all iterations have ended
};
std::string_view to_text(StepKind kind);

struct Step {
    StepKind kind = StepKind::start_run;
    int iteration = 0;
    int attempt = 0;              // put_away, run_attempt
    bool again = false;           // it may have been done, wholly or in part: look before doing it
    std::string stash_message{};  // set_aside: of the stash that may have been made
    bool operator==(const Step&) const = default;
};

// `iterations`: the total of the run. `stashes`: iterations set the user's work aside (in place, --dirty-policy stash).
// `interrupted`: the last record was written by a process that is gone, so whatever it was in the middle of may be half
// done. An iteration without `iteration_end` is finished or repeated under its own number.
Step next_step(std::span<const Record> records, int iterations, bool stashes, bool interrupted);

// The open iteration's records, from its `iteration` on; empty: none is open.
std::span<const Record> open_iteration(std::span<const Record> records);
// The last and the first record of this type in `records`; nullptr: none.
const Record* last_of(std::span<const Record> records, RecordType type);
const Record* first_of(std::span<const Record> records, RecordType type);

// A run in numbers, as state.json has it. Derived from the journal, and only from it.
struct RunState {
    std::string run, isolation;
    int total = 0;
    int ended = 0;     // iterations
    int open = 0;      // number of the iteration that is under way; 0: none
    std::string next;  // the step that comes
    int failures = 0;  // counted ones
    int promotions = 0;
    int since_promotion = 0;  // ended iterations after the last one that was promoted
    std::map<std::string, int> outcomes;
    std::int64_t tokens = 0, agent_ms = 0, tpu_ms = 0;
    std::string stop_reason;  // empty: it goes on
    std::uint64_t records = 0;
    bool operator==(const RunState&) const = default;
};
RunState summarise(std::span<const Record> records, int iterations, bool stashes);

// <log-dir>/state.json: replaced as a whole, what was there before stays as state.json.bak.
Status write_state(const std::filesystem::path& path, const RunState& state);
// Error config (exit 2): it does not parse, or a newer gdnctl wrote it. Nothing is rewritten then, although the journal
// has it all. nullopt: no such file.
Result<std::optional<RunState>> read_state(const std::filesystem::path& path);

}  // namespace gdnctl::loop
