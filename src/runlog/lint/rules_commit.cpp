// L001, L002, L103, L105, L201-L205: what the commit line says, and whether history agrees.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/text.h"
#include "runlog/lint/rules.h"
#include "runlog/parse/grammar.h"

namespace gdnctl::runlog {

namespace {

// The same commit, abbreviated or not.
bool same_sha(std::string_view a, std::string_view b) {
    const std::size_t n = std::min(a.size(), b.size());
    return n >= 7 && a.substr(0, n) == b.substr(0, n);
}

std::string_view sha_in(const Field* field) {
    if (field == nullptr) return {};
    const CommitValue value = classify_commit(field->value);
    return value.kind == CommitKind::committed ? value.sha : std::string_view{};
}

// The value of a commit field without the marks around it, which a fix replaces.
std::string_view bare_value(const Field& field) {
    std::string_view s = strip_marks(field.value);
    while (!s.empty() && (s.back() == '.' || s.back() == '`' || s.back() == '*')) s.remove_suffix(1);
    return s;
}

// A field's text in lower case, words separated by blanks.
void add_words(std::string& words, const Field& field) {
    const std::size_t first = words.size();
    words += text::to_lower(field.value.substr(0, 2000)) + '\n' + text::to_lower(field.body.substr(0, 4000)) + '\n';
    std::replace_if(
        words.begin() + static_cast<std::ptrdiff_t>(first), words.end(), [](char c) { return c == '_' || c == '-'; },
        ' ');
}

// Whether `words` contains the word without a negation ("not promoted" does not count).
bool says_word(std::string_view words, std::string_view word) {
    for (std::size_t found = words.find(word); found != std::string::npos; found = words.find(word, found + 1)) {
        const std::string_view before = words.substr(0, found);
        const std::size_t end = found + word.size();
        const bool whole = (before.empty() || !is_word(before.back())) && (end == words.size() || !is_word(words[end]));
        const bool negated = before.ends_with("not ") || before.ends_with("never ") || before.ends_with("no ") ||
                             before.ends_with("nothing ") || before.ends_with("not be ");
        if (whole && !negated) return true;
    }
    return false;
}

struct Introduced {
    bool known = false;  // history is available
    std::optional<CommitInfo> commit;
    std::string problem;  // why the commit was not found
};

Introduced introduced_by(const EntryFacts& facts) {
    CommitFacts* history = facts.run.facts();
    if (history == nullptr) return {false, {}, "no git history to look it up in"};
    if (const RecordFacts* record = facts.run.record_of(facts.entry.head)) {
        if (auto commit = history->with_iteration_trailer(record->id); commit && *commit) return {true, **commit, {}};
    }
    auto commit = history->introduced_line(facts.run.input.repository_path, facts.entry.head.heading);
    if (!commit) return {false, {}, commit.error().message};
    return {true, std::move(*commit), {}};
}

// The one finding about commits that a shallow clone lacks.
void report_shallow(const LintRun& run, const Where& place, std::string_view what, Reporter& reporter) {
    if (!run.first_cut_off()) return;
    reporter.add(place,
                 fmt::format("the clone is shallow: {} and older commits cannot be checked; {}", what, k_fetch_all));
}

// Commit bullets of one kind outside all entries. If not the whole file is checked, only those after the last entry and
// before an underlined heading, because older scripts search from that entry to the end of the file.
void for_commits_outside_entries(const LintRun& run, CommitKind kind, const std::function<void(const Line&)>& visit) {
    if (run.input.base != nullptr) return;
    const auto scan = [&](std::string_view text, std::uint32_t first_line) {
        LineCursor cursor(text, first_line);
        BlockTracker tracker;
        Line line;
        while (cursor.next(line)) {
            if (tracker.inside(line.text)) continue;
            if (!run.whole_file() && !tracker.underlined().first.empty()) return;
            const auto bullet = match_bullet(line.text);
            const auto labelled = bullet ? split_label(bullet->content) : std::nullopt;
            if (!labelled || !label_is(labelled->label, "commit")) continue;
            if (classify_commit(labelled->value).kind == kind) visit(line);
        }
    };
    if (run.whole_file()) {
        for_each_region(run, [&](const Region& region) {
            if (!region.is_entry) scan(region.text, region.first_line);
        });
    } else if (!run.document.entries.empty()) {
        const EntryHead& last = run.document.entries.back();
        const std::size_t end = run.document.offset(last.text) + last.text.size();
        scan(run.document.bytes.substr(end), last.line + last.line_count);
    }
}

void pending_commit(const EntryFacts& facts, Reporter& reporter) {
    if (facts.run.options.allow_pending) return;
    for (const Field& field : facts.entry.fields) {
        if (!label_is(field.label, "commit")) continue;
        if (classify_commit(field.value).kind != CommitKind::pending) continue;
        const Introduced introduced = introduced_by(facts);
        std::optional<Fix> fix;
        if (introduced.known && !introduced.commit) fix = reporter.unsafe(bare_value(field), "none (failed attempt)");
        reporter.add(at(field), "the commit is still pending; write a sha, `this commit` or `none (failed attempt)`",
                     std::move(fix));
    }
}

void pending_outside_entries(const LintRun& run, Reporter& reporter) {
    if (run.options.allow_pending) return;
    for_commits_outside_entries(run, CommitKind::pending, [&](const Line& line) {
        reporter.add({line}, "a pending commit outside every entry");
    });
}

void this_commit_outside_entries(const LintRun& run, Reporter& reporter) {
    if (run.options.allow_this_commit) return;
    for_commits_outside_entries(run, CommitKind::self,
                                [&](const Line& line) { reporter.add({line}, "`this commit` outside every entry"); });
}

void this_commit(const EntryFacts& facts, Reporter& reporter) {
    const Field* field = facts.entry.field(facts.entry.commit);
    if (field == nullptr || facts.entry.commit_value.kind != CommitKind::self) return;
    if (facts.run.options.allow_this_commit) return;
    const Introduced introduced = introduced_by(facts);
    if (!introduced.known && facts.run.may_be_cut_off()) {
        report_shallow(facts.run, at(*field), "`this commit`", reporter);
    } else if (!introduced.known) {
        reporter.add(at(*field), fmt::format("`this commit` cannot be resolved: {}", introduced.problem));
    } else if (!introduced.commit) {
        if (facts.is_last) {
            reporter.note(at(*field), "`this commit` resolves when the entry is committed");
        } else {
            reporter.add(at(*field), "`this commit` in an older entry that is not committed");
        }
    } else if (introduced.commit->is_merge) {
        reporter.add(at(*field), "`this commit` cannot be resolved: only a merge introduced the entry");
    } else {
        const std::string sha = introduced.commit->sha;
        Fix fix = reporter.safe(bare_value(*field), sha);
        if (facts.is_last) {
            reporter.note(at(*field), fmt::format("`this commit` is {}", sha.substr(0, 12)));
        } else {
            reporter.add(at(*field), fmt::format("`this commit` left in an older entry; it is {}", sha.substr(0, 12)),
                         std::move(fix));
        }
    }
}

void commit_grammar(const EntryFacts& facts, Reporter& reporter) {
    const Field* field = facts.entry.field(facts.entry.commit);
    if (field == nullptr || facts.entry.commit_value.kind != CommitKind::other) return;
    if (facts.entry.commit_value.text.starts_with("<")) return;  // template text, L106
    reporter.add(value_of(*field),
                 "the commit value is none of: a sha of 7 to 40 digits, `this commit`, `none (reason)`");
}

void repeated_field(const EntryFacts& facts, Reporter& reporter) {
    const Entry& entry = facts.entry;
    for (const std::int32_t index : entry.repeated) {
        const Field& field = entry.fields[static_cast<std::size_t>(index)];
        const bool commit = label_is(field.label, "commit");
        const bool date = label_is(field.label, "date");
        const std::int32_t first = commit ? entry.commit : date ? entry.date : entry.starting_commit;
        reporter.add(at(field), fmt::format("`{}` is given twice; the one in line {} counts",
                                            commit ? "Commit"
                                            : date ? "Date"
                                                   : "Starting commit",
                                            entry.fields[static_cast<std::size_t>(first)].number));
    }
}

void unknown_sha(const EntryFacts& facts, Reporter& reporter) {
    for (const std::int32_t index : {facts.entry.commit, facts.entry.starting_commit}) {
        const Field* field = facts.entry.field(index);
        const std::string_view sha = sha_in(field);
        if (sha.empty()) continue;
        CommitFacts* history = facts.run.facts();
        if (history == nullptr) return;
        const auto commit = history->resolve(sha);
        if (!commit || *commit) continue;
        if (facts.run.may_be_cut_off()) {
            report_shallow(facts.run, value_of(*field), sha, reporter);
        } else {
            reporter.add(value_of(*field), fmt::format("{} is not a commit of this repository", sha));
        }
    }
}

void not_an_ancestor(const EntryFacts& facts, Reporter& reporter) {
    if (facts.entry.commit_value.kind != CommitKind::committed) return;
    CommitFacts* history = facts.run.facts();
    if (history == nullptr) return;
    const std::string_view sha = facts.entry.commit_value.sha;
    const auto known = history->resolve(sha);
    if (!known || !*known) return;  // L201
    const auto ancestor = history->is_ancestor_of_head(sha);
    if (!ancestor || *ancestor) return;
    const auto parked = history->on_parked_ref(sha);
    if (!parked || *parked) return;
    const Where place = value_of(*facts.entry.field(facts.entry.commit));
    if (facts.run.may_be_cut_off()) return report_shallow(facts.run, place, sha, reporter);
    reporter.add(place, fmt::format("{} is not in the history of HEAD, nor on a parked or rejected ref", sha));
}

void same_as_start(const EntryFacts& facts, Reporter& reporter) {
    const Field* start = facts.entry.field(facts.entry.starting_commit);
    if (facts.entry.commit_value.kind != CommitKind::committed || start == nullptr) return;
    if (!same_sha(sha_in(start), facts.entry.commit_value.sha)) return;
    reporter.add(value_of(*facts.entry.field(facts.entry.commit)),
                 "the commit is the starting commit: nothing was committed, or the wrong sha was recorded");
}

void start_mismatch(const EntryFacts& facts, Reporter& reporter) {
    const Field* start = facts.entry.field(facts.entry.starting_commit);
    const std::string_view sha = sha_in(start);
    if (facts.previous == nullptr || sha.empty() || facts.previous->left_head.empty()) return;
    if (same_sha(sha, facts.previous->left_head)) return;
    reporter.add(value_of(*start), fmt::format("iteration {} left the head at {}", iteration_text(facts.previous->head),
                                               facts.previous->left_head));
}

void decision_mismatch(const EntryFacts& facts, Reporter& reporter) {
    const CommitValue& commit = facts.entry.commit_value;
    const Field* field = facts.entry.field(facts.entry.commit);
    if (commit.kind == CommitKind::none && facts.verdict.promoted) {
        reporter.add(at(*field), "the entry says promoted, but has no commit");
    }
    if (commit.kind != CommitKind::committed || !facts.verdict.reverted) return;
    CommitFacts* history = facts.run.facts();
    if (history == nullptr) return;
    const auto known = history->resolve(commit.sha);
    const auto ancestor = history->is_ancestor_of_head(commit.sha);
    if (!known || !*known || !ancestor || !*ancestor) return;
    const auto reverted = history->is_reverted(commit.sha);
    if (reverted && !*reverted) {
        reporter.add(at(*field), fmt::format("the entry says reverted, but no commit reverts {}", commit.sha));
    }
}

}  // namespace

Verdict verdict_of(const Entry& entry) {
    Verdict verdict;
    verdict.committed = entry.commit_value.kind == CommitKind::committed || entry.commit_value.kind == CommitKind::self;
    std::string words;
    for (const std::string_view label :
         {"decision", "outcome", "assessment", "acceptance gate checklist", "verdict", "governance note",
          "governance action", "retained tree state after measurement"}) {
        if (const Field* field = entry.find(label)) add_words(words, *field);
    }
    const auto says = [&](std::string_view word) { return says_word(words, word); };
    verdict.promoted = says("promoted") || says("promote corrupt champion");
    verdict.reverted = says("reverted");
    verdict.rejected = says("regressed") || says("rejected") || says("regression") || says("control flow regression");
    // An attempt without a commit may say in other fields that it never ran.
    for (const Field& field : entry.fields) {
        if (verdict.committed) break;
        for (const std::string_view label : {"commit", "interpretation", "result"}) {
            if (label_is(field.label, label)) add_words(words, field);
        }
    }
    verdict.blocked = says("infra blocked") || says("profile blocked") || says("compile blocked");
    return verdict;
}

EntryBrief brief_of(const Entry& entry) {
    EntryBrief brief;
    brief.head = entry.head;
    brief.date = date_of(entry);
    brief.dated_iteration = iteration_text(entry.head);
    if (entry.commit_value.kind == CommitKind::committed) brief.left_head = entry.commit_value.sha;
    if (entry.commit_value.kind == CommitKind::none) brief.left_head = sha_in(entry.field(entry.starting_commit));
    return brief;
}

std::span<const Rule> commit_rules() {
    using enum Severity;
    static constexpr std::array k_rules = {
        Rule{{"L001", "pending-commit", error, "the commit value is still pending",
              "Write the sha, `this commit` or `none (failed attempt)`."},
             &pending_commit,
             &pending_outside_entries,
             nullptr},
        Rule{{"L002", "this-commit", warning, "`this commit` cannot be resolved, or was left in an older entry",
              "Write the sha; `--fix` does this if the git history has it."},
             &this_commit,
             &this_commit_outside_entries,
             nullptr},
        on_entry({"L103", "commit-grammar", warning, "the commit value is none of the known forms",
                  "Use a sha of 7 to 40 digits, `this commit` or `none (reason)`."},
                 &commit_grammar),
        on_entry({"L105", "repeated-field", warning, "an identity field is given twice", "Keep the first."},
                 &repeated_field),
        on_entry({"L201", "unknown-sha", warning, "a sha is not in the repository", "Check the sha, or fetch."},
                 &unknown_sha),
        on_entry({"L202", "not-an-ancestor", warning, "the commit is not in the history of HEAD",
                  "The commit was rebased or dropped: record the existing one, or `none (reason)`."},
                 &not_an_ancestor),
        on_entry({"L203", "commit-is-start", warning, "the commit equals the starting commit",
                  "Record the commit that the iteration made, or `none (reason)`."},
                 &same_as_start),
        on_entry({"L204", "start-mismatch", note, "the starting commit is not the head that the previous entry left",
                  "Other commits came between, or an entry is missing."},
                 &start_mismatch),
        on_entry({"L205", "decision-mismatch", warning, "decision and commit disagree",
                  "A promoted change has a commit; a reverted one has a commit that reverts it."},
                 &decision_mismatch)};
    return k_rules;
}

}  // namespace gdnctl::runlog
