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
// What a terminal may be shown of words from outside: control characters as "\x1b", but for the ends of lines and tabs.
std::string visible(std::string_view s);

// Decimal integers only: no sign but '-', no leading "0x"/octal reading, no blanks, no empty text.
std::optional<std::int64_t> parse_int(std::string_view s);
// Finite decimal numbers only (no inf, nan, hex).
std::optional<double> parse_double(std::string_view s);

// POSIX shell quoting: words made of safe characters stay as they are.
std::string shell_quote(std::string_view word);
std::string shell_join(std::span<const std::string> words);
// POSIX word splitting with quotes and backslashes, no expansion. nullopt: a quote is not closed.
std::optional<std::vector<std::string>> shell_split(std::string_view line);

// Damerau-Levenshtein distance, capped at `limit` + 1.
std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit);
// The candidate nearest to `word` if it is near enough to be meant (distance <= 1 for short words, <= 1/3 of the
// length otherwise, or `word` is a prefix of exactly one candidate); nullopt otherwise.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace gdnctl::text
