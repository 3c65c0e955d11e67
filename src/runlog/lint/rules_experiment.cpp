// The rules of experiment logs (L102, L301, L302 there, L801-L803).
#include <map>

#include <fmt/format.h>

#include "core/text.h"
#include "core/time.h"
#include "runlog/lint/rules.h"
#include "runlog/parse/detail.h"

namespace gdnctl::runlog::rule {

namespace {

// The first word such as 22.4212 or speedup=28.5 in an outcome; empty: none.
std::string_view claimed_score(std::string_view text) {
    for (std::size_t at = text.find('.'); at != std::string_view::npos; at = text.find('.', at + 1)) {
        std::size_t begin = at, end = at + 1;
        while (begin > 0 && detail::is_digit(text[begin - 1])) --begin;
        while (end < text.size() && detail::is_digit(text[end])) ++end;
        const bool bounded = (begin == 0 || !(detail::is_word(text[begin - 1]) || text[begin - 1] == '.')) &&
                             (end == text.size() || !(detail::is_word(text[end]) || text[end] == '.'));
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
                letter = letter || detail::is_alpha(c);
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

}  // namespace

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

}  // namespace gdnctl::runlog::rule
