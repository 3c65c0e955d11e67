#include "loop/measure/oracle_finding.h"

#include <fmt/format.h>

#include "core/text.h"
#include "loop/measure/first_case.h"
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

void OracleFindingReader::line(std::string_view text) {
    if (const auto item = parse_oracle_item(text)) {
        m_field = nullptr;
        m_first = false;
        const bool good = item->verdict == "OK" || text.find(" as expected") != std::string_view::npos;
        if (good) return;
        if (m_finding.found()) {
            ++m_finding.others;
            return;
        }
        m_finding.item = item_of(text);
        m_finding.verdict = item->verdict;
        keep(text);
        m_first = true;
        return;
    }
    if (!m_first) return;
    const std::size_t indent = text.find_first_not_of(' ');
    if (indent == std::string_view::npos || indent < k_detail_indent) {
        m_first = false;
        return;
    }
    keep(text);
    const std::string_view words = text::trim(text);
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

}  // namespace gdnctl::loop
