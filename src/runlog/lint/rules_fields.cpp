// L102, L104, L106, L301-L303, L801-L803: fields that are missing, misspelt or never filled in; dates; and the entries
// of experiment logs.
#include <algorithm>
#include <array>
#include <bit>
#include <map>

#include <fmt/format.h>

#include "core/text.h"
#include "core/time.h"
#include "runlog/lint/rules.h"
#include "runlog/parse/grammar.h"

namespace gdnctl::runlog {

namespace {

bool is_identity(const Field& field) {
    for (const std::string_view label : {"date", "commit", "starting commit"}) {
        if (label_is(field.label, label)) return true;
    }
    return false;
}

constexpr std::array<std::string_view, 47> k_labels = {
    "Date",
    "Commit",
    "Starting commit",
    "Codex loop iteration",
    "Loop session/local index",
    "Coverage slot",
    "Covered set so far",
    "Change class",
    "Dominant bottleneck carried in",
    "Current validated baseline carried in",
    "Candidate shortlist",
    "Selected macro-move category",
    "Selected hypothesis",
    "Hypothesis",
    "Selected slot rationale",
    "Why this is mainline-worthy now",
    "Hot-path scan/cond status",
    "Hot-path control-flow checklist",
    "CE hygiene",
    "CE backend selected",
    "CE bwd mode",
    "Why CE stayed fixed",
    "Change summary",
    "Retained tree state after measurement",
    "Correctness checks",
    "Correctness",
    "Profile run",
    "Profile runs",
    "Job ID",
    "W&B run",
    "Trace location",
    "Hotspots observed",
    "Hotspot metrics",
    "Measured metrics",
    "MFU/throughput delta",
    "Throughput deltas",
    "Interpretation",
    "Assessment",
    "Governance note",
    "Governance action",
    "Acceptance gate checklist",
    "Post-hoc scoring correction",
    "Next hypothesis",
    "Next bold hypothesis",
    "Decision",
    "Outcome",
    "New argument",
};

constexpr std::array<std::string_view, 10> k_change_classes = {
    "branch-core sharding envelope", "branch-core AD diagnostic", "CE backend",  "branch-core primitive",
    "diagnostic side-arm",           "inner kernel math",         "attribution", "outer control structure",
    "whole-layer boundary",          "decoder shell attribution"};

constexpr std::array<std::string_view, 35> k_decisions = {"baseline",
                                                          "promoted",
                                                          "within_threshold",
                                                          "within threshold",
                                                          "regression",
                                                          "regressed",
                                                          "control_flow_regression",
                                                          "promote_corrupt_champion",
                                                          "metric_missing",
                                                          "incomparable",
                                                          "common_factor",
                                                          "quarantined",
                                                          "baseline_shift",
                                                          "aa_ok",
                                                          "keep",
                                                          "low-impact",
                                                          "regressed + reverted",
                                                          "infra-blocked",
                                                          "profile-blocked",
                                                          "compile-blocked",
                                                          "attribution-only",
                                                          "diagnostic lead",
                                                          "probe-only",
                                                          "ablation-only",
                                                          "probe/ablation-only",
                                                          "off-critical-path",
                                                          "overlap-loss",
                                                          "wrong-boundary progress",
                                                          "namespace-only",
                                                          "renamed-bucket progress",
                                                          "waiting/serialization dominant",
                                                          "rejected",
                                                          "accepted",
                                                          "reverted",
                                                          "none"};

// The letters that occur, as bits: a cheap bound that avoids most edit distances.
constexpr std::uint32_t letters(std::string_view s) {
    std::uint32_t bits = 0;
    for (const char c : s) {
        const char l = lower(c);
        if (l >= 'a' && l <= 'z') bits |= 1u << (l - 'a');
    }
    return bits;
}

constexpr auto k_label_letters = [] {
    std::array<std::uint32_t, k_labels.size()> out{};
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = letters(k_labels[i]);
    return out;
}();

bool same_label(std::string_view a, std::string_view b) {
    return a.size() == b.size() &&
           std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) { return lower(x) == lower(y); });
}

