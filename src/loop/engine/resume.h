// Determines a run's next step from its records alone. The same function drives an undisturbed run and one that
// continues after a kill. Pure.
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
    take_base,        // pin the base, prepare the tree: `base`
    put_away,         // `attempt` was interrupted or must be repeated: keep what it left, then run attempt + 1
    run_attempt,      // `attempt`, the agent, `attempt_end`
    collect,          // `candidate`
    judge,            // the stages without a result yet, then `decision`
    settle,           // land or undo: `settle_intent`, `settled`
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
    bool again = false;           // it may already be done, fully or partly: check first
    std::string stash_message{};  // set_aside: of the stash that may exist already
    bool operator==(const Step&) const = default;
};

// `iterations`: total of the run. `stashes`: iterations set the user's work aside (in place, --dirty-policy stash).
// `interrupted`: the process that wrote the last record is gone, so its last step may be half done. An iteration
// without `iteration_end` is finished or repeated under the same number.
Step next_step(std::span<const Record> records, int iterations, bool stashes, bool interrupted);

// Records of the open iteration, starting with `iteration`; empty: none is open.
std::span<const Record> open_iteration(std::span<const Record> records);
// The last and the first record of this type; nullptr: none.
const Record* last_of(std::span<const Record> records, RecordType type);
const Record* first_of(std::span<const Record> records, RecordType type);

// A run in numbers, as stored in state.json. Derived from the journal only.
struct RunState {
    std::string run, isolation;
    int total = 0;
    int ended = 0;     // iterations
    int open = 0;      // number of the current iteration; 0: none
    std::string next;  // the next step
    int failures = 0;  // counted failures
    int promotions = 0;
    int since_promotion = 0;  // finished iterations since the last promotion
    std::map<std::string, int> outcomes;
    std::int64_t tokens = 0, agent_ms = 0, tpu_ms = 0;
    std::string stop_reason;  // empty: the run continues
    std::uint64_t records = 0;
    bool operator==(const RunState&) const = default;
};
RunState summarise(std::span<const Record> records, int iterations, bool stashes);

// <log-dir>/state.json: replaced as a whole; the previous file is kept as state.json.bak.
Status write_state(const std::filesystem::path& path, const RunState& state);
// Error config (exit 2): it cannot be parsed, or a newer gdnctl wrote it. It is then not rewritten, although the
// journal could. nullopt: no such file.
Result<std::optional<RunState>> read_state(const std::filesystem::path& path);

}  // namespace gdnctl::loop
