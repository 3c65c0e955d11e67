// The result of an iteration, its consequences, and when a run ends. Pure.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "loop/engine/journal.h"
#include "loop/engine/log_dir.h"
#include "loop/engine/options.h"
#include "loop/engine/transaction.h"

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
    error  // of the iteration itself: a dirty tree, a switched branch, git
};
std::string_view to_text(Outcome outcome);  // as in records: "no-op", "test-fail", ...
std::optional<Outcome> parse_outcome(std::string_view text);

enum class Counts { no, yes, by_policy };
enum class Disposition { none, kept, parked, rejected };  // of the candidate; parked and rejected ones stay on a ref
enum class Pause { no, at_once, after_three };

struct OutcomeRule {
    Counts counts = Counts::no;
    Disposition disposition = Disposition::none;
    Pause pause = Pause::no;
    bool operator==(const OutcomeRule&) const = default;
};
OutcomeRule rule_of(Outcome outcome);

// The cause of a failure, read from a check's output. `sign` is the deciding words, identical for the same cause
// regardless of the rest of the output.
struct Failure {
    Outcome outcome = Outcome::test_fail;
    std::string sign;
    bool operator==(const Failure&) const = default;
};
// What the check was supposed to run on. If no TPU is wanted, JAX reports on every host that it finds none, and a
// missing file in a bucket is the test's own problem: neither is a sign of trouble.
enum class Place { tpu, anywhere };
// nullopt: no known sign. A problem of the environment takes precedence over its consequences further down.
std::optional<Failure> failure_of(std::string_view output, Place place = Place::tpu);

// Marin's executor found a step that another run has marked RUNNING, and printed nothing since: it waits silently until
// that step ends, possibly forever.
bool waits_for_step(std::string_view output);

// Counted failures: `limit` 0 stops at the first one, a negative one never.
bool too_many_failures(std::int64_t failures, std::int64_t limit);
// Nothing could be judged because the agent or the environment failed.
bool calls_for_a_pause(Outcome outcome);
// Seconds to wait after an iteration. Each failure in a row doubles them, up to 15 minutes.
std::int64_t pause_seconds(std::int64_t sleep_seconds, int failures_in_a_row);

// Finished iterations, the latest last.
struct PastIteration {
    Outcome outcome = Outcome::accepted;
    std::string sign{};
    std::string said{};  // what the agent said about why it could not work: class and text
};
// Whether the run must stop: after one `environment`, after the third infrastructure or environment failure in a row,
// or after the third in a row for which the agent gives the same reason. Returns the sign, else the class, else the
// agent's words; nullopt: the run continues.
std::optional<std::string> circuit_breaker(std::span<const PastIteration> past);

// PastIteration::said of a failure, without what is specific to one request (`request id`, numbers).
std::string said_of(std::string_view kind, std::string_view reason);

struct Budget {
    std::optional<std::int64_t> wall_s = std::nullopt, tpu_minutes = std::nullopt, tokens = std::nullopt;
    std::optional<int> plateau = std::nullopt;  // iterations without a promotion
};
struct Spent {
    std::int64_t wall_s = 0, tpu_s = 0, tokens = 0;
    int since_promotion = 0;
};
// The reason not to start another iteration: "max-wall", "max-tpu-minutes", "max-tokens", "plateau".
std::optional<std::string_view> budget_end(const Budget& budget, const Spent& spent);

// The checks that a candidate must pass, one after the other, cheap ones first: protected paths, post-checks, tests on
// the device, profile, performance policy. The engine runs them in order, writes a `stage` record after each, and
// continues with the decision. A stage with a record is not run again after a kill.

enum class StageVerdict { pass, fail, skip };
std::string_view to_text(StageVerdict verdict);

struct StageContext {
    int iteration = 0;
    const Base& base;
    const Candidate& candidate;
    const std::filesystem::path& tree;  // contains exactly the candidate's files; in place: the user's checkout
    const Artefacts& artefacts;
    std::string run;  // its name
    std::stop_token stop{};
};

struct StageResult {
    StageVerdict verdict = StageVerdict::pass;
    Outcome outcome = Outcome::rejected;  // of a failure
    std::string reason{};                 // one line for people; empty if it passed without comment
    std::string sign{};                   // see Failure::sign
    int exit_status = 0;                  // the loop's exit code if the policy is `fail`
    // Overrides the stage's own policy: a candidate that cannot be distinguished from the champion is removed without
    // counting a failure (`continue`).
    std::optional<Policy> policy{};
    bool promoted = false;  // the candidate is the new champion
    std::int64_t tpu_ms = 0;
    // Facts for the record: gate names with "pass 4.1 <= 5.0", metric names with values as text.
    std::map<std::string, std::string> facts{};
};

class Stage {
public:
    virtual ~Stage() = default;
    virtual std::string_view name() const = 0;  // [a-z-]+, unique within a run
    // What to do with an iteration that fails here.
    virtual Policy policy() const = 0;
    // Whether the stage also runs for a candidate that changes nothing (post-checks of the first version do not).
    virtual bool wants(DiffClass diff) const = 0;
    // Errors: problems that are neither the candidate's fault nor a known environment failure.
    virtual Result<StageResult> run(const StageContext& context) = 0;
};

}  // namespace gdnctl::loop