// The known label that an unknown `label` misspells: one or two edits away.
std::string_view misspelt(std::string_view label) {
    label = strip_marks(label.substr(0, label.find('(')));
    if (label.size() < 5 || label.size() > 60) return {};
    const std::uint32_t own = letters(label);
    for (std::size_t i = 0; i < k_labels.size(); ++i) {
        if (own == k_label_letters[i] && same_label(label, k_labels[i])) return {};
    }
    std::string lower_case;
    std::string_view best;
    for (std::size_t i = 0; i < k_labels.size(); ++i) {
        const std::string_view known = k_labels[i];
        const std::size_t gap = known.size() > label.size() ? known.size() - label.size() : label.size() - known.size();
        if (gap > 2 || std::popcount(own ^ k_label_letters[i]) > 4) continue;
        if (lower_case.empty()) lower_case = text::to_lower(label);
        const std::size_t limit = known.size() < 8 ? 1 : 2;
        const std::size_t distance = text::edit_distance(lower_case, text::to_lower(known), limit);
        if (distance == 0) return {};
        if (distance <= limit) best = known;
    }
    return best;
}

bool equal_words(std::string_view a, std::string_view b) { return normalise_label(a) == normalise_label(b); }

// A value without marks and without text in parentheses.
std::string_view word_of(const Field& field) {
    const std::string_view s = strip_marks(field.value);
    return strip_marks(s.substr(0, s.find_first_of("(;.,")));
}

template <class Known>
std::string_view nearest_of(std::string_view word, const Known& known) {
    for (const std::string_view candidate : known) {
        if (text::edit_distance(normalise_label(word), normalise_label(candidate), 2) <= 2) return candidate;
    }
    return {};
}

void report_unknown(Reporter& reporter, const Field& field, std::string_view kind, std::string_view known) {
    std::optional<Fix> fix;
    std::string message = fmt::format("unknown {} `{}`", kind, word_of(field));
    if (!known.empty()) {
        message += fmt::format("; did you mean `{}`?", known);
        fix = reporter.safe(word_of(field), std::string(known));
    }
    reporter.add(value_of(field), message, std::move(fix));
}

void check_change_class(const EntryFacts& facts, Reporter& reporter) {
    const Field* field = facts.entry.find("change class");
    if (field == nullptr || word_of(*field).empty()) return;
    const std::string_view word = word_of(*field);
    const auto same = [&](std::string_view known) { return equal_words(word, known); };
    const std::vector<std::string>& more = facts.run.options.change_classes;
    if (std::any_of(k_change_classes.begin(), k_change_classes.end(), same)) return;
    if (std::any_of(more.begin(), more.end(), same)) return;
    // Authors may use their own words: only a misspelling of a known class is a finding.
    const std::string_view meant = nearest_of(word, k_change_classes);
    if (!meant.empty()) report_unknown(reporter, *field, "change class", meant);
}

void check_decision(const EntryFacts& facts, Reporter& reporter) {
    const Field* field = facts.entry.find("decision");
    if (field == nullptr || word_of(*field).empty()) return;
    const std::string_view word = word_of(*field);
    if (std::any_of(k_decisions.begin(), k_decisions.end(), [&](std::string_view k) { return equal_words(word, k); })) {
        return;
    }
    report_unknown(reporter, *field, "decision", nearest_of(word, k_decisions));
}

const Field* first_of(const Entry& entry, std::initializer_list<std::string_view> labels) {
    for (const std::string_view label : labels) {
        if (const Field* field = entry.find(label)) return field;
    }
    return nullptr;
}

// Whether an entry has a metric of the whole run. Those have a namespace (throughput/mfu, gdn/forward_ms); buckets of a
// step have plain names.
bool has_throughput(const Entry& entry) {
    if (entry.metric("step_duration_ms") != nullptr) return true;
    return std::any_of(entry.metrics.begin(), entry.metrics.end(),
                       [](const Metric& m) { return m.key.find('/') != std::string::npos; });
}

