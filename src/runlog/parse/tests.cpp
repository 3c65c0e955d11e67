// What a line says about a test run: counts and a verdict.
#include <algorithm>
#include <array>
#include <utility>

#include "core/text.h"
#include "runlog/parse/detail.h"
#include "runlog/parse/log.h"

namespace gdnctl::runlog {

namespace {

// The verdict, if it is the line's whole value: "OK", "verdict: WRONG", "FAILED (exit 1)", "`run` -> `OK`".
std::string_view read_verdict(std::string_view line) {
    constexpr std::array<std::string_view, 7> words = {"OK",     "WRONG", "SUSPECT",       "NO_DATA",
                                                       "FAILED", "FAIL",  "UNSTABLE_INPUT"};
    constexpr std::string_view name = "verdict";
    std::string_view value = line;
    if (const auto bullet = detail::match_bullet(line)) value = bullet->content;
    if (const auto labelled = detail::split_label(value)) value = labelled->value;
    if (const std::size_t arrow = value.rfind("->"); arrow != std::string_view::npos) value.remove_prefix(arrow + 2);
    value = strip_marks(value);
    if (text::to_lower(value.substr(0, name.size())) == name) {
        value = value.substr(std::min(value.find_first_not_of(":= `*", name.size()), value.size()));
    }
    const auto end = static_cast<std::size_t>(
        std::find_if_not(value.begin(), value.end(), [](char c) { return detail::is_word(c); }) - value.begin());
    const std::string_view word = value.substr(0, end);
    if (std::find(words.begin(), words.end(), word) == words.end()) return {};
    const std::string_view rest = strip_marks(value.substr(end));
    return rest.empty() || std::string_view(".,;(").find(rest[0]) != std::string_view::npos ? word : std::string_view();
}

}  // namespace

TestCounts read_test_counts(std::string_view line) {
    TestCounts counts;
    counts.line = line;
    const std::array<std::pair<std::string_view, std::optional<std::int64_t>*>, 11> words = {
        {{"passed", &counts.passed},
         {"failed", &counts.failed},
         {"errors", &counts.errors},
         {"error", &counts.errors},
         {"skipped", &counts.skipped},
         {"deselected", &counts.deselected},
         {"xfailed", &counts.xfailed},
         {"xpassed", &counts.xpassed},
         {"warnings", &counts.warnings},
         {"warning", &counts.warnings},
         {"rerun", &counts.rerun}}};
    for (std::size_t at = 0; at < line.size();) {
        if (!detail::is_digit(line[at]) || (at > 0 && (detail::is_word(line[at - 1]) || line[at - 1] == '.'))) {
            ++at;
            continue;
        }
        const std::size_t begin = at;
        while (at < line.size() && detail::is_digit(line[at])) ++at;
        if (at - begin > 18 || at >= line.size() || line[at] != ' ') continue;
        const std::string_view rest = line.substr(at + 1);
        for (const auto& [word, slot] : words) {
            if (!rest.starts_with(word) || (rest.size() > word.size() && detail::is_word(rest[word.size()]))) continue;
            const std::int64_t n = text::parse_int(detail::strip_zeros(line.substr(begin, at - begin))).value_or(0);
            if (!slot->has_value()) *slot = n;
            break;
        }
    }
    counts.verdict = read_verdict(line);
    return counts;
}

}  // namespace gdnctl::runlog
