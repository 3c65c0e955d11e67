// L003, L004, L101, L107: the order of entries and the lines that delimit them.
#include <unordered_map>

#include <fmt/format.h>

#include "core/text.h"
#include "runlog/lint/rules.h"
#include "runlog/parse/detail.h"
#include "runlog/records/record.h"

namespace gdnctl::runlog::rule {

namespace {

IterationNumber number_of(const EntryHead& head) { return {head.number, std::string(head.suffix)}; }

// Why `next` must not follow `previous`; empty: it may.
std::string_view order_fault(const EntryHead& previous, const EntryHead& next) {
    if (next.number < previous.number) return "iteration number decreased";
    if (next.number > previous.number) return {};
    if (previous.suffix.empty() && next.suffix.empty()) return "duplicate iteration number";
    if (next.suffix.empty()) return "sub-iteration returned to base number";
    if (!number_of(previous).before(number_of(next))) return "sub-iteration suffix is not increasing";
    return {};
}

// Where a single closing fence would make later entries visible again: before the first hidden entry heading.
const char* obvious_fence_end(std::string_view rest) {
    LineCursor cursor(rest);
    Line line;
    const char* blank_run = nullptr;
    while (cursor.next(line)) {
        const bool blank = text::trim(line.text).empty();
        if (detail::match_heading(line)) return blank_run != nullptr ? blank_run : line.text.data();
        if (!blank) {
            blank_run = nullptr;
        } else if (blank_run == nullptr) {
            blank_run = line.text.data();
        }
    }
    return nullptr;
}

// "###  Iteration 12 – Title" -> "### Iteration 12 - Title"; empty: there is no simple fix.
std::string mended_heading(std::string_view line) {
    std::string_view rest = text::trim(line.substr(3));
    constexpr std::size_t word = std::string_view("iteration").size();
    rest = text::trim(rest.substr(std::min(word, rest.size())));
    const std::string candidate = "### Iteration " + std::string(rest);
    const auto head = detail::match_heading({candidate, 1});
    if (!head) return {};
    std::string mended = "### Iteration " + candidate.substr(14, candidate.find_first_of(" \t:", 14) - 14);
    if (!head->title.empty()) mended += " - " + std::string(head->title);
    const auto again = detail::match_heading({mended, 1});
    return again && again->number == head->number && again->suffix == head->suffix ? mended : std::string();
}

}  // namespace

void sequence(const LintRun& run, Reporter& reporter) {
    if (run.options.allow_non_monotonic) return;
    std::unordered_map<std::string, const EntryHead*> seen;
    const EntryHead* previous = nullptr;
    for (const EntryHead& head : run.document.entries) {
        const std::string name = text::to_lower(iteration_text(head));
        const auto [first, fresh] = seen.emplace(name, &head);
        const EntryHead* against = previous;
        std::string_view fault = previous == nullptr ? std::string_view{} : order_fault(*previous, head);
        if (fault.empty() && !fresh) {
            fault = "duplicate iteration number";
            against = first->second;
        }
        if (!fault.empty()) {
            reporter.set_iteration(&head);
            reporter.add({{head.heading, head.line}},
                         fmt::format("{}: line {} `{}` -> line {} `{}`", fault, against->line, against->heading,
                                     head.line, head.heading));
        }
        previous = &head;
    }
}

void no_entries(const LintRun& run, Reporter& reporter) {
    const bool none =
        run.document.kind == Template::experiment ? run.experiments.empty() : run.document.entries.empty();
    if (none) reporter.add({{run.document.text.substr(0, 0), 1}}, "the log has no entries");
}

void malformed_heading(const LintRun& run, Reporter& reporter) {
    const std::uint32_t first = run.whole_file() || run.document.entries.empty() ? 0 : run.document.entries.back().line;
    for (const Line& line : run.document.malformed_headings) {
        if (line.number < first) continue;
        std::optional<Fix> fix;
        if (std::string mended = mended_heading(line.text); !mended.empty()) {
            fix = reporter.safe(line.text, std::move(mended));
        }
        reporter.add({line}, "a heading that looks like an entry but is not one; write `### Iteration 12 - title`",
                     std::move(fix));
    }
}

void heading_dash(const EntryFacts& facts, Reporter& reporter) {
    const EntryHead& head = facts.entry.head;
    for (const std::string_view dash : {"\xE2\x80\x93", "\xE2\x80\x94"}) {
        const std::size_t found = head.heading.find(dash);
        const std::size_t title = head.title.empty()
                                      ? head.heading.size()
                                      : static_cast<std::size_t>(head.title.data() - head.heading.data());
        if (found == std::string_view::npos || found >= title) continue;
        const std::string_view part = head.heading.substr(found, dash.size());
        reporter.add({{head.heading, head.line}, part}, "the separator between number and title is ` - `",
                     reporter.safe(part, "-"));
        return;
    }
}

void unclosed_block(const LintRun& run, Reporter& reporter) {
    if (!run.document.unclosed) return;
    const auto& [fence, what] = *run.document.unclosed;
    const bool in_entry = !run.document.entries.empty() && fence.number > run.document.entries.back().line;
    if (in_entry) reporter.set_iteration(&run.document.entries.back());
    std::optional<Fix> fix;
    const char* begin = fence.text.data() + fence.text.size();
    const char* end = run.document.text.data() + run.document.text.size();
    if (const char* place = obvious_fence_end({begin, static_cast<std::size_t>(end - begin)});
        in_entry && place != nullptr && what == "code fence") {  // a comment was meant to hide what follows
        const std::size_t indent = fence.text.find_first_of("`~");
        const std::size_t length = fence.text.find_first_not_of(fence.text[indent], indent);
        const std::string closing(fence.text.substr(0, length));
        const auto offset = static_cast<std::size_t>(place - run.document.bytes.data());
        fix = Fix{true, {{offset, 0, closing + std::string(run.document.newline())}}};
    }
    reporter.add({fence}, fmt::format("the {} is never closed and hides everything after it", what), std::move(fix));
}

}  // namespace gdnctl::runlog::rule