bool has_fence(const Entry& entry) {
    return entry.head.text.find("```") != std::string_view::npos ||
           entry.head.text.find("~~~") != std::string_view::npos;
}

// The fields that an entry with this commit value and verdict still needs.
std::vector<std::string> missing_fields(const EntryFacts& facts) {
    const Entry& entry = facts.entry;
    std::vector<std::string> missing;
    const auto need = [&](bool there, const char* name) {
        if (!there) missing.emplace_back(name);
    };
    need(entry.date >= 0, "Date");
    need(entry.commit >= 0, "Commit");
    need(first_of(entry, {"hypothesis", "selected hypothesis"}) != nullptr, "Hypothesis");
    if (entry.commit_value.kind == CommitKind::committed) {
        need(entry.find("change summary") != nullptr, "Change summary");
        need(first_of(entry, {"correctness checks", "correctness"}) != nullptr, "Correctness checks");
        need(first_of(entry, {"profile run", "profile runs", "job id", "ray job", "job/run", "w&b run", "run"}) !=
                 nullptr,
             "Profile run");
        need(has_throughput(entry), "Step duration or a throughput delta");
    }
    if (entry.commit_value.kind == CommitKind::none) {
        const Field* reason = first_of(entry, {"assessment", "interpretation", "failure mode", "reason"});
        need(!entry.commit_value.reason.empty() || has_content(reason), "a reason behind `none`");
        need(first_of(entry, {"next hypothesis", "next bold hypothesis"}) != nullptr, "Next hypothesis");
    }
    if (facts.verdict.blocked) {
        need(has_content(first_of(entry, {"command", "failing command"})) || has_fence(entry), "the failing command");
        need(has_content(first_of(entry, {"failure mode", "error", "error text"})) || has_fence(entry),
             "the error text");
    }
    return missing;
}

bool is_template_text(std::string_view value) {
    value = strip_marks(value);
    if (value.size() < 3 || value.front() != '<' || value.back() != '>') return false;
    return value.find('>') == value.size() - 1 && !value.starts_with("<http") && !value.starts_with("<!--");
}

void required_fields(const EntryFacts& facts, Reporter& reporter) {
    const std::vector<std::string> missing = missing_fields(facts);
    if (missing.empty()) return;
    std::string message = fmt::format("missing: {}", text::join(missing, ", "));
    if (is_begun(facts.entry)) {
        reporter.note(heading_of(facts.entry), message);
    } else {
        reporter.add(heading_of(facts.entry), message);
    }
}

void unknown_words(const EntryFacts& facts, Reporter& reporter) {
    check_change_class(facts, reporter);
    check_decision(facts, reporter);
    for (const Field& field : facts.entry.fields) {
        if (field.parent >= 0 || field.label.empty()) continue;
        const std::string_view known = misspelt(field.label);
        if (known.empty() || metric_key(field.label)) continue;
        const std::string_view label = strip_marks(field.label.substr(0, field.label.find('(')));
        reporter.add({{field.line, field.number}, label},
                     fmt::format("unknown field `{}`; did you mean `{}`?", label, known),
                     reporter.safe(label, std::string(known)));
    }
}

void template_text(const EntryFacts& facts, Reporter& reporter) {
    for (const Field& field : facts.entry.fields) {
        if (is_template_text(field.value)) {
            reporter.add(value_of(field), fmt::format("template text left: {}", strip_marks(field.value)));
        } else if (!field.label.empty() && !has_content(&field)) {
            reporter.add(at(field), fmt::format("`{}` is empty", field.label));
        }
    }
    if (is_template_text(facts.entry.head.title)) {
        reporter.add(heading_of(facts.entry), fmt::format("template text left: {}", facts.entry.head.title));
    }
}

void experiment_template_text(const ExperimentFacts& facts, Reporter& reporter) {
    const ExperimentEntry& entry = facts.entry();
    if (is_template_text(entry.name)) {
        reporter.add({entry.heading, entry.name}, fmt::format("template text left: {}", entry.name));
    }
    for (const ExperimentSection& section : entry.sections) {
        if (is_template_text(text::trim(section.body))) {
            reporter.add({section.heading}, fmt::format("template text left under `{}`", section.name));
        } else if (text::trim(section.body).empty()) {
            reporter.add({section.heading}, fmt::format("`{}` is empty", section.name));
        }
    }
}

