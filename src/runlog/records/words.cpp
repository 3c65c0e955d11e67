#include "runlog/records/words.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/text.h"

namespace gdnctl::runlog {

namespace {

struct Known {
    std::string_view outcome;
    OutcomeWords words;
};
constexpr std::array k_outcomes = {
    Known{"test-fail", {"rejected", "tests failed"}}, Known{"compile", {"rejected", "compile error"}},
    Known{"oom", {"rejected", "out of memory"}},      Known{"flaky", {"accepted", "flaky test"}},
    Known{"infra", {"parked", "infrastructure"}},     Known{"environment", {"parked", "environment"}},
    Known{"agent-error", {"failed", "agent error"}},  Known{"timeout", {"failed", "timed out"}},
    Known{"error", {"failed", "loop error"}}};

struct KnownDecision {
    std::string_view name, words;
};
constexpr std::array k_decisions = {KnownDecision{"within_threshold", "no clear gain"},
                                    KnownDecision{"control_flow_regression", "regression found by a gate"},
                                    KnownDecision{"promote_corrupt_champion", "promoted"},
                                    KnownDecision{"metric_missing", "no measurement"},
                                    KnownDecision{"incomparable", "not comparable"},
                                    KnownDecision{"common_factor", "not comparable"},
                                    KnownDecision{"baseline_shift", "new baseline"},
                                    KnownDecision{"aa_ok", "base unchanged"}};

}  // namespace

OutcomeWords outcome_words(std::string_view outcome) {
    const auto at =
        std::find_if(k_outcomes.begin(), k_outcomes.end(), [&](const Known& one) { return one.outcome == outcome; });
    return at == k_outcomes.end() ? OutcomeWords{outcome, {}} : at->words;
}

std::string outcome_phrase(std::string_view outcome) {
    const OutcomeWords words = outcome_words(outcome);
    return words.cause.empty() ? std::string(words.result) : fmt::format("{} ({})", words.result, words.cause);
}

std::string_view decision_words(std::string_view decision) {
    const auto at = std::find_if(k_decisions.begin(), k_decisions.end(),
                                 [&](const KnownDecision& one) { return one.name == decision; });
    return at == k_decisions.end() ? decision : at->words;
}

std::string reason_words(std::string_view reason) {
    const std::size_t end = std::min(reason.find_first_of(":;"), reason.size());
    const std::string_view decision = reason.substr(0, end);
    if (decision == "promoted") return std::string(text::trim(reason.substr(std::min(end + 1, reason.size()))));
    return std::string(decision_words(decision)) + std::string(reason.substr(end));
}

}  // namespace gdnctl::runlog
