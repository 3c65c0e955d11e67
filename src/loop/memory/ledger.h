// The ledger of a loop: one record of the schema gdnctl.iteration/1 for each iteration, with what it cost, in
// <log-dir>/ledger.jsonl. It outlives runs, and from it comes what is known of ideas.
//
// Who calls what, and when:
//   iteration_record()  when the iteration is settled and its log entry is to be written: the record is the entry's;
//                       `runlog::append_entry` gives it its number in the running log
//   append_ledger()     right after; again after a kill, at no harm
//   read_ledger()       before an iteration is judged (check_idea) and for its prompt (context_pack)
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "loop/report/report.h"

namespace gdnctl {
class GitCheckout;
}

namespace gdnctl::loop {

struct Record;

// What an agent may hand in as <log-dir>/iteration-NNN-report.json: what it calls its idea, and why. Nothing is decided
// by free text; the loop fills in what it has seen itself.
struct AgentReport {
    std::string title, slot, move, hypothesis, change_class;
    std::string new_argument;  // what is different now, of an idea that failed before
    std::string next_hypothesis;
    std::vector<std::string> changes, reject_if;
};
// Fields that are missing or of another type stay empty. Error bad_input: no JSON object.
Result<AgentReport> parse_agent_report(std::string_view text, std::string_view name);
// Of an iteration; an empty one where there is none. Errors: bad_input (also: more than 64 KiB), local_io.
Result<AgentReport> read_agent_report(const std::filesystem::path& log_dir, int iteration);

// What the journal does not say.
struct LedgerFacts {
    std::string run;
    int total = 0;                     // iterations of the run
    std::vector<std::string> commits;  // of the candidate, oldest first
    std::vector<std::string> files;    // that it changes
    std::string patch_id;              // see patch_id()
    AgentReport report;
    const MeasuredRun* measured = nullptr;  // perf_state.json; nullptr: nothing was measured
};
// `records`: of one iteration, from its `iteration` record on. Secrets and home directories are masked.
Json iteration_record(std::span<const Record> records, const LedgerFacts& facts);

// Appends the record, unless the ledger has this iteration of this run already. Errors: local_io, conflict (another
// writer), bad_input.
Status append_ledger(const std::filesystem::path& log_dir, const Json& record);
// In the order in which they were written; no ledger: none. A torn last line is left out. Errors: bad_input (a line
// that is no record), local_io.
Result<std::vector<Json>> read_ledger(const std::filesystem::path& log_dir);

// A name for what a patch does: its added and removed lines with the files that they are in, without white space and
// line numbers. Sixteen hexadecimal digits; "" for an empty patch. `patch`: as git prints it.
Result<std::string> patch_id(std::string_view patch);
// Of the changes between two commits, however large they are.
Result<std::string> patch_id(const GitCheckout& repository, std::string_view from, std::string_view to);

}  // namespace gdnctl::loop
