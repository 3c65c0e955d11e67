// A gain in words.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "core/for_people.h"
#include "runlog/records/gain.h"

namespace gdnctl::runlog {

namespace {

// Decimals of a value that its noise carries: two digits of half the interval. nullopt: no interval.
std::optional<int> decimals_for(double half) {
    if (!(half > 0)) return std::nullopt;
    return std::max(0, 1 - static_cast<int>(std::floor(std::log10(half))));
}

// Digits of a value with so many decimals.
int digits_for(double value, int decimals) {
    return std::max(1, decimals + static_cast<int>(std::floor(std::log10(std::abs(value)))) + 1);
}

std::string factor_text(double factor, int digits, std::optional<int> decimals) {
    return number_for_people(factor, decimals ? std::min(digits, digits_for(factor, *decimals)) : digits);
}

// A factor and its bounds, with enough digits to tell them apart, and the factor from 1, but no more than the bounds
// carry.
std::vector<std::string> factor_texts(double factor, const std::vector<double>& bounds) {
    int digits = 3;
    for (double limit = 0.1; digits < 5 && std::abs(factor - 1.0) < limit; limit /= 10) ++digits;
    const auto decimals = bounds.empty() ? std::nullopt : decimals_for((bounds[1] - bounds[0]) / 2);
    for (;; ++digits) {
        std::vector<std::string> texts = {factor_text(factor, digits, decimals)};
        for (const double bound : bounds) texts.push_back(factor_text(bound, digits, decimals));
        std::vector<std::string> sorted = texts;
        std::sort(sorted.begin(), sorted.end());
        if (digits >= 5 || std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end()) return texts;
    }
}

// A smaller value of something other than a time is not "faster".
bool is_speed(const Gain& gain) {
    constexpr std::array<std::string_view, 6> k_times = {"ns", "us", "µs", "ms", "s", "min"};
    return !gain.lower_is_better || gain.unit.empty() ||
           std::find(k_times.begin(), k_times.end(), gain.unit) != k_times.end();
}

}  // namespace

std::string value_text(const Gain& gain, double value) {
    constexpr int k_most = 5, k_least = 2;
    const bool bounded =
        gain.pairs > 0 && !gain.values_apart && gain.factor && *gain.factor > 0 && gain.low && gain.high;
    const auto decimals =
        bounded ? decimals_for(std::abs(value) * (*gain.high - *gain.low) / 2 / *gain.factor) : std::nullopt;
    if (!decimals || value == 0) return quantity(value, gain.unit);
    return quantity(value, gain.unit, std::clamp(digits_for(value, *decimals), k_least, k_most));
}

std::string percent_text(const Gain& gain) {
    if (!gain.factor) return {};
    const double percent = factor_percent(*gain.factor);
    if (std::abs(percent) >= 1000) return "+" + number_for_people(percent);
    const bool bounded = gain.pairs > 0 && gain.low && gain.high;
    const auto decimals = bounded ? decimals_for(100 * (*gain.high - *gain.low) / 2) : std::nullopt;
    return fmt::format("{:+.{}f}", percent, std::min(2, decimals.value_or(2)));
}

std::string speed_text(const Gain& gain) {
    const std::string text = gain_text(gain);
    return text.substr(0, text.find(" ("));
}

std::string gain_text(const Gain& gain) {
    if (!gain.factor || !(*gain.factor > 0)) return {};
    const bool worse = *gain.factor < 1;
    std::vector<double> bounds;
    if (gain.pairs > 0 && gain.low && gain.high && *gain.low > 0 && *gain.high > 0) {
        bounds = worse ? std::vector{1 / *gain.high, 1 / *gain.low} : std::vector{*gain.low, *gain.high};
    }
    const auto texts = factor_texts(worse ? 1 / *gain.factor : *gain.factor, bounds);
    const std::string& shown = texts.front();
    const bool speed = is_speed(gain);
    std::string text = shown + "x ";
    if (shown == "1") {
        text = speed ? "as fast" : "as good";
    } else {
        text += speed ? (worse ? "slower" : "faster") : (worse ? "worse" : "better");
    }
    if (gain.pairs <= 0) return text + " (unpaired)";
    const std::string between = bounds.empty() ? std::string() : fmt::format("{}-{}x, ", texts[1], texts[2]);
    return text + fmt::format(" ({}{} pair{})", between, gain.pairs, gain.pairs == 1 ? "" : "s");
}

std::string compared_text(const Gain& gain) {
    if (!gain.before || !gain.after) {
        const auto& only = gain.after ? gain.after : gain.before;
        return only ? value_text(gain, *only) : std::string();
    }
    return fmt::format("{} -> {}{}", value_text(gain, *gain.before), value_text(gain, *gain.after),
                       gain.values_apart ? " (these two are unpaired)" : "");
}

std::string whole_gain_text(const Gain& gain) {
    const std::string values = compared_text(gain);
    const std::string text = gain_text(gain);
    return values + (values.empty() || text.empty() ? "" : ", ") + text;
}

}  // namespace gdnctl::runlog
