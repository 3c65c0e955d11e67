// The ledger of a loop: one record (schema gdnctl.iteration/1) per iteration, with its cost, in <log-dir>/ledger.jsonl.
// It outlives runs and is the source of all knowledge about ideas.
//
// Called by:
//   iteration_record()  once the iteration is settled, before its log entry is written from the record;
//                       `runlog::append_entry` gives it its number in the running log
//   append_ledger()     right after that; repeating it after a kill is harmless
//   read_ledger()       before an iteration is judged (check_idea) and for its prompt (context_pack)
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "loop/engine/journal.h"
#include "loop/memory/run_view.h"
#include "services/git/checkout.h"

namespace gdnctl {
class GitCheckout;
}

namespace gdnctl::loop {

struct Record;

// What an agent may submit as <log-dir>/iteration-NNN-report.json: the name of its idea, and why. Free text decides
// nothing; the loop adds what it has observed itself.
struct AgentReport {
    std::string title, slot, move, hypothesis, change_class;
    std::string new_argument;  // for an idea that failed before: what is different now
    std::string next_hypothesis;
    std::vector<std::string> changes, reject_if;
};
// Fields that are missing or of another type stay empty. Error: bad_input, not a JSON object.
Result<AgentReport> parse_agent_report(std::string_view text, std::string_view name);
// The report of an iteration; empty if there is none. Errors: bad_input (also over 64 KiB), local_io.
Result<AgentReport> read_agent_report(const std::filesystem::path& log_dir, int iteration);

// Facts that the journal does not contain.
struct LedgerFacts {
    std::string run;
    int total = 0;                     // iterations of the run
    std::vector<std::string> commits;  // of the candidate, oldest first
    std::vector<std::string> files;    // files that the candidate changes
    std::string patch_id;              // see patch_id()
    AgentReport report;
    const MeasuredRun* measured = nullptr;  // perf_state.json; nullptr: nothing was measured
};
// `records`: of one iteration, starting with its `iteration` record. Masks secrets and home directories.
Json iteration_record(std::span<const Record> records, const LedgerFacts& facts);

// Appends the record, unless the ledger already has this iteration of this run. Errors: local_io, conflict (another
// writer), bad_input.
Status append_ledger(const std::filesystem::path& log_dir, const Json& record);
// In the order written; a missing ledger is empty. A torn last line is dropped. Errors: bad_input (a line that is not a
// record), local_io.
Result<std::vector<Json>> read_ledger(const std::filesystem::path& log_dir);

// Identifies what a patch does: hashes its added and removed lines and their files, without white space and line
// numbers. Sixteen hexadecimal digits; "" for an empty patch. `patch`: as printed by git.
Result<std::string> patch_id(std::string_view patch);
// Of the changes between two commits, whatever their size.
Result<std::string> patch_id(const GitCheckout& repository, std::string_view from, std::string_view to);

}  // namespace gdnctl::loop

namespace gdnctl::loop {

// Collects the facts of an iteration for its record, and adds a finished iteration to the ledger.

struct KnownIteration {
    std::span<const Record> own;  // the iteration's records among the run's
    IterationView view;           // its base is the candidate's, even if the loop followed a branch that had moved
    LedgerFacts facts;
    std::shared_ptr<const MeasuredRun> measured;  // `facts` points into it
};
// Takes commits, files and the patch from the range between base and head in `repository`, and the agent's report and
// the measurements from the log directory. `records`: of the run. nullopt: no such iteration. Errors: those of git; an
// unusable report is not an error.
Result<std::optional<KnownIteration>> known_iteration(const std::filesystem::path& log_dir,
                                                      const GitCheckout& repository, std::span<const Record> records,
                                                      int iteration);

// Call this once the iteration has its `iteration_end`; repeating it after a kill is harmless. Errors: those of
// append_ledger() and known_iteration().
Status keep_in_ledger(const std::filesystem::path& log_dir, const GitCheckout& repository,
                      std::span<const Record> records, int iteration);

}  // namespace gdnctl::loop
