// Checks of a running log. Pure: bytes, facts and options in, findings out. Rules and formats:
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
std::optional<Severity> parse_severity(std::string_view name);

struct RuleInfo {
    std::string_view id;    // "L001"
    std::string_view name;  // "pending-commit"
    Severity severity;
    std::string_view summary;  // what is wrong, one sentence without period
    std::string_view help;     // what to do
};
std::span<const RuleInfo> lint_rules();
const RuleInfo* find_lint_rule(std::string_view id);  // nullptr: no such rule

// Replaces `length` bytes at `offset` of the file.
struct Edit {
    std::size_t offset = 0, length = 0;
    std::string text;
};
struct Fix {
    bool safe = false;  // unsafe ones change what the log says
    std::vector<Edit> edits;
};

// Lines and columns count from 1, columns in code points; the end is behind the last character.
struct Finding {
    const RuleInfo* rule = nullptr;
    Severity severity = Severity::note;
    std::uint32_t line = 1, column = 1, end_line = 1, end_column = 1;
    std::string iteration;  // "12a"; empty outside an entry
    std::string message;
    std::optional<Fix> fix;
    std::string_view source;  // the line, for fingerprints that survive moving
};

// What a log entry must show of a test run. Nothing given: a verdict line is enough.
struct EvidencePolicy {
    std::optional<std::int64_t> passed_min, skipped_max;
    bool counts() const { return passed_min || skipped_max; }
};

// The little that rules need of an iteration's record.
struct RecordFacts {
    struct Value {
        std::string key;
        std::optional<double> before, after;
    };
    std::string id;
    std::int64_t number = 0;
    std::string suffix;
    std::string outcome;  // "accepted", "rejected", ...
    std::string move;     // of the idea
    std::string fingerprint;
    bool champion = false;  // promoted, or a baseline
    std::vector<std::string> files;
    std::vector<Value> metrics;
    bool measured_anew =
        false;               // what it was compared with was measured beside it, not taken from the champion's record
    std::string gain_fault;  // of gain_fault(); empty: none
};

struct LintOptions {
    bool all_entries = false;  // else the last entry, and what concerns the whole file
    bool allow_pending = false;
    bool allow_this_commit = false;
    bool allow_non_monotonic = false;
    bool strict = false;                                       // warnings are errors
    std::vector<std::pair<std::string, Severity>> severities;  // by rule id; later ones win; strict leaves them alone
    std::vector<std::string> change_classes;                   // allowed besides the built-in ones
    EvidencePolicy evidence;
    std::int64_t window_points_min = 5;
    WallTime now{};
};

struct LintInput {
    const Document* document = nullptr;
    std::string repository_path;  // of the log, for questions to history
    // Called at most once, when a rule has a question that only history answers; may return nullptr.
    std::function<CommitFacts*()> open_facts;
    const std::vector<RecordFacts>* records = nullptr;  // nullptr: not known
    bool records_kept = true;                           // false: there is no records file; `records` is empty
    const Document* base = nullptr;                     // only entries that are new or different from these
};

struct LintReport {
    std::vector<Finding> findings;  // by line, then rule
    std::size_t entries = 0;
    std::size_t checked = 0;              // entries whose content is in scope
    std::array<std::size_t, 4> counts{};  // by severity, those included that `findings` leaves out
    std::size_t left_out = 0;             // findings over k_max_findings_per_rule
    std::size_t fixed = 0;

    std::size_t count(Severity severity) const { return counts[static_cast<std::size_t>(severity)]; }
    bool failed() const { return count(Severity::error) != 0; }
};
inline constexpr std::size_t k_max_findings_per_rule = 10'000;

LintReport lint(const LintInput& input, const LintOptions& options);

// "L502=off" or "L502 = off". Errors: usage (shape, unknown rule or severity, with a suggestion).
Status add_rule_option(LintOptions& options, std::string_view text);
// Lines of that shape, `change-class = NAME`, `window-points = N`, comments with '#'. `name` is for errors.
Status add_rules_file(LintOptions& options, std::string_view content, std::string_view name);

// Applies the fixes of `findings` (unsafe ones only when `unsafe`), leaving out those that overlap an earlier one.
struct FixResult {
    std::string bytes;
    std::size_t fixed = 0;
};
FixResult apply_fixes(std::string_view bytes, std::span<const Finding> findings, bool unsafe);

// Unified diff with three lines of context; empty when equal. Paths get the prefixes a/ and b/. Of a secret only the
// first characters are shown: a diff with one can be read, not applied.
std::string unified_diff(std::string_view before, std::string_view after, std::string_view path);

// ---- output

struct LintOutput {
    std::string_view path;  // relative to the repository, or as text output shows it
    std::string_view scope;
    std::string_view version;
    int exit_code = 0;
};
struct LintText {
    std::string blocks;    // texts that scripts match
    std::string findings;  // one a line, then how many there are; empty: none
    std::string verdict;   // passed, or nothing was checked; empty: neither
};
struct LintTextOptions {
    bool complete = true;    // everything that was asked for was checked, so that the log may be said to have passed
    std::string_view since;  // revision that the entries were compared with; empty: none
};
LintText lint_as_text(const LintReport& report, std::string_view path, const LintTextOptions& options = {});
std::string lint_as_json(const LintReport& report, const LintOutput& output);
std::string lint_as_sarif(const LintReport& report, const Document& document, const LintOutput& output);
std::string lint_as_github(const LintReport& report, std::string_view path);
std::string lint_as_step_summary(const LintReport& report, std::string_view path);

}  // namespace gdnctl::runlog
