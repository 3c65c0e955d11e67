// L102, L104, L106: fields that are missing, misspelt or never filled in.
#include <algorithm>
#include <array>
#include <bit>

#include <fmt/format.h>

#include "core/text.h"
#include "runlog/lint/rules.h"
#include "runlog/parse/detail.h"

namespace gdnctl::runlog {

namespace {

bool is_identity(const Field& field) {
    for (const std::string_view label : {"date", "commit", "starting commit"}) {
        if (detail::label_is(field.label, label)) return true;
    }
    return false;
}

}  // namespace

bool is_begun(const Entry& entry) {
    return entry.commit_value.kind != CommitKind::committed && entry.commit_value.kind != CommitKind::none &&
           entry.verbatim.empty() && std::all_of(entry.fields.begin(), entry.fields.end(), is_identity);
}

namespace rule {

namespace {

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

constexpr std::array<std::string_view, 34> k_decisions = {"baseline",
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
        const char l = detail::lower(c);
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
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                              [](char x, char y) { return detail::lower(x) == detail::lower(y); });
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

}  // namespace

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

}  // namespace rule

}  // namespace gdnctl::runlog
