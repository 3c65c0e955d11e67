// The journal that both modes of codex-loop write: one JSON object per line, on disk before the next step starts, each
// with the hash of the previous line.
//
// Envelope: {"v":1,"seq":n,"ts":"2026-03-10T16:53:07Z","type":"...","prev":"<SHA-256 of the previous line, without its
// newline>"}; `prev` of the first line is 64 zeros. Each mode defines its own types and payload.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "core/time.h"
#include "platform/journal.h"

namespace gdnctl::loop {

// Errors about a journal, with the line number.
tl::unexpected<Error> unknown_record(std::string_view name, std::size_t line, std::string_view what);  // config
tl::unexpected<Error> damaged_journal(std::string_view name, std::size_t line, std::string_view why);  // conflict

// Passes each line of a journal to `use` after checking version, number and hash of the previous line. A torn last line
// is skipped. An error from `use` is returned only after the next lines have been checked, since only the following
// line shows whether a line was changed or written by a newer gdnctl. Returns the last line. Errors: config (an unknown
// version), conflict (exit 7: a line was changed or lost, with its number).
using UseRecord = std::function<Status(const Json& record, std::size_t line)>;
Result<std::string> read_chain(std::string_view text, std::string_view name, const UseRecord& use);
// The same for a file, line by line; a missing file counts as empty. Additional error: local_io.
Result<std::string> read_chain_file(const std::filesystem::path& path, const UseRecord& use);

// For a journal without records. Error conflict (exit 7): they were lost, because the file has NUL bytes in their
// place, or state.json beside it shows that there were some.
Status check_never_begun(const std::filesystem::path& path);

// The text of one line, without newline. `facts`: the payload that follows the envelope.
Result<std::string> chain_line(std::uint64_t seq, std::string_view time, std::string_view type, const Json& facts,
                               std::string_view previous_line);

// The only writer. Append-only: see Journal in platform.
class ChainJournal {
public:
    // Does not try to repair a journal that it cannot understand. Errors: those of read_chain() and Journal.
    static Result<ChainJournal> open(const std::filesystem::path& path, const UseRecord& use);
    std::uint64_t records() const { return m_records; }
    const std::string& last_line() const { return m_last; }
    // The incomplete line of a killed writer that open() cut off.
    const std::string& cut_off() const { return m_cut_off; }

    // Returns once the record is on disk. Errors: local_io, and none of the record is in the file; conflict: the file
    // was removed.
    Status append(std::string_view type, const Json& facts, std::string_view time);
    // Recreates a file that was removed; `text` has all its lines. Error conflict: another file exists there now.
    Status write_again(std::string_view text);

private:
    ChainJournal(std::filesystem::path path, Journal journal)
        : m_path(std::move(path)), m_journal(std::move(journal)), m_cut_off(m_journal->cut_off()) {}
    std::filesystem::path m_path;
    std::optional<Journal> m_journal;  // nullopt: it could not be recreated
    std::string m_cut_off, m_last;
    std::uint64_t m_records = 0;
};

// The events of a climb run, one record per line of the journal (ChainJournal). The payload consists of strings and
// integers. Order of durability: objects, then refs, then the record that names them.

enum class RecordType {
    run,            // run, loop_id, isolation, total, config, options, trusted (JSON texts), perf_state
    resume,         // loop_id, total, options, perf_state (file, relative to the log directory)
    iteration,      // an iteration begins
    stash_intent,   // message
    stashed,        // commit; empty: there was nothing
    merge_intent,   // sync-main is about to move the branch: branch, base, head
    base,           // sha, branch
    attempt,        // attempt: the agent is about to start
    attempt_end,    // attempt, class, rc, next (retry, collect), free (not against the retries), wall_ms, tokens, ...
    candidate,      // head, diff, leftovers, patch, protected, broken, base (if it followed the branch to a new one)
    job,            // kind, cluster, job: about to be submitted under this id
    stage,          // name, verdict, reason, outcome, sign, fact.*, exit_status, promoted, tpu_ms, wall_ms
    decision,       // outcome, verdict (keep, reject, park, none), reason, sign, code, counted, promoted, stops, rc
    settle_intent,  // the branch is about to move, forward or back
    settled,        // result (landed, already, blocked, rejected, parked, none), tip
    log_intent,     // the log is about to be written
    logged,         // commit; empty: no log commit
    restored,       // result: of restoring the stash; also written when an iteration stays open
    iteration_end,  // outcome, reason, sign, counted (0, 1), failures, promoted, stops (0, 1), stop_reason, rc, tpu_ms
    stop,           // reason, rc, last_iteration: as in the last line printed
};
std::string_view to_text(RecordType type);

struct Record {
    RecordType type = RecordType::run;
    int iteration = 0;  // 0: belongs to the run
    std::map<std::string, std::string> text = {};
    std::map<std::string, std::int64_t> number = {};
    // Set by the journal.
    std::uint64_t seq = 0;
    std::string time = {};

    const std::string& word(const std::string& key) const;  // "": missing
    std::int64_t count(const std::string& key) const;       // 0: missing
    bool operator==(const Record&) const = default;
};

// The records in a journal's text. A torn last line is skipped. Errors: config (exit 2): an unknown version; conflict
// (exit 7): a line in the middle was changed or lost (with its number).
Result<std::vector<Record>> parse_records(std::string_view text, std::string_view name);

// The text of one line, without newline.
Result<std::string> line_of(const Record& record, std::string_view previous_line);

// The only writer. Append-only: see Journal in platform.
class LoopJournal {
public:
    // Errors: those of Journal and parse_records().
    static Result<LoopJournal> open(const std::filesystem::path& path);
    const std::vector<Record>& records() const { return m_records; }
    // The incomplete line of a killed writer that open() cut off.
    const std::string& cut_off() const { return m_chain.cut_off(); }
    // Returns once the record is on disk. If the file was removed in the meantime (an agent's `git clean -x` does
    // that), it is written again with all its records. Errors: local_io, and none of the record is in the file;
    // conflict: another file exists there now.
    Status append(Record record, WallTime now);

private:
    LoopJournal(ChainJournal chain, std::vector<Record> records)
        : m_chain(std::move(chain)), m_records(std::move(records)) {}
    Status write_again();
    ChainJournal m_chain;
    std::vector<Record> m_records;
};

// Determines a run's next step from its records alone. The same function drives an undisturbed run and one that
// continues after a kill. Pure.

enum class StepKind {
    start_run,        // no journal yet: append `run`
    begin_iteration,  // append `iteration`
    stash_user_work,  // in place with the stash policy: `stash_intent`, stash, `stashed`
    pin_base,         // pin the base, prepare the tree: `base`
    archive_attempt,  // `attempt` was interrupted or must be repeated: keep what it left, then run attempt + 1
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
    int attempt = 0;              // archive_attempt, run_attempt
    bool again = false;           // it may already be done, fully or partly: check first
    std::string stash_message{};  // stash_user_work: of the stash that may exist already
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
