#include "runlog/parse/experiment.h"

#include "core/text.h"
#include "runlog/parse/detail.h"

namespace gdnctl::runlog {

namespace {

constexpr std::string_view k_numbered = "### Experiment ";

// `## 2026-02-13 - Name`
bool match_entry(const Line& line, ExperimentEntry& entry) {
    const std::string_view s = line.text;
    if (s.size() < 17 || !s.starts_with("## ") || !detail::is_date(s.substr(3, 10)) || s.substr(13, 3) != " - ") {
        return false;
    }
    entry.date = s.substr(3, 10);
    entry.name = text::trim(s.substr(16));
    entry.heading = line;
    return !entry.name.empty();
}

// `### Experiment 3 - Title`
bool match_numbered(const Line& line, NumberedExperiment& experiment) {
    if (!line.text.starts_with(k_numbered)) return false;
    const std::string_view rest = line.text.substr(k_numbered.size());
    std::size_t digits = 0;
    while (digits < rest.size() && detail::is_digit(rest[digits])) ++digits;
    if (digits == 0 || digits > 18) return false;
    experiment.number = text::parse_int(detail::strip_zeros(rest.substr(0, digits))).value_or(0);
    std::string_view title = text::trim(rest.substr(digits));
    if (title.starts_with("-")) title = text::trim(title.substr(1));
    experiment.title = title;
    experiment.heading = line;
    return true;
}

class Reader {
public:
    std::vector<ExperimentEntry> read(std::string_view text) {
        LineCursor cursor(text);
        BlockTracker tracker;
        Line line;
        while (cursor.next(line)) {
            if (tracker.inside(line.text)) continue;
            if (const std::string_view heading = tracker.underlined().first; !heading.empty()) close(heading.data());
            if (!line.text.starts_with('#')) continue;
            const std::size_t level = std::min(line.text.find_first_not_of('#'), line.text.size());
            if (level <= 2) {
                close(line.text.data());
                ExperimentEntry entry;
                m_open = match_entry(line, entry);
                m_open = m_open && m_entries.size() < k_max_entries;
                if (m_open) m_entries.push_back(std::move(entry));
            } else if (level == 3 && m_open) {
                add_part(line, cursor.rest().data());
            }
        }
        close(text.data() + text.size());
        return std::move(m_entries);
    }

private:
    static std::string_view span(const char* begin, const char* end) {
        return {begin, static_cast<std::size_t>(end - begin)};
    }

    void end_part(const char* end) {
        if (m_body == nullptr) return;
        ExperimentEntry& entry = m_entries.back();
        if (end < m_body) {  // `###x`, underlined: a heading of the document, not a part
            m_in_numbered ? entry.numbered.pop_back() : entry.sections.pop_back();
        } else {
            (m_in_numbered ? entry.numbered.back().body : entry.sections.back().body) = span(m_body, end);
        }
        m_body = nullptr;
    }

    void close(const char* end) {
        if (!m_open) return;
        end_part(end);
        ExperimentEntry& entry = m_entries.back();
        entry.text = span(entry.heading.text.data(), end);
        m_open = false;
    }

    void add_part(const Line& line, const char* body) {
        if (++m_parts > k_max_entries) return;
        end_part(line.text.data());
        ExperimentEntry& entry = m_entries.back();
        NumberedExperiment experiment;
        m_in_numbered = match_numbered(line, experiment);
        if (m_in_numbered) {
            entry.numbered.push_back(experiment);
        } else {
            entry.sections.push_back({text::trim(line.text.substr(3)), {}, line});
        }
        m_body = body;
    }

    std::vector<ExperimentEntry> m_entries;
    std::size_t m_parts = 0;
    bool m_open = false;
    bool m_in_numbered = false;
    const char* m_body = nullptr;
};

}  // namespace

const ExperimentSection* ExperimentEntry::section(std::string_view wanted_name) const {
    const auto plain = [](std::string_view s) {
        std::string lower_case = text::to_lower(s);
        return lower_case == "breakthrough / insight" ? std::string("breakthrough") : lower_case;
    };
    for (const ExperimentSection& s : sections) {
        if (plain(s.name) == plain(wanted_name)) return &s;
    }
    return nullptr;
}

std::vector<ExperimentEntry> parse_experiments(const Document& document) { return Reader().read(document.text); }

}  // namespace gdnctl::runlog
