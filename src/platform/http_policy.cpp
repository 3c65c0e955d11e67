#include "platform/http_policy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "core/text.h"

namespace gdnctl::http {

namespace {

constexpr std::chrono::milliseconds k_longest_wait = std::chrono::hours(24);

std::string_view without_line_end(std::string_view line) {
    while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.remove_suffix(1);
    return line;
}

// "HTTP/1.1 200 OK", "HTTP/2 200": the three digits after the first blank.
std::optional<int> status_of(std::string_view line) {
    if (!line.starts_with("HTTP/")) return std::nullopt;
    const std::size_t blank = line.find(' ');
    if (blank == std::string_view::npos) return std::nullopt;
    const auto code = text::parse_int(line.substr(blank + 1, 3));
    if (!code || *code < 100 || *code > 999) return std::nullopt;
    return static_cast<int>(*code);
}

constexpr std::array<std::string_view, 12> k_months = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

// "Sun", "Sun,", "Sunday,". The weekday itself follows from the date; this only rejects nonsense.
bool is_weekday(std::string_view word) {
    if (word.ends_with(',')) word.remove_suffix(1);
    constexpr std::string_view k_days = "Mon Tue Wed Thu Fri Sat Sun ";
    const std::size_t at = word.size() < 3 ? std::string_view::npos : k_days.find(word.substr(0, 3));
    constexpr std::size_t k_longest = 9;
    return at != std::string_view::npos && at % 4 == 0 && word.size() <= k_longest;
}

std::optional<unsigned> month_of(std::string_view name) {
    for (unsigned i = 0; i < k_months.size(); ++i) {
        if (k_months[i] == name) return i + 1;
    }
    return std::nullopt;
}

std::optional<int> small_number(std::string_view digits, int low, int high) {
    const auto value = text::parse_int(digits);
    if (!value || *value < low || *value > high) return std::nullopt;
    return static_cast<int>(*value);
}

std::optional<std::chrono::seconds> time_of_day(std::string_view hms) {
    if (hms.size() != 8 || hms[2] != ':' || hms[5] != ':') return std::nullopt;
    const auto h = small_number(hms.substr(0, 2), 0, 23);
    const auto m = small_number(hms.substr(3, 2), 0, 59);
    const auto s = small_number(hms.substr(6, 2), 0, 60);  // 60: a leap second
    if (!h || !m || !s) return std::nullopt;
    return std::chrono::hours(*h) + std::chrono::minutes(*m) + std::chrono::seconds(*s);
}

std::optional<WallTime> date_time(std::optional<int> year, std::optional<unsigned> month, std::optional<int> day,
                                  std::optional<std::chrono::seconds> time) {
    if (!year || !month || !day || !time) return std::nullopt;
    const std::chrono::year_month_day date{std::chrono::year(*year), std::chrono::month(*month),
                                           std::chrono::day(static_cast<unsigned>(*day))};
    if (!date.ok()) return std::nullopt;
    return std::chrono::sys_days(date) + *time;
}

std::vector<std::string_view> words_of(std::string_view s) {
    std::vector<std::string_view> words;
    for (const std::string_view word : text::split(s, ' ')) {
        if (!word.empty()) words.push_back(word);
    }
    return words;
}

// RFC 9110: a two-digit year more than 50 years ahead means the past century.
std::optional<int> full_year(std::string_view two_digits, WallTime now) {
    const auto yy = small_number(two_digits, 0, 99);
    if (!yy || two_digits.size() != 2) return std::nullopt;
    const std::chrono::year_month_day today{std::chrono::floor<std::chrono::days>(now)};
    const int this_year = static_cast<int>(today.year());
    const int year = this_year - this_year % 100 + *yy;
    return year > this_year + 50 ? year - 100 : year;
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool is_token_char(char c) {
    const bool alphanumeric = (c >= '0' && c <= '9') || (lower(c) >= 'a' && lower(c) <= 'z');
    return alphanumeric || std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

// A header's name (RFC 9110 section 5.6.2).
bool is_token(std::string_view name) { return !name.empty() && std::all_of(name.begin(), name.end(), is_token_char); }

}  // namespace

bool HeaderBlock::add(std::string_view line) {
    const std::size_t bytes = line.size();
    line = without_line_end(line);
    if (const auto code = status_of(line)) {
        m_status = *code;
        m_headers.clear();
        m_bytes = bytes;
        return m_bytes <= k_limit;
    }
    m_bytes += bytes;
    if (m_bytes > k_limit) return false;
    if (line.empty()) return true;
    if (line.front() == ' ' || line.front() == '\t') {
        if (!m_headers.empty()) m_headers.back().second.append(" ").append(text::trim(line));
        return true;
    }
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return true;
    const std::string_view name = text::trim(line.substr(0, colon));
    if (!is_token(name)) return true;
    m_headers.emplace_back(text::to_lower(name), text::trim(line.substr(colon + 1)));
    return true;
}

std::optional<std::string> HeaderBlock::find(std::string_view lower_case_name) const {
    for (const auto& [name, value] : m_headers) {
        if (name == lower_case_name) return value;
    }
    return std::nullopt;
}

std::optional<WallTime> parse_http_date(std::string_view value, WallTime now) {
    value = text::trim(value);
    constexpr std::size_t k_longest = 40;  // the longest form has 33 characters; longer values only have more zeros or
                                           // blanks
    if (value.size() > k_longest) return std::nullopt;
    const std::vector<std::string_view> words = words_of(value);
    if (words.empty() || !is_weekday(words[0])) return std::nullopt;
    if (words.size() == 6 && words[5] == "GMT" && words[0].ends_with(',') && words[3].size() == 4) {
        return date_time(small_number(words[3], 1, 9999), month_of(words[2]), small_number(words[1], 1, 31),
                         time_of_day(words[4]));
    }
    if (words.size() == 4 && words[3] == "GMT" && words[0].ends_with(',')) {
        const std::vector<std::string_view> date = text::split(words[1], '-');
        if (date.size() != 3) return std::nullopt;
        return date_time(full_year(date[2], now), month_of(date[1]), small_number(date[0], 1, 31),
                         time_of_day(words[2]));
    }
    if (words.size() == 5 && words[4].size() == 4) {
        return date_time(small_number(words[4], 1, 9999), month_of(words[1]), small_number(words[2], 1, 31),
                         time_of_day(words[3]));
    }
    return std::nullopt;
}

std::optional<std::chrono::milliseconds> parse_retry_after(std::string_view value, WallTime now) {
    value = text::trim(value);
    const bool digits =
        !value.empty() && std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (digits) {
        const auto seconds = text::parse_int(value);  // nullopt: does not fit in 64 bits
        if (!seconds || *seconds >= std::chrono::duration_cast<std::chrono::seconds>(k_longest_wait).count()) {
            return k_longest_wait;
        }
        return std::chrono::seconds(*seconds);
    }
    const auto date = parse_http_date(value, now);
    if (!date) return std::nullopt;
    if (*date <= now) return std::chrono::milliseconds(0);
    return std::min(k_longest_wait, std::chrono::duration_cast<std::chrono::milliseconds>(*date - now));
}

std::chrono::milliseconds retry_delay(const HttpRetry& policy, int attempt,
                                      std::optional<std::chrono::milliseconds> asked) {
    const double growth = std::pow(std::max(1.0, policy.factor), std::max(0, attempt - 1));
    const double wanted = static_cast<double>(policy.first_delay.count()) * growth;
    const auto longest = static_cast<double>(policy.max_delay.count());
    const std::chrono::milliseconds delay(static_cast<std::int64_t>(std::min(wanted, longest)));
    return std::max(delay, asked.value_or(std::chrono::milliseconds(0)));
}

bool is_redirect(int status) {
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

std::string redirected_method(int status, std::string_view method) {
    const bool to_get = (status == 303 && method != "HEAD") || ((status == 301 || status == 302) && method == "POST");
    return std::string(to_get ? "GET" : method);
}

bool is_credential_header(std::string_view name) {
    const std::string lowered = text::to_lower(name);
    return lowered == "authorization" || lowered == "proxy-authorization" || lowered == "cookie" ||
           lowered == "x-api-key";
}

bool is_valid_method(std::string_view method) {
    return !method.empty() && std::all_of(method.begin(), method.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
}

bool is_valid_header(std::string_view name, std::string_view value) {
    const bool value_ok =
        std::none_of(value.begin(), value.end(), [](char c) { return c == '\r' || c == '\n' || c == '\0'; });
    return is_token(name) && value_ok;
}

}  // namespace gdnctl::http
