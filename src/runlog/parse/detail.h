// Declarations that the parser's files share.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "runlog/parse/log.h"

namespace gdnctl::runlog::detail {

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_alpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
inline bool is_word(char c) { return is_digit(c) || is_alpha(c) || c == '_'; }
inline bool is_blank(char c) { return c == ' ' || c == '\t'; }
constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

// Ten characters of the form 2026-02-13.
inline bool is_date(std::string_view s) {
    if (s.size() != 10 || s[4] != '-' || s[7] != '-') return false;
    for (const std::size_t i : {0u, 1u, 2u, 3u, 5u, 6u, 8u, 9u}) {
        if (!is_digit(s[i])) return false;
    }
    return true;
}

inline std::string_view strip_zeros(std::string_view digits) {
    while (digits.size() > 1 && digits[0] == '0') digits.remove_prefix(1);
    return digits;
}

// The entry that starts at this line; its extent is not set yet.
std::optional<EntryHead> match_heading(const Line& line);

// A bullet's label and value.
struct Labelled {
    std::string_view label, value;
};
std::optional<Labelled> split_label(std::string_view content);

struct Bullet {
    std::uint32_t indent = 0;
    std::string_view content;  // text after the bullet, trimmed, without a trailing HTML comment
    char marker = '-';
};
std::optional<Bullet> match_bullet(std::string_view line);

// Whether part of an entry contains text: more than blanks, bullets and HTML comments.
bool has_text(std::string_view part);

// Compares a label without case, backticks and asterisks; `prefix`: more may follow after a word boundary.
bool label_is(std::string_view label, std::string_view lower_case_name, bool prefix = false);
bool contains_word(std::string_view lower_case_text, std::string_view needle);

// What a bullet's position says about its numbers.
struct MetricContext {
    Comparison comparison = Comparison::unknown;
    std::string_view heading;
    std::string_view arm;
    bool is_baseline = false;
    bool skip = false;  // inside predictions or commands
};
// Appends every metric on a bullet line.
void read_metrics(std::string_view line, const Bullet& bullet, std::uint32_t number, const MetricContext& context,
                  std::vector<Reading>& readings);
// Metrics of an arm on one line, without colons of their own: `Hybrid: while 2.0 ms, step duration 167 ms`.
void read_arm_metrics(std::string_view line, std::string_view value, std::uint32_t number, const MetricContext& context,
                      std::vector<Reading>& readings);
// The key of a heading of a top-k list: `remainder_topk`, `Remainder top-k (ms)`; empty: another label.
std::string_view topk_key(std::string_view label);
std::optional<TopK> read_topk(std::string_view label, std::string_view value, std::uint32_t number);
// `path: 5.21 ms; path 2.70 ms`, "`path` -> `+5.21 ms`, `path` -> `+2.7 ms`"
std::vector<TopK::Item> read_topk_items(std::string_view text);

// A line that begins or ends a side of an unresolved merge, outside code and comments; nullopt: none.
std::optional<Line> first_conflict(std::string_view text);

// Merges readings by key and adds derived values.
std::vector<Metric> resolve_metrics(const std::vector<Reading>& readings);

}  // namespace gdnctl::runlog::detail
