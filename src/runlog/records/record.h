// The record of one iteration (schema gdnctl.iteration/1), the source of truth of a running log. The Markdown entry is
// rendered from it; gates and summaries read it. docs/reference/log-records.md describes every field.
//
// A record is a JSON object whose fields are reached by pointer ("/idea/hypothesis"), not a C++ struct, so that unknown
// fields are preserved. Absent is null or missing, never 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "core/time.h"

namespace gdnctl::runlog {

inline constexpr std::string_view k_record_schema = "gdnctl.iteration/1";

// Number of an iteration in a log: 12, 12a, 12b, 13.
struct IterationNumber {
    std::int64_t number = 0;
    std::string suffix;
    std::string text() const;  // "12a"
    // Orders by number, then by length of the suffix, then by suffix without case: 12 < 12a < 12z < 12aa < 13.
    bool before(const IterationNumber& other) const;
    bool operator==(const IterationNumber& other) const = default;
};
// "12", "12a"; nullopt: anything else.
std::optional<IterationNumber> parse_iteration_number(std::string_view text);

// `20260310T165307Z-82`: start time and iteration.
std::string make_record_id(WallTime started, const IterationNumber& iteration);

// All fields of the schema, in its order. All are absent except the arguments.
Json empty_record(std::string_view id, const IterationNumber& iteration, WallTime started);

// Whether `value` can be stored and rendered as a record: known fields have the right types, and the id may appear in a
// marker. Error: bad_input, naming `what` and the field.
Status check_record(const Json& value, std::string_view what);

std::string id_of(const Json& record);
IterationNumber iteration_of(const Json& record);
// Id of the record that this one replaces; empty: none.
std::string replaced_id(const Json& record);
bool is_import(const Json& record);
bool is_experiment(const Json& record);

// A copy of `old` that replaces it, with an id of its own, "supersedes", and a note of when and why. Old lines are
// never edited.
Json superseding(const Json& old, WallTime at, std::string_view why);

// The current records. A replacement takes the position of the first record in its chain.
std::vector<Json> current_records(const std::vector<Json>& all);

// Masks secret-shaped strings, replaces home directories by `~/` and escapes what text::visible() does in every text of
// the record, because logs are public.
void make_public(Json& record);

// The words for what became of an iteration, the same in all views for people. JSON, the records and the decision line
// of an entry keep the names of the schema: `outcome` test-fail, `decision` within_threshold.

struct OutcomeWords {
    std::string_view result;  // accepted, rejected, parked, failed, no-op
    std::string_view cause;   // "tests failed"; empty: the reason says it
};
// An outcome that is not known is its own result.
OutcomeWords outcome_words(std::string_view outcome);
// "rejected (tests failed)"
std::string outcome_phrase(std::string_view outcome);
// "no clear gain" for within_threshold; a decision that is not known stays as it is.
std::string_view decision_words(std::string_view decision);
// "within_threshold: 1.01x faster" -> "no clear gain: 1.01x faster"; "promoted: 2x faster" -> "2x faster", because the
// result says it.
std::string reason_words(std::string_view reason);

// What the oracle found wrong, at most 12 lines: a line for each group of failures, the first wrong token, and the
// command that reproduces it. Empty: nothing is wrong. `oracle`: {verdict, groups, ...} of a check.
std::vector<std::string> oracle_lines(const Json& oracle);

// Paths that reveal a user's name.

// What `~` stands for: "/home/x", "/Users/x", "C:\Users\x", also after "file://"; without a trailing slash.
struct HomePath {
    std::size_t offset, length;
};

// Every home directory in a text, in order; only where a path may begin.
std::vector<HomePath> find_home_paths(std::string_view text);

}  // namespace gdnctl::runlog
