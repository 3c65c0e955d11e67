// An iteration's entry in the running log: composed from its record, added to the text of the log, and checked as a
// stage.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "core/time.h"
#include "loop/engine/engine.h"
#include "loop/engine/journal.h"
#include "loop/engine/options.h"
#include "loop/engine/outcome.h"
#include "loop/memory/ledger.h"
#include "services/git/checkout.h"

namespace gdnctl::loop {

// The log and its records (`<log>.records.jsonl`) in various commits; empty: missing.
struct LogSources {
    std::string name;                     // for messages
    std::string text, records;            // at the tip of the branch
    std::string base_text;                // at the candidate's base
    std::string head_text, head_records;  // in the candidate; empty: missing
};

struct ComposedLog {
    std::string text, records;
    std::string id;         // of the record; empty: the agent's entry has none
    std::string iteration;  // number in the log: "12"
    bool stamped = false;   // the agent's own entry got its commit
};

// Makes one entry for the iteration of `record`, however often it is called:
//  - If `landed` (the candidate's commits are on the branch) and the commits brought an entry, that one. An entry made
//    by `log append` gets a record that supersedes its own, with the measurements. In a hand-written one, the commit
//    replaces `this commit` or `(pending)`, and nothing else changes.
//  - Otherwise a new one at the end. It takes over what the agent wrote about its idea in an entry that did not land.
//    An older entry is never changed. nullopt: no change is needed. Errors: bad_input, usage (an unreadable log: over
//    its limits, an unclosed fence, invalid records).
Result<std::optional<ComposedLog>> compose_log(const LogSources& sources, Json record, bool landed, WallTime at);

// Whether entries can be added to a log with these records. Errors: as compose_log(), with the cause.
Status check_log(const std::string& name, const std::string& text, const std::string& records);

// The record from which an iteration's entry in the running log is rendered.

struct LogFacts {
    std::string evidence_folder;        // prefix for names of files in the log directory; "" or ending in a slash
    std::vector<std::string> messages;  // of the candidate's commits, oldest first
};

// iteration_record() adapted to the log: tests are separate from the profile; title, hypothesis and changes come from
// the commit messages if the agent did not report them. Pure.
Json log_record(std::span<const Record> own, const LedgerFacts& facts, const LogFacts& log);

// The running log of a loop, and the contents of its log commits.

class RunningLog {
public:
    // `path`: of the log in the repository; "" if the target has none. The repository must outlive it.
    RunningLog(const GitCheckout& repository, std::filesystem::path log_dir, std::string path, StampMode mode)
        : m_repository(repository), m_log_dir(std::move(log_dir)), m_path(std::move(path)), m_mode(mode) {}

    // The entry of a settled iteration and its record, on top of the branch's current state; a note in note mode.
    // `records`: of the run. nullopt: no entry is due (the iteration failed by itself; the branch has no log, reported
    // once; the log cannot be read; it was stamped in place, or will be with the next entry). Errors: those of git;
    // local_io, conflict (stamping in place).
    Result<std::optional<LogEntry>> entry(std::span<const Record> records, int iteration);

private:
    struct Read;
    struct Stamped;
    Result<std::optional<KnownIteration>> judged(std::span<const Record> records, int iteration) const;
    Result<Read> read(const KnownIteration& known, WallTime at) const;
    Json record(const KnownIteration& known, const Read& found) const;
    Result<std::optional<LogEntry>> note(const KnownIteration& known, const Read& found) const;
    Status stamp_in_place(const KnownIteration& known, Read& found) const;
    Result<std::vector<Stamped>> stamp_earlier(std::span<const Record> records, int iteration, Read& found) const;
    LogEntry log_commit(const KnownIteration& known, const Read& found, const std::optional<ComposedLog>& own,
                        const std::vector<Stamped>& earlier) const;
    void say_missing();
    const GitCheckout& m_repository;
    std::filesystem::path m_log_dir;
    std::string m_path;
    StampMode m_mode;
    bool m_missing_said = false;
};

// A stage of an iteration that checks the candidate's effect on the running log.

// Refuses a candidate, before any time is spent on it, if no entry could be added to the log afterwards, because the
// log or its records are missing or unreadable. `path`: of the log in the repository, which must outlive it.
std::unique_ptr<Stage> make_log_stage(std::string path, const GitCheckout& repository);

}  // namespace gdnctl::loop
