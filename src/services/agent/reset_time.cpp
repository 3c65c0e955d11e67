#include "services/agent/reset_time.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "core/text.h"

namespace gdnctl::codex {

namespace {

using std::chrono::milliseconds;

constexpr std::chrono::minutes k_margin{1};

constexpr double k_day_ms = 24.0 * 3'600'000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Lower-case words after the last `lead`, without blanks, commas and brackets; a full stop only inside a word.
std::vector<std::string> words_after(std::string_view message, std::string_view lead) {
    std::string lower = text::to_lower(message);
    const std::size_t at = lower.rfind(lead);
    if (at == std::string::npos) return {};
    lower.erase(0, at + lead.size());
    for (char& c : lower) {
        if (c == ',' || c == '\n' || c == '\r' || c == '\t' || c == '(' || c == ')') c = ' ';
    }
    std::vector<std::string> words;
    for (std::string_view word : text::split(lower, ' ')) {
        while (word.ends_with('.') && word != "a.m." && word != "p.m.") word.remove_suffix(1);
        if (!word.empty()) words.emplace_back(word);
    }
    return words;
}

// The point in time that words give, in local time: "4:07 pm", "17:45", "nov 24th 2026 4:07 pm", "2026-11-24 16:07".
class TimeOfWords {
public:
    explicit TimeOfWords(WallTime now) : m_now(now) {
        const std::time_t seconds = std::chrono::floor<std::chrono::seconds>(now).time_since_epoch().count();
        localtime_r(&seconds, &m_parts);
        m_parts.tm_sec = 0;
    }

    std::optional<WallTime> read(const std::vector<std::string>& words) {
        for (const std::string& word : words) {
            if (!take(word)) break;
        }
        if (!m_hour) return std::nullopt;
        if (m_half != ' ' && (*m_hour < 1 || *m_hour > 12)) return std::nullopt;
        m_parts.tm_hour = m_half == ' ' ? *m_hour : *m_hour % 12 + (m_half == 'p' ? 12 : 0);
        if (m_month.has_value() != m_day.has_value()) return std::nullopt;
        const bool dated = m_month.has_value();
        if (dated) {
            m_parts.tm_mon = *m_month;
            m_parts.tm_mday = *m_day;
            if (m_year) m_parts.tm_year = *m_year - 1900;
        }
        auto at = moment();
        constexpr std::chrono::hours k_half_day{12}, k_half_year{24 * 182};
        // Codex gives the date of another day. Without one, the nearest moment of that time is meant.
        if (at && !dated && !m_tomorrow && *at + k_half_day < m_now) {
            ++m_parts.tm_mday;
            at = moment();
        }
        if (at && dated && !m_year && *at + k_half_year < m_now) {
            ++m_parts.tm_year;
            at = moment();
        }
        return at;
    }

private:
    bool take(std::string_view word) {
        if (word == "on" || word == "at" || word == "by" || word == "today") return true;
        if (word == "tomorrow") {
            m_parts.tm_mday += m_tomorrow ? 0 : 1;
            m_tomorrow = true;
            return true;
        }
        if (word == "am" || word == "a.m." || word == "pm" || word == "p.m.") {
            if (!m_hour) return false;
            m_half = word.front();
            return true;
        }
        if (word == "utc" || word == "gmt" || word == "z") {
            m_utc = true;
            return true;
        }
        return is_digit(word.front()) ? take_number(word) : take_month(word);
    }

    bool take_month(std::string_view word) {
        constexpr std::array<std::string_view, 12> k_months = {"january",   "february", "march",    "april",
                                                               "may",       "june",     "july",     "august",
                                                               "september", "october",  "november", "december"};
        constexpr std::size_t k_shortest = 3;
        const auto found = std::find_if(k_months.begin(), k_months.end(),
                                        [&](std::string_view name) { return name.starts_with(word); });
        if (found == k_months.end() || word.size() < k_shortest || m_month) return false;
        m_month = static_cast<int>(found - k_months.begin());
        if (m_bare) m_day = std::exchange(m_hour, std::nullopt);  // "24 nov"
        m_bare = false;
        return true;
    }

    // "4:07", "4:07pm", "3pm", "24th", "24", "2026", "2026-11-24", "2026-11-24t16:07:00z"
    bool take_number(std::string_view word) {
        if (word.size() >= 10 && word[4] == '-' && word[7] == '-') {
            m_year = number(word.substr(0, 4), 1970, 9999);
            const auto month = number(word.substr(5, 2), 1, 12);
            m_day = number(word.substr(8, 2), 1, 31);
            if (!m_year || !month || !m_day) return false;
            m_month = *month - 1;
            return word.size() == 10 || (word[10] == 't' && take_clock(word.substr(11)));
        }
        const std::string_view rest = word.substr(std::min(word.find_first_not_of("0123456789"), word.size()));
        const std::string_view digits = word.substr(0, word.size() - rest.size());
        if (rest.starts_with(':') || rest == "am" || rest == "pm") return take_clock(word);
        const bool ordinal = rest == "st" || rest == "nd" || rest == "rd" || rest == "th";
        if (!ordinal && !rest.empty()) return false;
        if (digits.size() == 4 && !ordinal) {
            m_year = number(digits, 1970, 9999);
            return m_year.has_value();
        }
        // "nov 24"; another bare number is an hour, if am or pm follows, or the day of a month that follows.
        if (ordinal || (m_month && !m_day)) {
            m_day = number(digits, 1, 31);
            return m_day.has_value();
        }
        m_hour = number(digits, 1, 31);
        m_parts.tm_min = 0;
        m_bare = m_hour.has_value();
        return m_bare;
    }

