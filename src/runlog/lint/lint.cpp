#include "runlog/lint/lint.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "core/redact.h"
#include "core/text.h"
#include "runlog/lint/rules.h"
#include "runlog/parse/grammar.h"

namespace gdnctl::runlog {

namespace {

// Number of code points; an invalid byte counts as one.
std::uint32_t code_points(std::string_view s) {
    std::uint32_t n = 0;
    for (const char c : s) n += (static_cast<unsigned char>(c) & 0xC0u) != 0x80u ? 1 : 0;
    return n;
}

std::string_view ink_of(std::string_view line) {
    const std::size_t first = line.find_first_not_of(" \t");
    if (first == std::string_view::npos) return line;
    return line.substr(first, line.find_last_not_of(" \t") - first + 1);
}

// Entries whose heading and text are not identical in the base.
std::vector<bool> changed_entries(const Document& document, const Document& base) {
    std::unordered_map<std::string_view, std::string_view> known;
    for (const EntryHead& head : base.entries) known.emplace(head.heading, text::trim(head.text));
    std::vector<bool> changed;
    changed.reserve(document.entries.size());
    for (const EntryHead& head : document.entries) {
        const auto found = known.find(head.heading);
        changed.push_back(found == known.end() || found->second != text::trim(head.text));
    }
    return changed;
}

std::vector<bool> changed_experiments(const std::vector<ExperimentEntry>& entries, const Document& base) {
    const std::vector<ExperimentEntry> before = parse_experiments(base);
    std::unordered_set<std::string_view> known;
    for (const ExperimentEntry& entry : before) known.insert(text::trim(entry.text));
    std::vector<bool> changed;
    changed.reserve(entries.size());
    for (const ExperimentEntry& entry : entries) changed.push_back(!known.contains(text::trim(entry.text)));
    return changed;
}

void select(LintRun& run) {
    const bool experiment = run.document.kind == Template::experiment;
    if (run.input.base != nullptr) {
        run.selected = experiment ? changed_experiments(run.experiments, *run.input.base)
                                  : changed_entries(run.document, *run.input.base);
        return;
    }
    run.selected.assign(experiment ? run.experiments.size() : run.document.entries.size(), run.options.all_entries);
    if (!run.selected.empty()) run.selected.back() = true;
}

void check_entries(const LintRun& run, Reporter& reporter) {
    const std::vector<EntryHead>& heads = run.document.entries;
    std::optional<EntryBrief> previous;
    for (std::size_t i = 0; i < heads.size(); ++i) {
        const bool needed_by_next = i + 1 < heads.size() && run.selected[i + 1];
        if (!run.selected[i] && !needed_by_next) continue;
        const Entry entry = parse_entry(heads[i]);
        if (run.selected[i]) {
            const EntryFacts facts{run, entry, previous ? &*previous : nullptr, i + 1 == heads.size(),
                                   verdict_of(entry)};
            reporter.set_iteration(&entry.head);
            for (const Rule& rule : rules()) {
                if (rule.on_entry != nullptr && reporter.enter(rule)) rule.on_entry(facts, reporter);
            }
        }
        EntryBrief brief = brief_of(entry);
        if (!brief.date && previous) {
            brief.date = previous->date;
            brief.dated_iteration = previous->dated_iteration;
        }
        previous = std::move(brief);
    }
    reporter.set_iteration(nullptr);
}

void check_experiments(const LintRun& run, Reporter& reporter) {
    for (std::size_t i = 0; i < run.experiments.size(); ++i) {
        if (!run.selected[i]) continue;
        const ExperimentFacts facts{run, run.experiments, i};
        for (const Rule& rule : rules()) {
            if (rule.on_experiment != nullptr && reporter.enter(rule)) rule.on_experiment(facts, reporter);
        }
    }
}

std::optional<Severity> parse_severity(std::string_view name) {
    for (const Severity s : {Severity::off, Severity::note, Severity::warning, Severity::error}) {
        if (name == name_of(s)) return s;
    }
    return std::nullopt;
}

std::string suggestion(std::string_view word, const std::vector<std::string>& candidates) {
    const auto nearest = text::nearest(word, candidates);
    return nearest ? fmt::format("did you mean `{}`?", *nearest) : std::string();
}

}  // namespace

const char* name_of(Severity severity) {
    switch (severity) {
        case Severity::off: return "off";
        case Severity::note: return "note";
        case Severity::warning: return "warning";
        case Severity::error: return "error";
    }
    return "off";
}

bool LintRun::may_be_cut_off() const {
    CommitFacts* history = facts();
    if (history == nullptr) return false;
    if (!m_shallow) m_shallow = history->is_shallow().value_or(true);
    return *m_shallow;
}

const RecordFacts* LintRun::record_of(const EntryHead& head) const {
    if (input.records == nullptr || input.records->empty()) return nullptr;
    if (m_records.empty()) {
        for (const RecordFacts& record : *input.records) {
            m_records[std::to_string(record.number) + record.suffix] = &record;
        }
    }
    const auto found = m_records.find(iteration_text(head));
    return found == m_records.end() ? nullptr : found->second;
}

std::string iteration_text(const EntryHead& head) { return std::to_string(head.number) + std::string(head.suffix); }

std::string five_digits(double value) {
    const double size = std::abs(value);
    if (!(size >= 1e5 && size < 1e15)) return fmt::format("{:.5g}", value);
    const double step = std::pow(10.0, std::floor(std::log10(size)) - 4);
    return fmt::format("{:.0f}", std::round(value / step) * step);
}

std::string shown_value(std::string_view key, double value) {
    if (key.starts_with("gap_explained_by_")) return five_digits(value * 100) + "%";
    if (key == "throughput/mfu") return five_digits(value) + "%";
    if (key == "throughput/duration") return five_digits(value) + " s";
    if (key == "throughput/tokens_per_second") return five_digits(value) + " tokens/s";
    return five_digits(value) + (key.ends_with("_ms") ? " ms" : "");
}

Where at(const Field& field) { return {{field.line, field.number}, ink_of(field.line)}; }
Where value_of(const Field& field) {
    return {{field.line, field.number}, field.value.empty() ? ink_of(field.line) : field.value};
}
Where at(const Reading& reading) { return {{reading.line, reading.number}, reading.value}; }
Where heading_of(const Entry& entry) { return {{entry.head.heading, entry.head.line}}; }

std::span<const Reading> readings_of_line(const Entry& entry, std::uint32_t line) {
    const auto first = std::lower_bound(entry.readings.begin(), entry.readings.end(), line,
                                        [](const Reading& r, std::uint32_t n) { return r.number < n; });
    const auto last = std::find_if(first, entry.readings.end(), [&](const Reading& r) { return r.number != line; });
    return {first, last};
}

bool has_content(const Field* field) {
    if (field == nullptr) return false;
    const bool masked = field->value.find("***") != std::string_view::npos;  // a secret that --fix-unsafe masked
    return masked || !strip_marks(field->value).empty() || has_text(field->body);
}

bool Reporter::enter(const Rule& rule) {
    m_rule = &lint_rules()[static_cast<std::size_t>(&rule - rules().data())];
    m_severity = m_rule->severity;
    m_explicit = false;
    for (const auto& [id, severity] : m_run.options.severities) {
        if (id != m_rule->id) continue;
        m_severity = severity;
        m_explicit = true;
    }
    return m_severity != Severity::off;
}

void Reporter::set_iteration(const EntryHead* head) {
    m_iteration = head == nullptr ? std::string() : iteration_text(*head);
}

void Reporter::add(const Where& where, const std::string& message, std::optional<Fix> fix, Severity at_most) {
    Severity severity = std::min(m_severity, at_most);
    if (severity == Severity::warning && m_run.options.strict && !m_explicit) severity = Severity::error;
    ++m_report.counts[static_cast<std::size_t>(severity)];
    if (m_kept[m_rule] == k_max_findings_per_rule) {
        ++m_report.left_out;
        return;
    }
    ++m_kept[m_rule];
    const std::string_view part = where.part.data() == nullptr ? ink_of(where.line.text) : where.part;
    Finding finding;
    finding.rule = m_rule;
    finding.severity = severity;
    finding.line = finding.end_line = std::max<std::uint32_t>(where.line.number, 1);
    const auto before = static_cast<std::size_t>(part.data() - where.line.text.data());
    finding.column = 1 + (part.empty() ? 0 : code_points(where.line.text.substr(0, before)));
    finding.end_column = finding.column + code_points(part);
    finding.iteration = m_iteration;
    finding.message = text::visible(redact(message));
    finding.fix = std::move(fix);
    finding.source = where.line.text;
    m_report.findings.push_back(std::move(finding));
}

void for_each_region(const LintRun& run, const std::function<void(const Region&)>& visit) {
    const std::string_view text = run.document.text;
    std::uint32_t line = 1;
    const char* done = text.data();
    const auto gap = [&](const char* until) {
        const std::string_view between(done, static_cast<std::size_t>(until - done));
        if (run.whole_file() && !between.empty()) visit({between, line, false, {}, {}});
    };
    const auto entry = [&](std::string_view part, Line heading, std::string iteration, bool selected) {
        gap(part.data());
        if (selected) visit({part, heading.number, true, std::move(iteration), heading});
        done = part.data() + part.size();
    };
    if (run.document.kind == Template::experiment) {
        for (std::size_t i = 0; i < run.experiments.size(); ++i) {
            const ExperimentEntry& e = run.experiments[i];
            entry(e.text, e.heading, {}, run.selected[i]);
            line = i + 1 < run.experiments.size() ? run.experiments[i + 1].heading.number : line;
        }
    } else {
        for (std::size_t i = 0; i < run.document.entries.size(); ++i) {
            const EntryHead& head = run.document.entries[i];
            entry(head.text, {head.heading, head.line}, iteration_text(head), run.selected[i]);
            line = head.line + head.line_count;
        }
    }
    gap(text.data() + text.size());
}

LintReport lint(const LintInput& input, const LintOptions& options) {
    LintReport report;
    LintRun run(input, options);
    const bool experiment = input.document->kind == Template::experiment;
    if (experiment) run.experiments = parse_experiments(*input.document);
    select(run);
    report.entries = experiment ? run.experiments.size() : input.document->entries.size();
    report.checked = static_cast<std::size_t>(std::count(run.selected.begin(), run.selected.end(), true));

    Reporter reporter(report, run);
    for (const Rule& rule : rules()) {
        if (rule.on_document != nullptr && reporter.enter(rule)) {
            reporter.set_iteration(nullptr);
            rule.on_document(run, reporter);
        }
    }
    reporter.set_iteration(nullptr);
    if (experiment) {
        check_experiments(run, reporter);
    } else {
        check_entries(run, reporter);
    }
    std::stable_sort(report.findings.begin(), report.findings.end(), [](const Finding& a, const Finding& b) {
        return a.line != b.line ? a.line < b.line : a.rule->id < b.rule->id;
    });
    return report;
}

Status add_rule_option(LintOptions& options, std::string_view text) {
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) {
        return fail(ErrorKind::usage, fmt::format("`{}` is not a rule setting", text),
                    "write ID=off|note|warning|error");
    }
    const std::string_view id = text::trim(text.substr(0, equals));
    const std::string_view value = text::trim(text.substr(equals + 1));
    const RuleInfo* rule = find_lint_rule(id);
    if (rule == nullptr) {
        std::vector<std::string> ids;
        for (const RuleInfo& info : lint_rules()) {
            ids.emplace_back(info.id);
            ids.emplace_back(info.name);
        }
        std::string hint = suggestion(id, ids);
        if (hint.empty()) hint = "docs/reference/lint-rules.md lists the rules";
        return fail(ErrorKind::usage, fmt::format("unknown rule `{}`", id), std::move(hint));
    }
    const auto severity = parse_severity(value);
    if (!severity) {
        std::string hint = suggestion(value, {"off", "note", "warning", "error"});
        if (hint.empty()) hint = "one of off, note, warning, error";
        return fail(ErrorKind::usage, fmt::format("unknown severity `{}` for rule {}", value, rule->id),
                    std::move(hint));
    }
    options.severities.emplace_back(rule->id, *severity);
    return {};
}

