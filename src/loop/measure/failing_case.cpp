#include "loop/measure/failing_case.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/text.h"
#include "services/job/output.h"

namespace gdnctl::loop {

namespace {

constexpr std::size_t k_detail_indent = 7;
constexpr std::size_t k_longest_detail = 400;

// The first two words: kind and name.
std::string item_of(std::string_view line) {
    line = text::trim(line);
    const std::size_t kind = line.find(' ');
    const std::string_view rest = text::trim(line.substr(kind));
    return fmt::format("{} {}", line.substr(0, kind), rest.substr(0, rest.find(' ')));
}

constexpr std::size_t k_longest_line = 200;
constexpr std::size_t k_most_asserted = 3;
constexpr std::string_view k_name_characters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.";

using Lines = std::vector<std::string_view>;

std::string cut(std::string_view line) {
    while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.remove_suffix(1);
    if (line.size() <= k_longest_line) return text::visible(text::repair_utf8(line));
    return text::visible(text::repair_utf8(line.substr(0, k_longest_line))) + "…";
}

std::vector<std::string> of_oracle(const Lines& lines) {
    OracleFindingReader reader;
    for (const auto line : lines) reader.line(line);
    return reader.finding().lines;
}

// "____ test_forward[128] ____" -> "test_forward[128]"; empty: not such a line.
std::string_view test_of(std::string_view line) {
    if (!line.starts_with("___") || !line.ends_with("___")) return {};
    line = line.substr(std::min(line.find_first_not_of('_'), line.size()));
    line = text::trim(line.substr(0, line.find_last_not_of('_') + 1));
    return line;
}

// "tests/test_gdn.py:12: AssertionError"
bool is_place(std::string_view line) {
    const std::size_t colon = line.find(".py:");
    if (colon == std::string_view::npos || line.find(' ') < colon) return false;
    const std::string_view rest = line.substr(colon + 4);
    return text::parse_int(rest.substr(0, rest.find(':'))).has_value();
}

std::vector<std::string> of_pytest(const Lines& lines) {
    std::vector<std::string> out;
    const auto first = std::find_if(lines.begin(), lines.end(), [](auto line) { return !test_of(line).empty(); });
    std::size_t asserted = 0;
    bool place = false, called = false;
    for (auto at = first; at != lines.end(); ++at) {
        if (at == first) {
            out.push_back(cut(test_of(*at)));
        } else if (at->starts_with("====") || at->starts_with("----") || !test_of(*at).empty()) {
            break;
        } else if (at->starts_with(">") && !called) {
            called = true;
            out.push_back(cut(*at));
        } else if (at->starts_with("E ") && asserted < k_most_asserted) {
            ++asserted;
            out.push_back(cut(*at));
        } else if (is_place(*at) && asserted > 0 && !place) {
            place = true;
            out.push_back(cut(*at));
        }
    }
    if (!out.empty()) return out;
    const auto summary =
        std::find_if(lines.begin(), lines.end(), [](auto line) { return line.starts_with("FAILED "); });
    if (summary != lines.end()) out.push_back(cut(*summary));
    return out;
}

std::vector<std::string> some_from(const Lines& lines, Lines::const_iterator at) {
    std::vector<std::string> out;
    for (; at != lines.end() && out.size() < k_case_lines; ++at) {
        if (!text::trim(*at).empty()) out.push_back(cut(*at));
    }
    return out;
}

std::vector<std::string> of_compiler(const Lines& lines) {
    const auto error = std::find_if(lines.begin(), lines.end(), [](std::string_view line) {
        const std::size_t at = line.find(": error: ");
        return at != std::string_view::npos || line.find(": fatal error: ") != std::string_view::npos;
    });
    return error == lines.end() ? std::vector<std::string>() : some_from(lines, error);
}

// The exception, and the frames closest to it.
std::vector<std::string> of_python(const Lines& lines) {
    const auto begin = std::find_if(lines.rbegin(), lines.rend(),
                                    [](auto line) { return line.starts_with("Traceback (most recent call last)"); });
    if (begin == lines.rend()) return {};
    std::vector<std::string> frames;
    for (auto at = begin.base(); at != lines.end(); ++at) {
        frames.push_back(cut(*at));
        if (!at->empty() && at->front() != ' ') break;
    }
    if (frames.size() > k_case_lines) frames.erase(frames.begin(), frames.end() - k_case_lines);
    return frames;
}

// How other test runners report a failed test. ctest does it at the end of a line.
bool is_failed_test(std::string_view line) {
    for (const std::string_view begin : {"--- FAIL", "not ok ", "[  FAILED  ] "}) {
        if (line.starts_with(begin)) return true;
    }
    // unittest: "FAIL: test_a (tests.Shapes.test_a)"
    if ((line.starts_with("FAIL: ") || line.starts_with("ERROR: ")) && line.ends_with(")")) return true;
    if (line.starts_with("test ") && line.ends_with(" ... FAILED")) return true;  // Rust
    return line.find("***Failed") != std::string_view::npos || line.find("***Exception") != std::string_view::npos ||
           line.find("***Timeout") != std::string_view::npos || line.find("***Not Run") != std::string_view::npos;
}

std::vector<std::string> of_runners(const Lines& lines) {
    const auto test = std::find_if(lines.begin(), lines.end(), [](auto line) {
        return is_failed_test(text::trim(line.substr(0, k_longest_line * 2)));
    });
    return test == lines.end() ? std::vector<std::string>() : some_from(lines, test);
}

// "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: ..." without the traceback.
std::vector<std::string> of_exception(const Lines& lines) {
    const auto is_raised = [](std::string_view line) {
        const std::string_view name = line.substr(0, line.find_first_not_of(k_name_characters));
        const bool known = name.ends_with("Error") || name.ends_with("Exception");
        return known && line.substr(name.size()).starts_with(": ");
    };
    const auto raised = std::find_if(lines.begin(), lines.end(), is_raised);
    return raised == lines.end() ? std::vector<std::string>() : some_from(lines, raised);
}

std::vector<std::string> last_of_all(const Lines& lines) {
    std::vector<std::string> out;
    for (auto at = lines.rbegin(); at != lines.rend() && out.size() < k_case_lines; ++at) {
        if (!text::trim(*at).empty()) out.push_back(cut(*at));
    }
    std::reverse(out.begin(), out.end());
    return out;
}

}  // namespace

std::string OracleFinding::sign() const {
    if (!found()) return {};
    return fmt::format("{}: {}{}{}", item, verdict, stage.empty() ? "" : ", stage ", stage.substr(0, stage.find(';')));
}

std::string OracleFinding::text() const {
    if (!found()) return {};
    std::string out = sign();
    if (!where.empty()) out += ", " + where;
    if (others > 0) out += fmt::format(", and {} other{}", others, others == 1 ? "" : "s");
    return out;
}

void OracleFindingReader::keep(std::string_view text) {
    if (m_finding.lines.size() >= k_case_lines) return;
    m_finding.lines.push_back(text::visible(text::repair_utf8(text.substr(0, k_longest_detail))));
}

void OracleFindingReader::count(std::string item) {
    constexpr std::size_t k_most = 10'000;
    if (m_counted.size() >= k_most) return;
    m_counted.insert(std::move(item));
    m_finding.others = static_cast<std::int64_t>(m_counted.size()) - 1;
}

// "3 others: gva_4, varlen, backward gva_4", of the kind of the item above where none is named.
void OracleFindingReader::count_others(std::string_view names) {
    const std::size_t colon = names.find(": ");
    if (colon == std::string_view::npos) return;
    for (const auto part : text::split(names.substr(colon + 2), ',')) {
        const std::string_view name = text::trim(part);
        const bool kind = name.starts_with("case ") || name.starts_with("vector ");
        if (!kind && name.find(' ') != std::string_view::npos) continue;
        count(kind ? std::string(name) : m_kind + " " + std::string(name));
    }
}

void OracleFindingReader::line(std::string_view text) {
    if (const auto item = parse_oracle_item(text)) {
        m_field = nullptr;
        m_first = false;
        m_kind = item->vector ? "vector" : "case";
        const bool good = item->verdict == "OK" || text.find(" as expected") != std::string_view::npos;
        if (good) return;
        // With -v, an item has a line of its own before the one with its details.
        m_first = !m_finding.found() || m_finding.item == item_of(text);
        count(item_of(text));
        if (!m_first) return;
        m_finding.item = item_of(text);
        m_finding.verdict = item->verdict;
        m_finding.lines.clear();
        keep(text);
        return;
    }
    const std::size_t indent = text.find_first_not_of(' ');
    if (indent == std::string_view::npos || indent < k_detail_indent) {
        m_first = false;
        m_kind.clear();
        return;
    }
    const std::string_view words = text::trim(text);
    if (!m_kind.empty() && words.starts_with("and ") && words.find(" other") != std::string_view::npos) {
        count_others(words);
        return;
    }
    if (!m_first) return;
    keep(text);
    if (indent > k_detail_indent) {
        if (m_field != nullptr && m_field->size() < k_longest_detail) *m_field += " " + std::string(words);
        return;
    }
    m_field = nullptr;
    const std::size_t colon = words.find(": ");
    if (colon == std::string_view::npos) return;
    const std::string_view key = words.substr(0, colon);
    m_field = key == "stage"               ? &m_finding.stage
              : key == "where"             ? &m_finding.where
              : key == "first wrong token" ? &m_finding.token
                                           : nullptr;
    if (m_field != nullptr) *m_field = words.substr(colon + 2);
}

Json oracle_record(std::string_view line, const OracleFinding& finding) {
    constexpr std::size_t k_most_groups = 12;
    const auto verdict = line.empty() ? Result<Json>(Json()) : parse_json(line, "the oracle's verdict");
    if (!verdict || json::text(*verdict, "schema") != "gdnctl.oracle-verify/1") return nullptr;
    Json record = Json::object();
    for (const char* field : {"op", "kernel", "verdict", "environment"}) {
        const Json* found = json::find(*verdict, field);
        record[field] = found != nullptr ? *found : Json(nullptr);
    }
    const Json* groups = json::find(*verdict, "groups");
    record["groups"] = Json::array();
    for (std::size_t i = 0; groups != nullptr && groups->is_array() && i < groups->size(); ++i) {
        if (i < k_most_groups) record["groups"].push_back((*groups)[i]);
    }
    const std::size_t all = groups != nullptr ? groups->size() : 0;
    record["more_groups"] = all - record["groups"].size();
    record["where"] = json::or_null(finding.where);
    record["first_wrong_token"] = json::or_null(finding.token);
    return record;
}

bool oracle_ran(std::string_view verdict) {
    return !verdict.empty() && verdict != "NO_ENTRY_POINT" && verdict != "BUILD_FAILED";
}

FailingCase first_failing_case(std::string_view log) {
    const Lines lines = text::split(log, '\n');
    for (const auto find : {of_oracle, of_pytest, of_runners, of_compiler, of_python, of_exception}) {
        if (auto found = find(lines); !found.empty()) return {std::move(found), true};
    }
    return {last_of_all(lines), false};
}

std::string failing_case_text(std::string_view what, const FailingCase& shown, std::string_view path) {
    if (shown.lines.empty()) return fmt::format("{}; it printed nothing: {}", what, path);
    std::string out = fmt::format("{}; the {}:\n", what, shown.found ? "first failing case" : "last lines");
    for (const std::string& line : shown.lines) out += "  " + line + "\n";
    return out + fmt::format("all of it: {}", path);
}

}  // namespace gdnctl::loop