using std::chrono::hours;

std::string_view date_text(const Field& field) { return strip_marks(field.value); }

// "2026-02-18 12:55:20 UTC" and "2026-02-18T12:55:20+02:00" -> the same instant with a Z; empty: the offset is unknown.
std::string with_known_offset(std::string_view s) {
    if (s.size() <= 10 || !is_date(s.substr(0, 10))) return {};
    std::string iso(s);
    for (const std::string_view zone : {" UTC", " utc", " GMT", "UTC", " Z", "z"}) {
        if (!s.ends_with(zone)) continue;
        iso = std::string(s.substr(0, s.size() - zone.size())) + "Z";
        break;
    }
    if (iso[10] == ' ' || iso[10] == 't') iso[10] = 'T';
    const std::string_view clock = std::string_view(iso).substr(11);
    if (clock.find_first_of("Z+-") == std::string_view::npos) return {};
    const auto time = parse_iso8601(iso);
    return time ? format_iso8601(*time) : std::string();
}

bool is_utc(std::string_view s) { return parse_iso8601(s) && (s.size() == 10 || s.ends_with("Z")); }

std::chrono::sys_days day_of(WallTime t) { return std::chrono::floor<std::chrono::days>(t); }

void date_format(const EntryFacts& facts, Reporter& reporter) {
    const Field* field = facts.entry.field(facts.entry.date);
    if (field == nullptr) return;
    const std::string_view s = date_text(*field);
    if (s.empty() || s.starts_with("<")) return;  // L106
    if (is_utc(s)) {
        if (s == field->value) return;
        const char* marks = field->value.find('`') != std::string_view::npos ? "backticks" : "asterisks";
        reporter.add(value_of(*field), fmt::format("the date needs no {}", marks),
                     reporter.safe(field->value, std::string(s)));
        return;
    }
    std::optional<Fix> fix;
    if (std::string mended = with_known_offset(s); !mended.empty())
        fix = reporter.safe(field->value, std::move(mended));
    reporter.add(value_of(*field), "the date is not ISO 8601 in UTC (2026-02-18 or 2026-02-18T12:55:20Z)",
                 std::move(fix));
}

void date_order(const EntryFacts& facts, Reporter& reporter) {
    const auto date = date_of(facts.entry);
    if (!date || facts.previous == nullptr || !facts.previous->date) return;
    const EntryDate& before = *facts.previous->date;
    const bool by_day = date->day_only || before.day_only;
    const bool earlier = by_day ? day_of(date->time) < day_of(before.time) : date->time < before.time;
    if (!earlier) return;
    reporter.add(value_of(*facts.entry.field(facts.entry.date)),
                 fmt::format("earlier than the date of iteration {}, {}", facts.previous->dated_iteration,
                             format_iso8601(before.time)));
}

void date_plausible(const EntryFacts& facts, Reporter& reporter) {
    const auto date = date_of(facts.entry);
    if (!date) return;
    const Field& field = *facts.entry.field(facts.entry.date);
    const LintOptions& options = facts.run.options;
    const hours slack{1};  // for clock differences between two machines
    if (options.now != WallTime{} && date->time > options.now + slack) {
        reporter.add(value_of(field), "the date is in the future");
        return;
    }
    if (facts.entry.commit_value.kind != CommitKind::committed) return;
    CommitFacts* history = facts.run.facts();
    if (history == nullptr) return;
    const auto commit = history->resolve(facts.entry.commit_value.sha);
    if (!commit || !*commit) return;
    const WallTime committed = (*commit)->time;
    const auto last = date->day_only ? date->time + hours{24} : date->time;
    if (committed <= last + hours{48} && committed >= date->time - hours{48}) return;
    reporter.add(value_of(field),
                 fmt::format("more than 48 h from the commit's own date, {}", format_iso8601(committed)),
                 reporter.unsafe(date_text(field), format_iso8601(committed)));
}

