// What a rule can read, how it reports, and the families of rules.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/commit_facts.h"
#include "runlog/lint/lint.h"
#include "runlog/parse/log.h"

namespace gdnctl::runlog {

// One run of the linter: the whole file and the facts from elsewhere.
struct LintRun {
    LintRun(const LintInput& lint_input, const LintOptions& lint_options)
        : input(lint_input), options(lint_options), document(*lint_input.document) {}

    const LintInput& input;
    const LintOptions& options;
    const Document& document;
    std::vector<bool> selected;                // by entry: whether to check its content
    std::vector<ExperimentEntry> experiments;  // of an experiment log; `selected` is then by experiment

    // History, opened on the first query; nullptr: none.
    CommitFacts* facts() const {
        if (!m_asked) {
            m_asked = true;
            m_facts = input.open_facts ? input.open_facts() : nullptr;
        }
        return m_facts;
    }
    // Whether a commit that was not found may be one that a shallow clone lacks. True also if it is not known.
    bool may_be_cut_off() const;
    // True once: the history that a shallow clone lacks is one finding, not one for each commit.
    bool first_cut_off() const { return !std::exchange(m_told_shallow, true); }
    const RecordFacts* record_of(const EntryHead& head) const;
    bool whole_file() const { return options.all_entries && input.base == nullptr; }

private:
    mutable bool m_asked = false;
    mutable std::optional<bool> m_shallow;
    mutable bool m_told_shallow = false;
    mutable CommitFacts* m_facts = nullptr;
    mutable std::unordered_map<std::string, const RecordFacts*> m_records;  // by iteration
};

// What an entry says happened to its change, judging by its decision words.
struct Verdict {
    bool promoted = false, rejected = false, reverted = false, blocked = false;
    bool committed = false;  // a sha, or this commit
    bool accepted() const { return committed && !rejected && !reverted && !blocked; }
};
Verdict verdict_of(const Entry& entry);

struct EntryDate {
    WallTime time{};
    bool day_only = false;
};
std::optional<EntryDate> date_of(const Entry& entry);

// What later entries need to know of an earlier one.
struct EntryBrief {
    EntryHead head;
    std::optional<EntryDate> date;  // its own date, else that of the nearest earlier entry that has one ...
    std::string dated_iteration;    // ... and the iteration of that entry
    std::string_view left_head;     // sha of the head after the entry; empty: unknown
};
EntryBrief brief_of(const Entry& entry);

struct EntryFacts {
    const LintRun& run;
    const Entry& entry;
    const EntryBrief* previous;  // nullptr: none before it
    bool is_last;
    Verdict verdict;
};

struct ExperimentFacts {
    const LintRun& run;
    const std::vector<ExperimentEntry>& entries;
    std::size_t index;
    const ExperimentEntry& entry() const { return entries[index]; }
};

// Where a finding points: part of a line, or the whole line.
struct Where {
    Line line;
    std::string_view part = {};
};

struct Rule;

class Reporter {
public:
    Reporter(LintReport& report, const LintRun& run) : m_report(report), m_run(run) {}

    // Whether the rule is on; if so, makes it the rule of the following reports.
    bool enter(const Rule& rule);
    void set_iteration(const EntryHead* head);
    void set_iteration(std::string_view name) { m_iteration = name; }

    // Masks secrets that the message quotes.
    void add(const Where& where, const std::string& message, std::optional<Fix> fix = {},
             Severity at_most = Severity::error);
    // The same as a note, whatever the rule's own severity.
    void note(const Where& where, const std::string& message, std::optional<Fix> fix = {}) {
        add(where, message, std::move(fix), Severity::note);
    }
    // An edit that replaces `part` of the file by `text`.
    Edit replace(std::string_view part, std::string text) const {
        return {m_run.document.offset(part), part.size(), std::move(text)};
    }
    Fix safe(std::string_view part, std::string text) const { return {true, {replace(part, std::move(text))}}; }
    Fix unsafe(std::string_view part, std::string text) const { return {false, {replace(part, std::move(text))}}; }

private:
    LintReport& m_report;
    const LintRun& m_run;
    const RuleInfo* m_rule = nullptr;
    Severity m_severity = Severity::off;
    bool m_explicit = false;  // severity set by the user: strict does not change it
    std::string m_iteration;
    std::map<const RuleInfo*, std::size_t> m_kept;  // by rule
};

using EntryRule = void (*)(const EntryFacts&, Reporter&);
using DocumentRule = void (*)(const LintRun&, Reporter&);
using ExperimentRule = void (*)(const ExperimentFacts&, Reporter&);

struct Rule {
    RuleInfo info;
    EntryRule on_entry = nullptr;
    DocumentRule on_document = nullptr;
    ExperimentRule on_experiment = nullptr;
};
constexpr Rule on_entry(RuleInfo info, EntryRule function) { return {info, function, nullptr, nullptr}; }
constexpr Rule on_document(RuleInfo info, DocumentRule function) { return {info, nullptr, function, nullptr}; }
constexpr Rule on_experiment(RuleInfo info, ExperimentRule function) { return {info, nullptr, nullptr, function}; }

std::string iteration_text(const EntryHead& head);
// At most five significant digits, without an exponent where whole digits suffice.
std::string five_digits(double value);
// The same with the unit of the metric.
std::string shown_value(std::string_view key, double value);
Where at(const Field& field);        // the whole line
Where value_of(const Field& field);  // its value
Where at(const Reading& reading);    // the text that was parsed
Where heading_of(const Entry& entry);
// The readings of one line. An entry's readings are in file order.
std::span<const Reading> readings_of_line(const Entry& entry, std::uint32_t line);
// Whether an entry has only its identity lines and claims nothing yet.
bool is_begun(const Entry& entry);
// Whether a field has content, on its line or below.
bool has_content(const Field* field);
// A part of the file that is checked: an entry or, if the whole file is checked, the text between entries.
struct Region {
    std::string_view text;
    std::uint32_t first_line = 1;
    bool is_entry = false;
    std::string iteration;
    Line heading;  // of an entry
};
void for_each_region(const LintRun& run, const std::function<void(const Region&)>& visit);

// The rules of each family, and all of them in the order of their ids, in which an entry's rules run.
std::span<const Rule> commit_rules();
std::span<const Rule> document_rules();
std::span<const Rule> field_rules();
std::span<const Rule> number_rules();
std::span<const Rule> evidence_rules();
std::span<const Rule> record_rules();
std::span<const Rule> rules();

}  // namespace gdnctl::runlog
