// L605, L606, L701: generated parts, and what an entry repeats of earlier records; also reads the facts that rules need
// from a records file.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "core/json.h"
#include "runlog/lint/lint.h"
#include "runlog/lint/rules.h"
#include "runlog/parse/block.h"
#include "runlog/records/gain.h"
#include "runlog/records/record.h"
#include "runlog/records/store.h"

namespace gdnctl::runlog {

namespace {

RecordFacts facts_of(const Json& record) {
    RecordFacts facts;
    facts.id = id_of(record);
    const IterationNumber iteration = iteration_of(record);
    facts.number = iteration.number;
    facts.suffix = iteration.suffix;
    facts.outcome = json::text(record, "outcome");
    facts.move = json::text_at(record, "/idea/move");
    facts.files = json::texts(record, "files");
    const std::string decision = json::text(record, "decision");
    facts.champion = decision == "promoted" || decision == "baseline" || decision == "promote_corrupt_champion";
    if (const Json* fingerprint = json::find_at(record, "/base/fingerprint")) facts.fingerprint = to_text(*fingerprint);
    if (const Json* metrics = json::object(record, "metrics")) {
        for (const auto& [key, value] : metrics->items()) {
            facts.metrics.push_back({key, json::number(value, "before"), json::number(value, "after")});
        }
    }
    facts.measured_anew = json::integer_at(record, "/gain/pairs").value_or(0) > 0;
    facts.gain_fault = gain_fault(record);
    return facts;
}

// L605, L606, L701: generated parts, and consistency with the records.

constexpr std::string_view k_trace_marker = "<!-- gdnctl.trace/1 sha256:";

// Whether the entry in a generated block is to be checked.
bool in_scope(const LintRun& run, const GeneratedBlock& block) {
    const std::vector<EntryHead>& heads = run.document.entries;
    const auto inside = std::lower_bound(heads.begin(), heads.end(), block.whole.data(),
                                         [](const EntryHead& h, const char* p) { return h.heading.data() < p; });
    if (inside == heads.end() || run.whole_file()) return run.whole_file();
    return run.selected[static_cast<std::size_t>(inside - heads.begin())];
}

void check_blocks(const LintRun& run, Reporter& reporter) {
    for (const GeneratedBlock& block : find_blocks(run.document.text)) {
        if (block.intact() || !in_scope(run, block)) continue;
        Line line;
        LineCursor(block.whole, block.line).next(line);
        reporter.add(
            {line},
            block.closed
                ? fmt::format("the generated part {} was edited by hand; restore it with `gdnctl log render`", block.id)
                : fmt::format("the generated part {} has no end marker", block.id));
    }
}

// Expects blocks in file order.
bool is_generated(const std::vector<GeneratedBlock>& blocks, const EntryHead& head) {
    const auto after = std::upper_bound(blocks.begin(), blocks.end(), head.heading.data(),
                                        [](const char* p, const GeneratedBlock& b) { return p < b.whole.data(); });
    if (after == blocks.begin()) return false;
    const std::string_view whole = std::prev(after)->whole;
    return head.heading.data() < whole.data() + whole.size();
}

// Records and entries must match one to one. Without a records file, only generated entries are reported, since each
// was rendered from a record.
void check_pairs(const LintRun& run, Reporter& reporter) {
    if (run.input.records == nullptr || run.document.kind == Template::experiment) return;
    const std::vector<GeneratedBlock> blocks = find_blocks(run.document.text);
    std::unordered_map<std::string, const EntryHead*> entries;
    for (std::size_t i = 0; i < run.document.entries.size(); ++i) {
        const EntryHead& head = run.document.entries[i];
        entries.emplace(iteration_text(head), &head);
        if (!run.selected[i] || run.record_of(head) != nullptr) continue;
        const bool generated = is_generated(blocks, head);
        if (!generated && !run.input.records_kept) continue;
        reporter.set_iteration(&head);
        reporter.add({{head.heading, head.line}}, generated
                                                      ? "the generated entry has no record; restore the records "
                                                        "file, or remove the markers and run `gdnctl log import`"
                                                      : "the entry has no record; `gdnctl log import` creates one");
    }
    reporter.set_iteration(nullptr);
    for (const RecordFacts& record : *run.input.records) {
        if (entries.contains(std::to_string(record.number) + record.suffix)) continue;
        reporter.add({{run.document.text.substr(0, 0), 1}},
                     fmt::format("the record {} has no entry; `gdnctl log render` writes it", record.id));
    }
}

bool is_failed(const RecordFacts& record) {
    return record.outcome != "accepted" && record.outcome != "infra" && record.outcome != "environment" &&
           !record.outcome.empty();
}

bool share_file(const RecordFacts& a, const RecordFacts& b) {
    return std::any_of(a.files.begin(), a.files.end(), [&](const std::string& file) {
        return std::find(b.files.begin(), b.files.end(), file) != b.files.end();
    });
}

// "#### Trace report": two to four `#`. The report's other headings belong to its text.
bool opens_trace(std::string_view line) {
    const std::size_t level = line.find_first_not_of('#');
    return level != std::string_view::npos && level >= 2 && level <= 4 && line.substr(level).starts_with(" Trace");
}

// A trace block begins at the nearest such heading above its marker; without one, the whole region is taken.
std::string_view trace_block(std::string_view text, std::size_t marker) {
    std::size_t begin = marker;
    while (begin > 0) {
        const std::size_t before = begin == 1 ? std::string_view::npos : text.rfind('\n', begin - 2);
        begin = before == std::string_view::npos ? 0 : before + 1;
        if (opens_trace(text.substr(begin, marker - begin))) break;
    }
    return text.substr(begin, marker - begin);
}

void edited_block(const LintRun& run, Reporter& reporter) {
    check_blocks(run, reporter);
    check_pairs(run, reporter);
}

void record_values(const EntryFacts& facts, Reporter& reporter) {
    const RecordFacts* record = facts.run.record_of(facts.entry.head);
    if (record == nullptr) return;
    for (const RecordFacts::Value& value : record->metrics) {
        const Metric* metric = facts.entry.metric(value.key);
        if (metric == nullptr || metric->derived) continue;
        const auto differs = [](std::optional<double> in_entry, std::optional<double> in_record, double half_digit) {
            if (!in_entry || !in_record) return false;
            return std::abs(*in_entry - *in_record) > half_digit + 1e-9 * std::abs(*in_record);
        };
        const bool before = differs(metric->before, value.before, metric->half_digit_before);
        const bool after = differs(metric->after, value.after, metric->half_digit_after);
        if (!before && !after) continue;
        for (const Reading& r : readings_of_line(facts.entry, metric->number)) {
            if (r.key != value.key) continue;
            const double recorded = after ? *value.after : *value.before;
            const double more = recorded - (after ? *metric->after : *metric->before);
            std::string message = fmt::format("{} is {} in the record", value.key, shown_value(value.key, recorded));
            if (shown_value(value.key, recorded) == shown_value(value.key, recorded - more)) {
                message += fmt::format(", {} {} than here", shown_value(value.key, std::abs(more)),
                                       more > 0 ? "more" : "less");
            }
            reporter.add(at(r), message);
            break;
        }
    }
}

void edited_trace_block(const LintRun& run, Reporter& reporter) {
    for_each_region(run, [&](const Region& region) {
        if (region.text.find(k_trace_marker) == std::string_view::npos) return;
        LineCursor cursor(region.text, region.first_line);
        BlockTracker tracker;
        Line line;
        while (cursor.next(line)) {
            if (tracker.inside(line.text) || !line.text.starts_with(k_trace_marker)) continue;
            std::string_view digest = line.text.substr(k_trace_marker.size());
            digest = digest.substr(0, digest.find_first_not_of("0123456789abcdefABCDEF"));
            const auto offset = static_cast<std::size_t>(line.text.data() - region.text.data());
            GeneratedBlock block;
            block.digest = digest;
            block.body = trace_block(region.text, offset);
            block.closed = true;
            if (block.intact()) continue;
            reporter.set_iteration(region.iteration);
            reporter.add({line}, "the trace report above was edited: its digest does not match");
        }
    });
}

void repeated_idea(const EntryFacts& facts, Reporter& reporter) {
    const RecordFacts* own = facts.run.record_of(facts.entry.head);
    if (own == nullptr || own->move.empty() || has_content(facts.entry.find("new argument"))) return;
    std::size_t failed = 0;
    for (const RecordFacts& record : *facts.run.input.records) {
        if (&record == own) break;
        if (record.move == own->move && is_failed(record) && share_file(record, *own)) ++failed;
    }
    if (failed < 2) return;
    reporter.add(heading_of(facts.entry), fmt::format("`{}` on these files failed {} times before; say in a field `New "
                                                      "argument` what is different now",
                                                      own->move, failed));
}

}  // namespace

Result<RecordFactsFile> read_record_facts(std::string_view jsonl, std::string_view name) {
    GDNCTL_TRY_ASSIGN(RecordLines lines, parse_records(jsonl, name));
    RecordFactsFile file;
    file.warnings = std::move(lines.warnings);
    for (const Json& record : current_records(lines.records)) {
        if (!is_experiment(record)) file.records.push_back(facts_of(record));
    }
    return file;
}

std::span<const Rule> record_rules() {
    using enum Severity;
    static constexpr std::array k_rules = {
        Rule{{"L605", "generated-part", warning, "a generated part was edited, or entries and records do not match",
              "Change the record and render it again."},
             &record_values,
             &edited_block,
             nullptr},
        on_document({"L606", "trace-block", warning, "an embedded trace report was edited",
                     "Paste the report again, from its heading to its last line."},
                    &edited_trace_block),
        on_entry({"L701", "repeated-idea", note, "the same idea failed twice before", "Say what is different now."},
                 &repeated_idea)};
    return k_rules;
}

}  // namespace gdnctl::runlog
