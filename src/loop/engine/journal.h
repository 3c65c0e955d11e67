// The events of a climb run, one record per line of the journal (chain.h). The payload consists of strings and
// integers. Order of durability: objects, then refs, then the record that names them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/time.h"
#include "loop/engine/chain.h"

namespace gdnctl::loop {

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

}  // namespace gdnctl::loop
