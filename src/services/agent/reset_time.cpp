#include "services/agent/reset_time.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <string>
#include <vector>

#include "core/text.h"

namespace gdnctl::codex {

namespace {

using std::chrono::milliseconds;

constexpr std::chrono::minutes k_margin{1};

std::optional<WallTime> local_time(std::tm parts) {
    parts.tm_isdst = -1;
    const std::time_t seconds = std::mktime(&parts);
    if (seconds == -1) return std::nullopt;
    return WallTime(std::chrono::seconds(seconds));
}

// "4:07", "PM"
bool parse_clock(std::string_view clock, std::string_view half, std::tm& parts) {
    const std::size_t colon = clock.find(':');
    if (colon == std::string_view::npos) return false;
    const auto hour = text::parse_int(clock.substr(0, colon));
    const auto minute = text::parse_int(clock.substr(colon + 1));
    const std::string which = text::to_lower(half.substr(0, 2));
    if (!hour || !minute || *hour < 1 || *hour > 12 || *minute < 0 || *minute > 59 ||
        (which != "am" && which != "pm")) {
        return false;
    }
    parts.tm_hour = static_cast<int>(*hour % 12) + (which == "pm" ? 12 : 0);
    parts.tm_min = static_cast<int>(*minute);
    parts.tm_sec = 0;
    return true;
}

// "Nov", "24th,", "2026"
bool parse_date(std::string_view month, std::string_view day, std::string_view year, std::tm& parts) {
    constexpr std::array<std::string_view, 12> k_months = {"jan", "feb", "mar", "apr", "may", "jun",
                                                           "jul", "aug", "sep", "oct", "nov", "dec"};
    const std::string name = text::to_lower(month.substr(0, 3));
    const auto found = std::find(k_months.begin(), k_months.end(), name);
    const auto number = text::parse_int(day.substr(0, day.find_first_not_of("0123456789")));
    const auto in = text::parse_int(year);
    if (found == k_months.end() || !number || *number < 1 || *number > 31 || !in || *in < 1970 || *in > 9999)
        return false;
    parts.tm_mon = static_cast<int>(found - k_months.begin());
    parts.tm_mday = static_cast<int>(*number);
    parts.tm_year = static_cast<int>(*in) - 1900;
    return true;
}

std::vector<std::string_view> words_after(std::string_view message, std::string_view lead) {
    const std::string lower = text::to_lower(message);
    const std::size_t at = lower.rfind(lead);
    if (at == std::string::npos) return {};
    std::vector<std::string_view> words;
    for (const auto word : text::split(message.substr(at + lead.size()), ' ')) {
        if (!word.empty()) words.push_back(word);
    }
    return words;
}

std::optional<milliseconds> unit_of(std::string_view& rest) {
    constexpr std::array<std::pair<std::string_view, int>, 4> k_units = {
        {{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}}};
    for (const auto& [name, scale] : k_units) {
        if (!rest.starts_with(name)) continue;
        rest.remove_prefix(name.size());
        return milliseconds(scale);
    }
    return std::nullopt;
}

}  // namespace

std::optional<WallTime> reset_time_in(std::string_view message, WallTime now) {
    const auto words = words_after(message, "try again at ");
    const std::time_t seconds = std::chrono::floor<std::chrono::seconds>(now).time_since_epoch().count();
    std::tm parts{};
    localtime_r(&seconds, &parts);
    if (words.size() >= 5 && parse_date(words[0], words[1], words[2], parts) &&
        parse_clock(words[3], words[4], parts)) {
        const auto at = local_time(parts);
        if (!at) return std::nullopt;
        return *at + k_margin;
    }
    if (words.size() < 2 || !parse_clock(words[0], words[1], parts)) return std::nullopt;
    auto at = local_time(parts);
    if (at && *at + std::chrono::hours(1) < now) {
        ++parts.tm_mday;
        at = local_time(parts);
    }
    if (!at) return std::nullopt;
    return std::max(*at + k_margin, now);
}

std::optional<milliseconds> retry_after_in(std::string_view message) {
    const auto words = words_after(message, "try again in ");
    if (words.empty()) return std::nullopt;
    std::string_view rest = words.front();
    std::optional<double> sum;
    while (!rest.empty()) {
        const std::size_t digits = rest.find_first_not_of("0123456789.");
        const auto number = text::parse_double(rest.substr(0, digits));
        if (!number || digits == std::string_view::npos) break;
        rest.remove_prefix(digits);
        const auto unit = unit_of(rest);
        if (!unit) break;
        sum = sum.value_or(0) + *number * static_cast<double>(unit->count());
    }
    constexpr double k_longest = 7.0 * 24 * 3'600'000;
    if (!sum) return std::nullopt;
    return milliseconds(static_cast<std::int64_t>(std::min(*sum, k_longest)));
}

}  // namespace gdnctl::codex
