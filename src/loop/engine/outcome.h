// What an iteration came to, what follows from that, and when a run ends. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gdnctl::loop {

enum class Outcome {
    accepted,
    no_op,
    agent_error,
    timeout,
    environment,
    infra,
    compile,
    oom,
    test_fail,
    flaky,
    rejected,
    error  // of the iteration itself: a dirty tree, a branch that was switched, git
};
std::string_view to_text(Outcome outcome);  // as records name them: "no-op", "test-fail", ...
std::optional<Outcome> parse_outcome(std::string_view text);

enum class Retry { none, clean_attempt, elsewhere, that_test };
enum class Counts { no, yes, by_policy };
enum class Fate { none, kept, parked, rejected };  // of the candidate; parked and rejected stay on a ref
enum class Pause { no, at_once, after_three };

struct OutcomeRule {
    Retry retry = Retry::none;
    Counts counts = Counts::no;
    Fate fate = Fate::none;
    Pause pause = Pause::no;
    int most_retries = 0;  // of that_test
    bool operator==(const OutcomeRule&) const = default;
};
OutcomeRule rule_of(Outcome outcome);

// What is to be seen in the output of a check that failed. The `sign` is the words that decided, the same for the same
// trouble, whatever else was printed.
struct Failure {
    Outcome outcome = Outcome::test_fail;
    std::string sign;
    bool operator==(const Failure&) const = default;
};
// What the check was to run on. Where no TPU is wanted, JAX says on any host that it has none, and a file that a test
// misses in a bucket is the test's matter: neither is a sign.
enum class Place { tpu, anywhere };
// nullopt: none of the known signs. Trouble of the surroundings wins over what it causes further down.
std::optional<Failure> failure_of(std::string_view output, Place place = Place::tpu);

// Marin's executor found a step RUNNING by somebody else's hand, and nothing came after that: it waits without a word
// until that one ends, or forever.
bool waits_for_step(std::string_view output);

// Counted failures: `limit` 0 stops at the first one, negative never.
bool too_many_failures(std::int64_t failures, std::int64_t limit);
// Nothing could be judged: by trouble of the agent or of the surroundings.
bool calls_for_a_pause(Outcome outcome);
// Seconds to wait after an iteration; each failure in a row doubles it, to 15 minutes at most.
std::int64_t pause_seconds(std::int64_t sleep_seconds, int failures_in_a_row);

// Iterations that ended, the last one last.
struct PastIteration {
    Outcome outcome = Outcome::accepted;
    std::string sign{};
    std::string said{};  // by the agent, of why it could not work: class and text
};
// Whether the run has to pause: `environment`, at once; the third failure in a row of either class of the surroundings;
// or the third in a row of which the agent says the same. The sign, or the class where there is none, or what the agent
// says; nullopt: it goes on.
std::optional<std::string> circuit_breaker(std::span<const PastIteration> past);

// PastIteration::said of a failure: what names this one request (`request id`, numbers) is not in it.
std::string said_of(std::string_view kind, std::string_view reason);

struct Budget {
    std::optional<std::int64_t> wall_s = std::nullopt, tpu_minutes = std::nullopt, tokens = std::nullopt;
    std::optional<int> plateau = std::nullopt;  // iterations without a promotion
};
struct Spent {
    std::int64_t wall_s = 0, tpu_s = 0, tokens = 0;
    int since_promotion = 0;
};
// The reason to stop before another iteration begins: "max-wall", "max-tpu-minutes", "max-tokens", "plateau".
std::optional<std::string_view> budget_end(const Budget& budget, const Spent& spent);

}  // namespace gdnctl::loop
