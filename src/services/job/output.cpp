#include "services/job/output.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "core/json.h"
#include "core/text.h"

namespace gdnctl {

namespace {

constexpr std::size_t k_line_limit = 64u << 10;
constexpr std::size_t k_tail_limit = 64u << 10;
constexpr std::string_view k_device = "GDNCTL_DEVICE ";
constexpr std::string_view k_own_words = "[gdnctl] metric ";
constexpr std::string_view k_url = "https://wandb.ai/";
constexpr std::string_view k_ce = "Fused cross-entropy selected implementation:";
constexpr std::string_view k_model = "GDN profile model:";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

struct CountWord {
    std::string_view word;
    std::int64_t PytestCounts::* field;
};
constexpr std::array<CountWord, 8> k_words = {{{"passed", &PytestCounts::passed},
                                               {"failed", &PytestCounts::failed},
                                               {"error", &PytestCounts::errors},
                                               {"errors", &PytestCounts::errors},
                                               {"skipped", &PytestCounts::skipped},
                                               {"deselected", &PytestCounts::deselected},
                                               {"xfailed", &PytestCounts::xfailed},
                                               {"xpassed", &PytestCounts::xpassed}}};

// Stores "3 passed" in its field; false: not a count.
bool read_count(std::string_view item, PytestCounts& into) {
    const std::size_t space = item.find(' ');
    if (space == std::string_view::npos) return false;
    const auto number = text::parse_int(item.substr(0, space));
    const std::string_view word = item.substr(space + 1);
    if (!number || *number < 0) return false;
    if (word == "warning" || word == "warnings" || word == "rerun" || word == "subtests passed") return true;
    const auto it = std::find_if(k_words.begin(), k_words.end(), [&](const CountWord& w) { return w.word == word; });
    if (it == k_words.end()) return false;
    into.*(it->field) = *number;
    return true;
}

std::optional<double> leading_number(std::string_view s) {
    if (!s.empty() && s[0] == '+') s.remove_prefix(1);
    double value = 0;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
    const std::size_t first = !s.empty() && s[0] == '-' ? 1 : 0;
    const bool number = s.size() > first && (is_digit(s[first]) || s[first] == '.');
    if (error != std::errc() || !number) return std::nullopt;
    return value;
}

// "nan" of ": nan, duration 3"
bool begins_not_finite(std::string_view text) {
    const std::size_t begin = text.find_first_not_of(" \t:='\"|,+-");
    if (begin == std::string_view::npos) return false;
    const std::string word = text::to_lower(text.substr(begin, text.find_first_of(" \t,;'\"}])|\r", begin) - begin));
    return word == "nan" || word == "inf" || word == "infinity";
}

}  // namespace

std::optional<PytestCounts> parse_pytest_summary(std::string_view line) {
    const std::string plain = text::without_colour(line);
    std::string_view s = text::trim(plain);
    const bool framed = s.starts_with("=");
    while (!s.empty() && s.front() == '=') s.remove_prefix(1);
    while (!s.empty() && s.back() == '=') s.remove_suffix(1);
    s = text::trim(s);
    const std::size_t in = s.rfind(" in ");
    if (in == std::string_view::npos) return std::nullopt;
    PytestCounts counts;
    std::string_view time = s.substr(in + 4);
    time = time.substr(0, time.find(' '));
    if (time.size() < 2 || time.back() != 's') return std::nullopt;
    const auto seconds = text::parse_double(time.substr(0, time.size() - 1));
    if (!seconds) return std::nullopt;
    counts.seconds = *seconds;
    const std::string_view list = s.substr(0, in);
    if (list == "no tests ran") return counts;
    for (const std::string_view item : text::split(list, ',')) {
        if (!read_count(text::trim(item), counts)) return std::nullopt;
    }
    // Without its frame (pytest -q), only a line that starts with a count is a summary.
    if (!framed && (s.empty() || !is_digit(s.front()))) return std::nullopt;
    return counts;
}

std::optional<DeviceReport> parse_device_line(std::string_view line) {
    if (!line.starts_with(k_device)) return std::nullopt;
    const auto json = parse_json(line.substr(k_device.size()), "device line");
    if (!json || !json->is_object()) return std::nullopt;
    const auto backend = json->find("backend");
    const auto count = json->find("count");
    if (backend == json->end() || !backend->is_string()) return std::nullopt;
    DeviceReport device{backend->get<std::string>(), 0};
    if (count != json->end() && count->is_number_integer()) device.count = count->get<std::int64_t>();
    return device;
}

std::optional<std::string> parse_judging_line(std::string_view line) {
    constexpr std::string_view key = "judging ";
    const std::size_t start = line.starts_with("[gdnctl]") ? line.find(key) : std::string_view::npos;
    const std::size_t end = line.find(" on the generated cases");
    if (start == std::string_view::npos || end == std::string_view::npos || end < start + key.size())
        return std::nullopt;
    return std::string(line.substr(start + key.size(), end - start - key.size()));
}

std::optional<std::string> parse_verdict_line(std::string_view line) {
    constexpr std::string_view key = "verdict: ";
    line = text::trim(line);
    if (!line.starts_with(key)) return std::nullopt;
    std::string_view word = line.substr(key.size());
    const auto letter = [](char c) { return (c >= 'A' && c <= 'Z') || c == '_'; };
    word = word.substr(0, static_cast<std::size_t>(std::find_if_not(word.begin(), word.end(), letter) - word.begin()));
    if (word.empty()) return std::nullopt;
    return std::string(word);
}

std::optional<OracleItem> parse_oracle_item(std::string_view line) {
    constexpr std::array<std::string_view, 17> verdicts = {
        "OK",      "SUSPECT",      "WRONG",     "UNSTABLE_INPUT", "NO_DATA",      "UNSUPPORTED",
        "REFUSED", "INCOMPLETE",   "UNSTEADY",  "WRONG_SHAPE",    "NON_FINITE",   "OUT_OF_BOUNDS",
        "CRASHED", "MEMORY_LIMIT", "TIMED_OUT", "NO_ENTRY_POINT", "BUILD_FAILED",
    };
    std::array<std::string_view, 3> words;
    for (std::string_view& word : words) {
        const std::size_t start = line.find_first_not_of(' ');
        if (start == std::string_view::npos) return std::nullopt;
        line.remove_prefix(start);
        word = line.substr(0, line.find(' '));
        line.remove_prefix(word.size());
    }
    if (words[0] != "case" && words[0] != "vector") return std::nullopt;
    if (std::find(verdicts.begin(), verdicts.end(), words[2]) == verdicts.end()) return std::nullopt;
    return OracleItem{words[0] == "vector", std::string(words[2])};
}

std::optional<double> parse_metric(std::string_view line, std::string_view key) {
    std::optional<double> found;
    for (std::size_t at = line.find(key); at != std::string_view::npos; at = line.find(key, at + 1)) {
        std::string_view rest = line.substr(at + key.size());
        if (begins_not_finite(rest)) {
            found.reset();
            continue;
        }
        const std::size_t start = rest.find_first_of("0123456789eE+-");
        if (start == std::string_view::npos) break;
        if (const auto number = leading_number(rest.substr(start))) found = number;
    }
    return found;
}

std::optional<std::string> parse_run_url(std::string_view line) {
    const std::size_t at = line.find(k_url);
    if (at == std::string_view::npos) return std::nullopt;
    std::string_view url = line.substr(at);
    url = url.substr(0, url.find_first_of(" \t\r\n\"'<>)]\x1b"));
    while (!url.empty() && (url.back() == '`' || url.back() == '.' || url.back() == ',')) url.remove_suffix(1);
    const auto parts = text::split(url.substr(k_url.size()), '/');
    if (parts.size() < 4 || parts[0].empty() || parts[1].empty() || parts[2] != "runs") return std::nullopt;
    std::string_view id = parts[3].substr(0, parts[3].find_first_of("?#`"));
    if (id.empty()) return std::nullopt;
    return std::string(k_url) + std::string(parts[0]) + "/" + std::string(parts[1]) + "/runs/" + std::string(id);
}

void JobOutput::feed(std::string_view bytes) {
    m_tail += bytes.size() > k_tail_limit ? bytes.substr(bytes.size() - k_tail_limit) : bytes;
    if (m_tail.size() > 2 * k_tail_limit) m_tail.erase(0, m_tail.size() - k_tail_limit);
    while (!bytes.empty()) {
        const std::size_t newline = bytes.find('\n');
        const std::string_view piece = bytes.substr(0, newline);
        if (m_partial.size() < k_line_limit) m_partial += piece.substr(0, k_line_limit - m_partial.size());
        if (newline == std::string_view::npos) return;
        line(m_partial);
        m_partial.clear();
        bytes.remove_prefix(newline + 1);
    }
}

void JobOutput::finish() {
    if (!m_partial.empty()) line(m_partial);
    m_partial.clear();
    if (m_tail.size() > k_tail_limit) m_tail.erase(0, m_tail.size() - k_tail_limit);
}

void JobOutput::line(std::string_view text) {
    if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
    if (const auto counts = parse_pytest_summary(text)) m_pytest = counts;
    if (const auto device = parse_device_line(text)) m_device = device;
    if (auto kernel = parse_judging_line(text)) m_verdicts.kernel = std::move(*kernel);
    if (const auto verdict = parse_verdict_line(text)) m_verdicts.overall = *verdict;
    if (const auto item = parse_oracle_item(text)) {
        ++m_verdicts.counts[item->verdict];
        ++(item->vector ? m_verdicts.vectors : m_verdicts.cases);
    }
    // gdnctl's own messages contain no metrics: "metric throughput/mfu: no line matches (regex:throughput/mfu[^0-9]*)".
    if (!text.starts_with(k_own_words)) {
        const auto read = [&](std::string_view key, std::optional<double>& into) {
            const std::size_t at = text.rfind(key);
            if (at == std::string_view::npos) return;
            const auto value = parse_metric(text, key);
            if (value || begins_not_finite(text.substr(at + key.size()))) into = value;
        };
        read("throughput/mfu", m_profile.mfu);
        read("throughput/tokens_per_second", m_profile.tokens_per_second);
        read("throughput/duration", m_profile.duration);
    }
    if (const auto url = parse_run_url(text)) m_profile.run_url = url;
    if (const std::size_t at = text.find(k_ce); at != std::string_view::npos) {
        const std::string_view word = text::trim(text.substr(at + k_ce.size()));
        if (!word.empty()) m_profile.ce_implementation = std::string(word.substr(0, word.find_first_of(" \t")));
    }
    if (const std::size_t at = text.find(k_model); at != std::string_view::npos) {
        m_profile.model.clear();
        for (const std::string_view word : text::split(text.substr(at + k_model.size()), ' ')) {
            const std::size_t equals = word.find('=');
            if (equals == std::string_view::npos || equals == 0) continue;
            m_profile.model.emplace(word.substr(0, equals), word.substr(equals + 1));
        }
    }
}

}  // namespace gdnctl
