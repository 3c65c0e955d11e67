#include "runlog/metrics/values.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/text.h"
#include "runlog/parse/detail.h"

namespace gdnctl::runlog::detail {

namespace {

constexpr std::string_view k_minus = "\xE2\x88\x92";       // U+2212
constexpr std::string_view k_arrow_sign = "\xE2\x86\x92";  // U+2192
constexpr std::string_view k_em_dash = "\xE2\x80\x94";

bool ends_word(std::string_view s, std::size_t at) { return at >= s.size() || !is_word(s[at]); }

// Appends the digits after `at` to `plain`, including groups of three after commas.
std::size_t take_digits(std::string_view s, std::size_t at, bool groups, std::string& plain) {
    const auto digit = [&](std::size_t i) { return i < s.size() && is_digit(s[i]); };
    while (digit(at)) plain += s[at++];
    while (groups && !plain.empty() && is_digit(plain.back()) && at < s.size() && s[at] == ',' && digit(at + 1) &&
           digit(at + 2) && digit(at + 3) && !digit(at + 4)) {
        plain.append(s.substr(at + 1, 3));
        at += 4;
    }
    return at;
}

// e[+-]digits at this position; nullopt: none.
struct Exponent {
    int value;
    std::size_t end;
};
std::optional<Exponent> read_exponent(std::string_view s, std::size_t at) {
    if (at + 1 >= s.size() || lower(s[at]) != 'e') return std::nullopt;
    const bool sign = s[at + 1] == '+' || s[at + 1] == '-';
    const std::size_t first = at + (sign ? 2 : 1);
    std::size_t end = first;
    while (end < s.size() && is_digit(s[end]) && end - first < 3) ++end;
    if (end == first || !ends_word(s, end)) return std::nullopt;
    const auto value = static_cast<int>(text::parse_int(strip_zeros(s.substr(first, end - first))).value_or(0));
    return Exponent{s[at + 1] == '-' ? -value : value, end};
}

Scale read_unit(std::string_view s, std::size_t& at) {
    const std::size_t start = skip_soft(s, at);
    const std::string_view rest = s.substr(start);
    struct Name {
        std::string_view text;
        Scale scale;
    };
    constexpr std::array names = {Name{"ms", {Unit::ms, 1}},           Name{"us", {Unit::ms, 1e-3}},
                                  Name{"\xC2\xB5s", {Unit::ms, 1e-3}}, Name{"\xCE\xBCs", {Unit::ms, 1e-3}},
                                  Name{"s", {Unit::ms, 1e3}},          Name{"%", {Unit::fraction, 1e-2}}};
    for (const Name& name : names) {
        if (!rest.starts_with(name.text)) continue;
        if (name.text != "%" && !ends_word(rest, name.text.size())) continue;
        at = start + name.text.size();
        return name.scale;
    }
    return {};
}

std::optional<Printed> read_null(std::string_view s, std::size_t at) {
    const std::string lower_case = text::to_lower(s.substr(at, 14));
    for (const std::string_view word :
         {std::string_view("n/a"), std::string_view("not measured"), std::string_view("-"), k_em_dash}) {
        if (!lower_case.starts_with(word)) continue;
        const std::size_t end = at + word.size();
        if (word == "-" && end < s.size() && !is_soft(s[end]) && s[end] != ',' && s[end] != ';') continue;
        if (!ends_word(s, end)) continue;
        Printed printed;
        printed.null = true;
        printed.text = s.substr(at, word.size());
        printed.end = end;
        return printed;
    }
    return std::nullopt;
}

std::optional<Printed> read_value(std::string_view s, std::size_t at) {
    auto printed = read_number(s, at);
    if (!printed) return read_null(s, at);
    if (printed->end < s.size() && is_alpha(s[printed->end])) {
        std::size_t end = printed->end;
        if (read_unit(s, end).unit == Unit::none) return std::nullopt;  // "3x", "v5p"
    }
    printed->scale = read_unit(s, printed->end);
    return printed;
}

}  // namespace

std::size_t skip_soft(std::string_view s, std::size_t at) {
    while (at < s.size() && is_soft(s[at])) ++at;
    return at;
}

std::optional<Printed> read_number(std::string_view s, std::size_t at) {
    const std::size_t begin = at;
    std::string plain;
    if (s.substr(at).starts_with(k_minus)) {
        plain = "-";
        at += k_minus.size();
    } else if (at < s.size() && (s[at] == '-' || s[at] == '+')) {
        if (s[at] == '-') plain = "-";
        ++at;
    }
    const std::size_t sign = plain.size();
    at = take_digits(s, at, true, plain);
    bool any = plain.size() > sign;
    int decimals = 0;
    if (at < s.size() && s[at] == '.' && (any || (at + 1 < s.size() && is_digit(s[at + 1])))) {
        std::string fraction;
        at = take_digits(s, at + 1, false, fraction);
        decimals = static_cast<int>(std::min<std::size_t>(fraction.size(), 60));
        if (!fraction.empty()) plain += (any ? "." : "0.") + fraction;
        any = any || !fraction.empty();
    }
    if (!any || plain.size() > 60) return std::nullopt;
    int exponent = 0;
    if (const auto power = read_exponent(s, at)) {
        exponent = power->value;
        plain += 'e' + std::to_string(exponent);
        at = power->end;
    }
    const auto value = text::parse_double(plain);
    if (!value) return std::nullopt;
    Printed printed;
    printed.value = *value;
    printed.half_digit = 0.5 * std::pow(10.0, exponent - decimals);
    printed.text = s.substr(begin, at - begin);
    printed.end = at;
    return printed;
}

std::size_t arrow_length(std::string_view s, std::size_t at) {
    for (const std::string_view arrow : {std::string_view("->"), k_arrow_sign, std::string_view("=>")}) {
        if (s.substr(at).starts_with(arrow)) return arrow.size();
    }
    return 0;
}

std::optional<Values> read_values(std::string_view s, std::size_t at) {
    const std::size_t begin = skip_soft(s, at);
    auto first = read_value(s, begin);
    if (!first) return std::nullopt;
    Values values{*first, std::nullopt, begin, first->end};
    const std::size_t arrow = skip_soft(s, first->end);
    if (const std::size_t length = arrow_length(s, arrow); length != 0) {
        auto second = read_value(s, skip_soft(s, arrow + length));
        if (!second) return std::nullopt;
        values.end = second->end;
        // One unit applies to both.
        if (second->scale.unit == Unit::none) second->scale = first->scale;
        if (values.first.scale.unit == Unit::none) values.first.scale = second->scale;
        values.second = *second;
    }
    return values;
}

}  // namespace gdnctl::runlog::detail
