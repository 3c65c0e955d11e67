// Checks of a running log. Pure: takes bytes, facts and options, and returns findings. Rules and formats:
// docs/reference/lint-rules.md.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/time.h"
#include "runlog/parse/log.h"

namespace gdnctl {
class CommitFacts;
}

namespace gdnctl::runlog {

enum class Severity { off, note, warning, error };
const char* name_of(Severity severity);

struct RuleInfo {
    std::string_view id;    // "L001"
    std::string_view name;  // "pending-commit"
    Severity severity;
    std::string_view summary;  // what is wrong, one sentence without a period
    std::string_view help;     // how to fix it
};
std::span<const RuleInfo> lint_rules();
const RuleInfo* find_lint_rule(std::string_view id);  // nullptr: no such rule

// Replaces `length` bytes at `offset` of the file.
struct Edit {
    std::size_t offset = 0, length = 0;
    std::string text;
};
struct Fix {
    bool safe = false;  // unsafe edits change what the log says
    std::vector<Edit> edits;
};

// Lines and columns are 1-based; columns count code points; the end is one past the last character.
struct Finding {
    const RuleInfo* rule = nullptr;
    Severity severity = Severity::note;
    std::uint32_t line = 1, column = 1, end_line = 1, end_column = 1;
    std::string iteration;  // "12a"; empty outside an entry
    std::string message;
    std::optional<Fix> fix;
    std::string_view source;  // the line, for fingerprints that do not change when it moves
};

// What a log entry must show of a test run. If nothing is set, a verdict line is enough.
struct EvidencePolicy {
    std::optional<std::int64_t> passed_min, skipped_max;
    bool counts() const { return passed_min || skipped_max; }
};

// The part of an iteration's record that rules need.
struct RecordFacts {
    struct Value {
        std::string key;
        std::optional<double> before, after;
    };
    std::string id;
    std::int64_t number = 0;
    std::string suffix;
    std::string outcome;  // "accepted", "rejected", ...
    std::string move;     // the idea's move
    std::string fingerprint;
    bool champion = false;  // promoted, or a baseline
    std::vector<std::string> files;
    std::vector<Value> metrics;
    bool measured_anew = false;  // the baseline was measured together with the candidate, not taken from the champion's
                                 // record
    std::string gain_fault;      // result of gain_fault(); empty: no fault
};

struct LintOptions {
    bool all_entries = false;  // false: only the last entry, and what concerns the whole file
    bool allow_pending = false;
    bool allow_this_commit = false;
    bool allow_non_monotonic = false;
    bool strict = false;                                       // treat warnings as errors
    std::vector<std::pair<std::string, Severity>> severities;  // by rule id; later ones override earlier ones; strict
                                                               // does not change them
    std::vector<std::string> change_classes;                   // allowed in addition to the built-in ones
    EvidencePolicy evidence;
    std::int64_t window_points_min = 5;
    WallTime now{};
};

struct LintInput {
    const Document* document = nullptr;
    std::string repository_path;  // of the log, for history queries
    // Called at most once, when a rule first needs the git history; may return nullptr.
    std::function<CommitFacts*()> open_facts;
    const std::vector<RecordFacts>* records = nullptr;  // nullptr: unknown
    bool records_kept = true;                           // false: there is no records file, and `records` is empty
    const Document* base = nullptr;                     // check only entries that are new or different from these
};

struct LintReport {
    std::vector<Finding> findings;  // by line, then rule
    std::size_t entries = 0;
    std::size_t checked = 0;              // entries whose content was checked
    std::array<std::size_t, 4> counts{};  // by severity, including those that `findings` omits
    std::size_t left_out = 0;             // findings beyond k_max_findings_per_rule
    std::size_t fixed = 0;

    std::size_t count(Severity severity) const { return counts[static_cast<std::size_t>(severity)]; }
    bool failed() const { return count(Severity::error) != 0; }
};
inline constexpr std::size_t k_max_findings_per_rule = 10'000;

LintReport lint(const LintInput& input, const LintOptions& options);

// "L502=off" or "L502 = off". Errors: usage (syntax, unknown rule or severity, with a suggestion).
Status add_rule_option(LintOptions& options, std::string_view text);
// Lines such as "L502 = off", `change-class = NAME`, `window-points = N`; '#' starts a comment. `name` is for errors.
Status add_rules_file(LintOptions& options, std::string_view content, std::string_view name);

// Applies the fixes of `findings` (unsafe ones only if `unsafe`), except those that overlap an earlier one.
struct FixResult {
    std::string bytes;
    std::size_t fixed = 0;
};
FixResult apply_fixes(std::string_view bytes, std::span<const Finding> findings, bool unsafe);

// Unified diff with three lines of context; empty when equal. Paths get the prefixes a/ and b/. Secrets are cut to
// their first characters, so a diff that contains one cannot be applied.
std::string unified_diff(std::string_view before, std::string_view after, std::string_view path);

// ---- output

struct LintOutput {
    std::string_view path;  // relative to the repository, or as the text output shows it
    std::string_view scope;
    std::string_view version;
    int exit_code = 0;
};
struct LintText {
    std::string blocks;    // texts that scripts match
    std::string findings;  // one per line; empty: none
    std::string counts;    // of all findings, if there is a line in `findings`; empty: there is none
    std::string verdict;   // "passed" or "nothing was checked"; empty: neither
};
struct LintTextOptions {
    bool complete = true;    // everything requested was checked, so the log may be reported as passed
    std::string_view since;  // revision that the entries were compared with; empty: none
    bool color = false;      // errors among the findings are red
};
LintText lint_as_text(const LintReport& report, std::string_view path, const LintTextOptions& options = {});
std::string lint_as_json(const LintReport& report, const LintOutput& output, int indent = -1);
std::string lint_as_sarif(const LintReport& report, const Document& document, const LintOutput& output);
std::string lint_as_github(const LintReport& report, std::string_view path);
std::string lint_as_step_summary(const LintReport& report, std::string_view path);

}  // namespace gdnctl::runlog

namespace gdnctl::runlog {

// What the linter needs from a log's records.

struct RecordFactsFile {
    std::vector<RecordFacts> records;   // current records (superseded ones omitted), in file order
    std::vector<std::string> warnings;  // a torn last line was dropped
};

// Pure. Errors: bad_input for a line that is not a record; `name` is for errors.
Result<RecordFactsFile> read_record_facts(std::string_view jsonl, std::string_view name);

}  // namespace gdnctl::runlog
