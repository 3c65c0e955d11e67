// One word for each fact, in all views for people.
#include "runlog/records/words.h"

#include <doctest/doctest.h>

namespace gdnctl::runlog {

TEST_CASE("words: an outcome has one result and a cause, a decision its words") {
    CHECK(outcome_phrase("accepted") == "accepted");
    CHECK(outcome_phrase("rejected") == "rejected");
    CHECK(outcome_phrase("test-fail") == "rejected (tests failed)");
    CHECK(outcome_phrase("infra") == "parked (infrastructure)");
    CHECK(outcome_phrase("agent-error") == "failed (agent error)");
    CHECK(outcome_phrase("of another version") == "of another version");
    CHECK(decision_words("within_threshold") == "no clear gain");
    CHECK(decision_words("regression") == "regression");
    CHECK(decision_words("low-impact") == "low-impact");
}

TEST_CASE("words: a reason begins with the words for its decision, and does not repeat the result") {
    CHECK(reason_words("within_threshold: 1.012x faster (0.986-1.039x, 3 pairs)") ==
          "no clear gain: 1.012x faster (0.986-1.039x, 3 pairs)");
    CHECK(reason_words("promoted: 1.25x faster (1.247-1.253x, 3 pairs); the machine was busy") ==
          "1.25x faster (1.247-1.253x, 3 pairs); the machine was busy");
    CHECK(reason_words("promoted").empty());
    CHECK(reason_words("case t_long: WRONG") == "case t_long: WRONG");
    CHECK(reason_words("").empty());
}

}  // namespace gdnctl::runlog