// The rules of experiment logs (L102, L301, L302 there, L801-L803).

// The first word such as 22.4212 or speedup=28.5 in an outcome; empty: none.
std::string_view claimed_score(std::string_view text) {
    for (std::size_t at = text.find('.'); at != std::string_view::npos; at = text.find('.', at + 1)) {
        std::size_t begin = at, end = at + 1;
        while (begin > 0 && is_digit(text[begin - 1])) --begin;
        while (end < text.size() && is_digit(text[end])) ++end;
        const bool bounded = (begin == 0 || !(is_word(text[begin - 1]) || text[begin - 1] == '.')) &&
                             (end == text.size() || !(is_word(text[end]) || text[end] == '.'));
        if (begin < at && end - at >= 3 && bounded) return text.substr(begin, end - begin);
    }
    return {};
}

// A file name or a run id in code: `proposal_21_metrics.json`, `ap-LG0DrZ`, outputs/run3.
bool names_source(std::string_view text) {
    bool code = false;
    std::size_t open = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '`') continue;
        if (code) {
            const std::string_view inner = text.substr(open + 1, i - open - 1);
            const bool word = inner.find(' ') == std::string_view::npos && inner.size() >= 4;
            bool letter = false, joined = false;
            for (const char c : inner) {
                letter = letter || is_alpha(c);
                joined = joined || c == '_' || c == '-' || c == '/' || c == '.';
            }
            if (word && letter && joined && inner.find('=') == std::string_view::npos) return true;
        }
        open = i;
        code = !code;
    }
    return false;
}

Line line_at(std::string_view body, std::uint32_t first, const char* place) {
    LineCursor cursor(body, first);
    Line line;
    while (cursor.next(line) && line.text.data() + line.text.size() < place) {
    }
    return line;
}

void experiment_sections(const ExperimentFacts& facts, Reporter& reporter) {
    const ExperimentEntry& entry = facts.entry();
    std::vector<std::string> missing;
    for (const char* name : {"Goal", "Hypothesis", "Action", "Outcome", "Next Step"}) {
        const bool optional = !entry.numbered.empty();
        if (entry.section(name) == nullptr && !optional) missing.emplace_back(name);
    }
    if (!entry.numbered.empty() && entry.section("Next Step") == nullptr) missing.emplace_back("Next Step");
    if (!missing.empty()) reporter.add({entry.heading}, fmt::format("missing: {}", text::join(missing, ", ")));
    if (entry.section("Reasoning") == nullptr && entry.numbered.empty()) {
        reporter.note({entry.heading}, "no `### Reasoning`");
    }
}

void experiment_date(const ExperimentFacts& facts, Reporter& reporter) {
    const ExperimentEntry& entry = facts.entry();
    if (!parse_iso8601(entry.date)) reporter.add({entry.heading, entry.date}, "no such date");
}

void experiment_date_order(const ExperimentFacts& facts, Reporter& reporter) {
    const ExperimentEntry& entry = facts.entry();
    if (!parse_iso8601(entry.date)) return;  // L301
    for (std::size_t i = facts.index; i-- > 0;) {
        const std::string_view before = facts.entries[i].date;
        if (!parse_iso8601(before)) continue;
        if (entry.date >= before) return;
        reporter.add({entry.heading, entry.date}, fmt::format("earlier than the entry before it, {}", before));
        return;
    }
}

// Numbers continue through the whole file.
void experiment_numbers(const LintRun& run, Reporter& reporter) {
    std::map<std::int64_t, std::uint32_t> seen;
    std::int64_t last = -1;
    for (const ExperimentEntry& entry : run.experiments) {
        for (const NumberedExperiment& experiment : entry.numbered) {
            const auto [first, fresh] = seen.emplace(experiment.number, experiment.heading.number);
            if (!fresh) {
                reporter.add({experiment.heading},
                             fmt::format("experiment {} is already in line {}", experiment.number, first->second));
            } else if (experiment.number < last) {
                reporter.add({experiment.heading},
                             fmt::format("experiment {} comes after {}", experiment.number, last));
            }
            last = std::max(last, experiment.number);
        }
    }
}