Status add_rules_file(LintOptions& options, std::string_view content, std::string_view name) {
    LineCursor cursor(content);
    Line line;
    while (cursor.next(line)) {
        const std::string_view text = text::trim(line.text.substr(0, line.text.find('#')));
        if (text.empty()) continue;
        const std::size_t equals = text.find('=');
        const std::string_view key = text::trim(text.substr(0, equals));
        const std::string_view value =
            equals == std::string_view::npos ? std::string_view{} : text::trim(text.substr(equals + 1));
        const std::string where = fmt::format("{}:{}", name, line.number);
        if (key == "change-class" && !value.empty()) {
            options.change_classes.emplace_back(value);
        } else if (key == "window-points") {
            const auto points = text::parse_int(value);
            if (!points || *points < 1) {
                return fail(ErrorKind::usage, fmt::format("{}: `{}` is not a number of points", where, value));
            }
            options.window_points_min = *points;
        } else if (auto added = add_rule_option(options, text); !added) {
            return tl::unexpected(std::move(added).error().within(where));
        }
    }
    return {};
}

FixResult apply_fixes(std::string_view bytes, std::span<const Finding> findings, bool unsafe) {
    std::vector<const Finding*> chosen;
    for (const Finding& finding : findings) {
        if (finding.fix && (finding.fix->safe || unsafe)) chosen.push_back(&finding);
    }
    // All edits of a finding are applied together, or in the next round if one overlaps another finding's edit.
    std::vector<Edit> edits;
    std::map<std::size_t, std::size_t> taken;  // start of the bytes of each edit -> their end
    FixResult result;
    for (const Finding* finding : chosen) {
        const auto overlaps = [&](const Edit& edit) {
            const auto after = taken.lower_bound(edit.offset + edit.length);
            return after != taken.begin() && std::prev(after)->second > edit.offset;
        };
        const auto& wanted = finding->fix->edits;
        if (std::any_of(wanted.begin(), wanted.end(), overlaps)) continue;
        for (const Edit& edit : wanted) {
            edits.push_back(edit);
            std::size_t& end = taken[edit.offset];
            end = std::max(end, edit.offset + edit.length);
        }
        ++result.fixed;
    }
    std::stable_sort(edits.begin(), edits.end(), [](const Edit& a, const Edit& b) { return a.offset < b.offset; });
    std::size_t copied = 0;
    for (const Edit& edit : edits) {
        if (edit.offset < copied) continue;  // a fix whose own edits overlap
        result.bytes += bytes.substr(copied, edit.offset - copied);
        result.bytes += edit.text;
        copied = edit.offset + edit.length;
    }
    result.bytes += bytes.substr(copied);
    return result;
}

std::span<const Rule> rules() {
    static const std::vector<Rule> k_rules = [] {
        std::vector<Rule> all;
        for (const auto family :
             {commit_rules(), document_rules(), field_rules(), number_rules(), evidence_rules(), record_rules()}) {
            all.insert(all.end(), family.begin(), family.end());
        }
        std::ranges::sort(all, {}, [](const Rule& rule) { return rule.info.id; });
        return all;
    }();
    return k_rules;
}

std::span<const RuleInfo> lint_rules() {
    static const std::vector<RuleInfo> k_infos = [] {
        std::vector<RuleInfo> infos;
        for (const Rule& rule : rules()) infos.push_back(rule.info);
        return infos;
    }();
    return k_infos;
}

const RuleInfo* find_lint_rule(std::string_view id) {
    for (const RuleInfo& info : lint_rules()) {
        if (info.id == id || info.name == id) return &info;
    }
    return nullptr;
}

}  // namespace gdnctl::runlog
