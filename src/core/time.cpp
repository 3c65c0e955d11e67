#include "core/time.h"

#include <fmt/format.h>

#include "core/text.h"

namespace gdnctl {

namespace {

using std::chrono::days;
using std::chrono::floor;
using std::chrono::hh_mm_ss;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using std::chrono::year_month_day;

struct Fields {
    int year, month, day, hour, minute, second;
};

Fields fields_of(WallTime t) {
    const auto day = floor<days>(t);
    const year_month_day date(day);
    const hh_mm_ss<milliseconds> clock(t - day);
    return {int(date.year()),
            static_cast<int>(unsigned(date.month())),
            static_cast<int>(unsigned(date.day())),
            static_cast<int>(clock.hours().count()),
            static_cast<int>(clock.minutes().count()),
            static_cast<int>(clock.seconds().count())};
}

// Removes exactly `digits` decimal digits from the front of `s` and returns their value.
std::optional<int> take_digits(std::string_view& s, std::size_t digits) {
    if (s.size() < digits) return std::nullopt;
    int value = 0;
    for (char c : s.substr(0, digits)) {
        if (c < '0' || c > '9') return std::nullopt;
        value = value * 10 + (c - '0');
    }
    s.remove_prefix(digits);
    return value;
}

bool take(std::string_view& s, char c) {
    if (s.empty() || s.front() != c) return false;
    s.remove_prefix(1);
    return true;
}

std::optional<milliseconds> take_clock(std::string_view& s) {
    const auto hour = take_digits(s, 2);
    if (!hour || *hour > 23 || !take(s, ':')) return std::nullopt;
    const auto minute = take_digits(s, 2);
    if (!minute || *minute > 59) return std::nullopt;
    milliseconds clock = std::chrono::hours(*hour) + minutes(*minute);
    if (!take(s, ':')) return clock;
    const auto second = take_digits(s, 2);
    if (!second || *second > 60) return std::nullopt;
    clock += seconds(*second);
    if (!take(s, '.')) return clock;
    int scale = 100;
    bool any = false;
    while (!s.empty() && s.front() >= '0' && s.front() <= '9') {
        clock += milliseconds((s.front() - '0') * scale);
        scale /= 10;
        s.remove_prefix(1);
        any = true;
    }
    return any ? std::optional(clock) : std::nullopt;
}

// "Z" or "+02:00"; nullopt: neither.
std::optional<minutes> take_offset(std::string_view& s) {
    if (take(s, 'Z')) return minutes(0);
    const bool negative = !s.empty() && s.front() == '-';
    if (!take(s, '+') && !take(s, '-')) return std::nullopt;
    const auto hour = take_digits(s, 2);
    if (!hour || *hour > 23) return std::nullopt;
    take(s, ':');
    const auto minute = take_digits(s, 2);
    if (!minute || *minute > 59) return std::nullopt;
    const minutes offset = std::chrono::hours(*hour) + minutes(*minute);
    return negative ? -offset : offset;
}

}  // namespace

std::string format_iso8601(WallTime t) {
    const Fields f = fields_of(t);
    return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", f.year, f.month, f.day, f.hour, f.minute, f.second);
}

std::string format_compact_utc(WallTime t) {
    const Fields f = fields_of(t);
    return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}", f.year, f.month, f.day, f.hour, f.minute, f.second);
}

std::string format_log_time(WallTime t) {
    const Fields f = fields_of(t);
    return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}", f.year, f.month, f.day, f.hour, f.minute, f.second);
}

std::optional<WallTime> parse_iso8601(std::string_view s) {
    const auto year = take_digits(s, 4);
    if (!year || !take(s, '-')) return std::nullopt;
    const auto month = take_digits(s, 2);
    if (!month || !take(s, '-')) return std::nullopt;
    const auto day = take_digits(s, 2);
    if (!day) return std::nullopt;
    const year_month_day date(std::chrono::year(*year), std::chrono::month(static_cast<unsigned>(*month)),
                              std::chrono::day(static_cast<unsigned>(*day)));
    if (!date.ok()) return std::nullopt;
    const WallTime midnight = std::chrono::sys_days(date);
    if (s.empty()) return midnight;
    if (!take(s, 'T') && !take(s, ' ')) return std::nullopt;
    const auto clock = take_clock(s);
    if (!clock) return std::nullopt;
    const auto offset = take_offset(s);
    if (!offset || !s.empty()) return std::nullopt;
    return midnight + *clock - *offset;
}

std::string format_duration(milliseconds d) {
    const auto ms = d.count();
    if (ms < 0) return "-" + format_duration(-d);
    if (ms < 1000) return fmt::format("{} ms", ms);
    if (ms < 59950) return fmt::format("{:.1f} s", static_cast<double>(ms) / 1000.0);
    const auto total_seconds = (ms + 500) / 1000;
    if (total_seconds < 3600) return fmt::format("{} min {} s", total_seconds / 60, total_seconds % 60);
    const auto total_minutes = (total_seconds + 30) / 60;
    return fmt::format("{} h {:02} min", total_minutes / 60, total_minutes % 60);
}

}  // namespace gdnctl
