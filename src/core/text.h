// Small text helpers that more than one folder needs.
#pragma once

#include <cstddef>
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
// Escapes what can hide, replace or reorder text on a terminal or a page: control characters ("\x1b"), bidirectional
// overrides, line separators and invisible characters ("\u202e"). Newlines and tabs stay, and so do the two joiners
// that scripts and emoji need. For every text from outside: agents' reports, commits, file names, output of jobs.
std::string visible(std::string_view s);
// Without terminal colour sequences (ESC [ … letter).
std::string without_colour(std::string_view s);
// A line of a program's output: visible(), without its colours and the carriage return at its end.
std::string visible_line(std::string_view line);
// The first character that visible() escapes, as a part of `s`; empty: there is none. Invalid UTF-8 is skipped.
std::string_view find_unseen(std::string_view s);
// Replaces each of them; everything else stays as it is.
std::string replace_unseen(std::string_view s, std::string (*escape)(char32_t));

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

// For a terminal of so many columns: longer lines are broken at blanks, between columns of a table if possible, and
// continue at column `hang`, or below the text of "name      text", or two columns after their own start. Longer words
// and commands in backquotes stay whole; colours take no column.
std::string folded(std::string_view text, int columns, std::optional<int> hang = std::nullopt);
// The same for one line of stderr ("[gdnctl] hint: ..."), which continues below its text. A command that can be pasted
// stays whole: what follows "next:", "run:" or "$", and an indented line that begins with "gdnctl".
std::string folded_message(std::string_view line, int columns);

// The end of a text.

// The last `count` lines with their newlines; a last line without one counts.
std::string_view last_lines(std::string_view text, std::size_t count);
// The end of `text` in at most `bytes` bytes, from the start of a line where one starts there.
std::string_view end_within(std::string_view text, std::size_t bytes);

// Percent-encoding of URLs (RFC 3986).

// 0 to 15; -1: not a hexadecimal digit.
int hex_value(char c);

// RFC 3986: letters, digits, -._~ and the characters in `also` stay.
std::string percent_encode(std::string_view text, std::string_view also = {});
// nullopt: a % without two hexadecimal digits, or a NUL.
std::optional<std::string> percent_decode(std::string_view text);

}  // namespace gdnctl::text