void score_source(const ExperimentFacts& facts, Reporter& reporter) {
    const ExperimentEntry& entry = facts.entry();
    const ExperimentSection* outcome = entry.section("Outcome");
    if (outcome == nullptr) return;
    const std::string_view score = claimed_score(outcome->body);
    if (score.empty() || names_source(outcome->body)) return;
    if (const ExperimentSection* action = entry.section("Action"); action != nullptr && names_source(action->body))
        return;
    reporter.add({line_at(outcome->body, outcome->heading.number + 1, score.data()), score},
                 fmt::format("the score {} names no evidence file or run id", score));
}

void standing_best(const ExperimentFacts& facts, Reporter& reporter) {
    const ExperimentSection* outcome = facts.entry().section("Outcome");
    if (outcome == nullptr) return;
    const std::string lower_case = text::to_lower(outcome->body);
    for (const std::string_view phrase : {"no improvement", "did not improve", "no uplift", "not improved"}) {
        if (lower_case.find(phrase) == std::string::npos) continue;
        const bool compared = lower_case.find("x faster") != std::string::npos;
        if (claimed_score(outcome->body).empty() && !compared) {
            reporter.add({outcome->heading}, "no improvement: say what the standing best is");
        }
        return;
    }
}

}  // namespace

bool is_begun(const Entry& entry) {
    return entry.commit_value.kind != CommitKind::committed && entry.commit_value.kind != CommitKind::none &&
           entry.verbatim.empty() && std::all_of(entry.fields.begin(), entry.fields.end(), is_identity);
}

// L301-L303: dates are ISO 8601 in UTC, in order, and close to the commit's date.

std::optional<EntryDate> date_of(const Entry& entry) {
    const Field* field = entry.field(entry.date);
    if (field == nullptr) return std::nullopt;
    const std::string_view s = date_text(*field);
    auto time = parse_iso8601(s);
    if (!time) {
        if (const std::string mended = with_known_offset(s); !mended.empty()) time = parse_iso8601(mended);
    }
    if (!time) return std::nullopt;
    return EntryDate{*time, s.size() == 10};
}

std::span<const Rule> field_rules() {
    using enum Severity;
    static constexpr std::array k_rules = {
        Rule{{"L102", "required-field", warning, "a field is missing that this kind of entry needs",
              "Always Date, Commit and Hypothesis; with a sha also the change, its tests, profile and step duration; "
              "with "
              "`none` the reason and the next hypothesis."},
             &required_fields,
             nullptr,
             &experiment_sections},
        on_entry(
            {"L104", "unknown-word", warning, "a change class or field label is misspelt, or a decision is unknown",
             "Use a known spelling, or allow a class with `change-class = NAME` in a rules file."},
            &unknown_words),
        Rule{{"L106", "template-text", warning, "text of the template is left, or a field is empty",
              "Fill it in or remove the line."},
             &template_text,
             nullptr,
             &experiment_template_text},
        Rule{{"L301", "date-format", warning, "the date is not ISO 8601 in UTC",
              "Write 2026-02-18 or 2026-02-18T12:55:20Z."},
             &date_format,
             nullptr,
             &experiment_date},
        Rule{{"L302", "date-order", warning, "the date is earlier than the previous entry's",
              "Keep entries in chronological order."},
             &date_order,
             nullptr,
             &experiment_date_order},
        on_entry({"L303", "date-plausible", warning, "the date is in the future, or far from the commit's own",
                  "Take the time from the commit."},
                 &date_plausible),
        on_document({"L801", "experiment-number", warning, "experiment numbers repeat or go back",
                     "Number experiments consecutively through the whole file."},
                    &experiment_numbers),
        on_experiment({"L802", "score-source", note, "a score names no evidence", "Name the file or the run id."},
                      &score_source),
        on_experiment({"L803", "standing-best", warning, "no improvement, but the standing best is not given",
                       "State the best score so far."},
                      &standing_best)};
    return k_rules;
}

}  // namespace gdnctl::runlog