    bool take_clock(std::string_view word) {
        if (word.ends_with('z')) {
            m_utc = true;
            word.remove_suffix(1);
        }
        if (word.ends_with("am") || word.ends_with("pm")) {
            m_half = word[word.size() - 2];
            word.remove_suffix(2);
        }
        const auto fields = text::split(word, ':');
        if (fields.size() > 3) return false;
        m_hour = number(fields[0], 0, 23);
        const auto minute = fields.size() > 1 ? number(fields[1], 0, 59) : std::optional(0);
        if (!m_hour || !minute) {
            m_hour.reset();
            return false;
        }
        m_parts.tm_min = *minute;
        m_bare = false;
        return true;
    }

    static std::optional<int> number(std::string_view digits, int low, int high) {
        const auto value = text::parse_int(digits);
        if (!value || *value < low || *value > high) return std::nullopt;
        return static_cast<int>(*value);
    }

    std::optional<WallTime> moment() {
        if (m_bare && m_half == ' ') return std::nullopt;
        std::tm parts = m_parts;
        parts.tm_isdst = -1;
        const std::time_t seconds = m_utc ? timegm(&parts) : std::mktime(&parts);
        if (seconds == -1) return std::nullopt;
        m_parts.tm_mday = parts.tm_mday;
        m_parts.tm_mon = parts.tm_mon;
        m_parts.tm_year = parts.tm_year;
        return WallTime(std::chrono::seconds(seconds));
    }

    WallTime m_now;
    std::tm m_parts{};
    std::optional<int> m_month, m_day, m_year, m_hour;
    char m_half = ' ';
    bool m_utc = false, m_bare = false, m_tomorrow = false;
};

// In milliseconds; 0: not a unit of time.
double unit_of(std::string_view word) {
    constexpr std::array<std::pair<std::string_view, double>, 6> k_short = {
        {{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}, {"d", k_day_ms}, {"w", 7 * k_day_ms}}};
    for (const auto& [name, scale] : k_short) {
        if (word == name) return scale;
    }
    if (word.ends_with('s')) word.remove_suffix(1);
    constexpr std::array<std::pair<std::string_view, double>, 10> k_long = {{{"millisecond", 1},
                                                                             {"sec", 1000},
                                                                             {"second", 1000},
                                                                             {"min", 60'000},
                                                                             {"minute", 60'000},
                                                                             {"hr", 3'600'000},
                                                                             {"hour", 3'600'000},
                                                                             {"day", k_day_ms},
                                                                             {"week", 7 * k_day_ms},
                                                                             {"month", 30 * k_day_ms}}};
    for (const auto& [name, scale] : k_long) {
        if (word == name) return scale;
    }
    return 0;
}

// "3 days 4 hours", "1h2m3s", "1.5s", "about an hour": milliseconds; nullopt: none.
std::optional<double> duration_of(const std::vector<std::string>& words) {
    std::optional<double> sum;
    std::optional<double> count;  // the number before a unit
    for (const std::string& word : words) {
        if (word == "and" || word == "about" || word == "approximately") continue;
        if (word == "a" || word == "an") {
            count = 1;
            continue;
        }
        std::string_view rest = word;
        while (!rest.empty()) {
            if (is_digit(rest.front())) {
                if (count) return sum;
                const std::size_t digits = std::min(rest.find_first_not_of("0123456789."), rest.size());
                count = text::parse_double(rest.substr(0, digits));
                if (!count) return sum;
                rest.remove_prefix(digits);
                continue;
            }
            const std::size_t letters = std::min(rest.find_first_of("0123456789"), rest.size());
            const double unit = count ? unit_of(rest.substr(0, letters)) : 0;
            if (unit == 0) return sum;
            sum = sum.value_or(0) + *count * unit;
            count.reset();
            rest.remove_prefix(letters);
        }
    }
    return sum;
}

}  // namespace

std::optional<WallTime> reset_time_in(std::string_view message, WallTime now) {
    std::optional<WallTime> at;
    for (const std::string_view lead : {"try again in ", "resets in ", "reset in "}) {
        const auto wait = duration_of(words_after(message, lead));
        constexpr double k_longest = 366 * k_day_ms;
        if (!at && wait) at = now + milliseconds(static_cast<std::int64_t>(std::min(*wait, k_longest)));
    }
    for (const std::string_view lead : {"try again at ", "try again after ", "try again on ", "resets at ", "resets ",
                                        "reset at ", "available at "}) {
        if (!at) at = TimeOfWords(now).read(words_after(message, lead));
    }
    if (!at || *at + k_margin <= now) return std::nullopt;
    return *at + k_margin;
}

std::optional<milliseconds> retry_after_in(std::string_view message) {
    constexpr double k_longest = 7 * k_day_ms;
    const auto wait = duration_of(words_after(message, "try again in "));
    if (!wait) return std::nullopt;
    return milliseconds(static_cast<std::int64_t>(std::min(*wait, k_longest)));
}

}  // namespace gdnctl::codex
