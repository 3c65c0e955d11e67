// The words for what became of an iteration, the same in all views for people. JSON, the records and the decision line
// of an entry keep the names of the schema: `outcome` test-fail, `decision` within_threshold.
#pragma once

#include <string>
#include <string_view>

namespace gdnctl::runlog {

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

}  // namespace gdnctl::runlog
