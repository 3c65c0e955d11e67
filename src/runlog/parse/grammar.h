// The grammar of a log: characters, headings, bullets, labels, numbers, and how metrics follow from each other.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "runlog/parse/log.h"

namespace gdnctl::runlog {

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

// Numbers, units and arrows of metric lines.

struct Scale {
    Unit unit = Unit::none;
    double factor = 1;  // factor to the canonical unit
};

// A number as written.
struct Printed {
    double value = 0;
    double half_digit = 0;
    std::string_view text;
    bool null = false;  // n/a
    Scale scale;
    std::size_t end = 0;  // after number and unit
};

// The value or two values after a label.
struct Values {
    Printed first;
    std::optional<Printed> second;
    std::size_t begin = 0, end = 0;
};

// Blanks, and characters for emphasis and code.
inline bool is_soft(char c) { return c == '`' || c == '*' || c == '"' || c == ' ' || c == '\t'; }
std::size_t skip_soft(std::string_view s, std::size_t at);

// [+-]digits[.digits][e[+-]digits], thousands separated by commas; no unit.
std::optional<Printed> read_number(std::string_view s, std::size_t at);
std::optional<Values> read_values(std::string_view s, std::size_t at);
// Length of the arrow at this position (->, U+2192, =>); 0: none.
std::size_t arrow_length(std::string_view s, std::size_t at);

// Relations between the known metrics. The parser uses them to derive missing values, the linter to check given ones.

struct EquationTerm {
    std::string_view key;
    double sign;
};

// sum = terms[0] ± terms[1] ± terms[2], in ms; an empty key ends the terms.
struct Equation {
    std::string_view sum;
    std::array<EquationTerm, 3> terms;
    std::string_view text;
    bool any_term = false;  // derived if any term is known; a missing term counts as 0
};

// Each equation uses only sums of earlier ones.
inline constexpr std::array k_equations = {
    Equation{"kernel_budget_ms",
             {{{"forward_closed_call_ms", 1}, {"backward_closed_call_ms", 1}, {}}},
             "forward + backward",
             true},
    Equation{"control_budget_ms", {{{"while_ms", 1}, {"conditional_ms", 1}, {}}}, "while + conditional", true},
    Equation{"train_path_budget_ms", {{{"kernel_budget_ms", 1}, {"control_budget_ms", 1}, {}}}, "kernel + control"},
    Equation{"remainder_budget_ms", {{{"step_duration_ms", 1}, {"train_path_budget_ms", -1}, {}}}, "step - train-path"},
    Equation{"upper_bound_gap_ms", {{{"step_duration_ms", 1}, {"upper_bound_ms", -1}, {}}}, "step - upper bound"},
    Equation{"interaction_remainder_ms",
             {{{"upper_bound_gap_ms", 1}, {"train_path_budget_ms", -1}, {"hybrid_generic_shell_delta_budget_ms", -1}}},
             "gap - train-path - hybrid generic"},
};

// key = budget / upper_bound_gap_ms, if the gap is positive.
struct GapShare {
    std::string_view key, budget;
};
inline constexpr std::array k_gap_shares = {
    GapShare{"gap_explained_by_train_path", "train_path_budget_ms"},
    GapShare{"gap_explained_by_decoder_layer_shell", "decoder_layer_shell_budget_ms"},
    GapShare{"gap_explained_by_hybrid_generic_shell_delta", "hybrid_generic_shell_delta_budget_ms"}};

}  // namespace gdnctl::runlog
