#include "core/for_people.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>

#include <fmt/format.h>

#include "core/text.h"

namespace gdnctl {

namespace {

constexpr int k_least_exponent = -4;
constexpr int k_most_exponent = 8;  // above this exponent, scientific notation is easier to read than the zeros

std::tm local_parts(WallTime t) {
    const std::time_t seconds = std::chrono::floor<std::chrono::seconds>(t).time_since_epoch().count();
    std::tm parts{};
    localtime_r(&seconds, &parts);
    return parts;
}

std::string offset_of(const std::tm& parts) {
    const long minutes = parts.tm_gmtoff / 60;
    return fmt::format("{}{:02}:{:02}", minutes < 0 ? '-' : '+', std::abs(minutes) / 60, std::abs(minutes) % 60);
}

std::string clock_of(const std::tm& parts) {
    return fmt::format("{:02}:{:02}:{:02}{}", parts.tm_hour, parts.tm_min, parts.tm_sec, offset_of(parts));
}

}  // namespace

std::string grouped(std::int64_t number) {
    std::string digits = fmt::format("{}", number);
    const std::ptrdiff_t first = number < 0 ? 1 : 0;
    for (auto at = std::ssize(digits) - 3; at > first; at -= 3) digits.insert(static_cast<std::size_t>(at), 1, ',');
    return digits;
}

std::string signed_number(double value, int decimals) {
    const std::string text = fmt::format("{:+.{}f}", value, decimals);
    return text.find_first_of("123456789n") == std::string::npos ? text.substr(1) : text;  // n: of inf and nan
}

std::string number_for_people(double value, int digits) {
    if (value == 0.0) return "0";
    if (!std::isfinite(value)) return fmt::format("{}", value);
    const std::string rounded = fmt::format("{:.{}e}", value, digits - 1);
    const int exponent = std::atoi(rounded.c_str() + rounded.find('e') + 1);
    if (exponent < k_least_exponent || exponent > k_most_exponent) return fmt::format("{:.{}g}", value, digits);
    const double again = text::parse_double(rounded).value_or(value);
    std::string out = fmt::format("{:.{}f}", again, std::max(0, digits - 1 - exponent));
    if (out.find('.') == std::string::npos) return out;
    out.resize(out.find_last_not_of('0') + 1);
    if (out.back() == '.') out.pop_back();
    return out;
}

std::string quantity(double value, std::string_view unit, int digits) {
    return number_for_people(value, digits) + (unit.empty() ? "" : " ") + std::string(unit);
}

std::string local_time(WallTime t) {
    const std::tm parts = local_parts(t);
    return fmt::format("{:04}-{:02}-{:02} {}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, clock_of(parts));
}

std::string local_clock(WallTime t) { return clock_of(local_parts(t)); }

std::string local_time_of(std::string_view iso8601) {
    const auto t = parse_iso8601(iso8601);
    return t ? local_time(*t) : std::string(iso8601);
}

}  // namespace gdnctl
