// Small text helpers that more than one folder needs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gdnctl::text {

std::string_view trim(std::string_view s);  // ASCII white space
std::vector<std::string_view> split(std::string_view s, char separator);
std::string join(std::span<const std::string> parts, std::string_view separator);
std::string to_lower(std::string_view s);  // ASCII only
bool is_valid_utf8(std::string_view s);
// Invalid sequences become U+FFFD, one per maximal invalid prefix.
std::string repair_utf8(std::string_view s);
// Escapes control characters in text from outside, so that a terminal can show it: "\x1b". Newlines and tabs stay.
std::string visible(std::string_view s);

// Decimal integers only; a leading 0 does not mean octal. Rejects a plus sign, "0x", blanks and empty text.
std::optional<std::int64_t> parse_int(std::string_view s);
// Finite decimal numbers only (no inf, nan, hex).
std::optional<double> parse_double(std::string_view s);

// POSIX shell quoting. Words of safe characters stay unchanged.
std::string shell_quote(std::string_view word);
std::string shell_join(std::span<const std::string> words);
// POSIX word splitting with quotes and backslashes, without expansion. nullopt: a quote is not closed.
std::optional<std::vector<std::string>> shell_split(std::string_view line);

// Damerau-Levenshtein distance, capped at `limit` + 1.
std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit);
// The candidate that `word` was probably meant to be: distance <= 1 for short words, <= 1/3 of the length otherwise, or
// `word` is a prefix of exactly one candidate. nullopt: none is near enough.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace gdnctl::text
