#include "loop/engine/outcome.h"

#include <algorithm>
#include <array>

#include "core/text.h"

namespace gdnctl::loop {

namespace {

constexpr std::array<std::string_view, 12> k_names = {"accepted",    "no-op", "agent-error", "timeout",
                                                      "environment", "infra", "compile",     "oom",
                                                      "test-fail",   "flaky", "rejected",    "error"};

struct Sign {
    Outcome outcome;
    std::string_view words;
    std::string_view on_that_line = {};  // words that show a problem on the same line; empty: `words` are enough
    Place place = Place::anywhere;       // tpu: a sign only there
};

// In order of precedence.
constexpr std::array k_signs = {
    Sign{Outcome::environment, "No cluster config found for region"},
    Sign{Outcome::environment, "No virtual environment or system Python installation found for path"},
    Sign{Outcome::environment, "The specified bucket does not exist"},
    Sign{Outcome::environment, "bucket does not exist"},
    Sign{Outcome::environment, "gs://", "does not exist", Place::tpu},
    Sign{Outcome::environment, "does not match the region of the VM"},
    Sign{Outcome::environment, "HF_TOKEN is not set"},
    Sign{Outcome::environment, "WANDB_API_KEY is not set"},
    Sign{Outcome::environment, "api_key not configured"},
    Sign{Outcome::infra, "Could not resolve hostname"},
    Sign{Outcome::infra, "port 22: "},
    Sign{Outcome::infra, "The TPU is already in use by"},
    Sign{Outcome::infra, "Device or resource busy"},
    Sign{Outcome::infra, "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"},
    Sign{Outcome::infra, "ConnectionResetError"},
    Sign{Outcome::infra, "localhost:8283", "refused"},
    Sign{Outcome::infra, "Failed to connect to Ray at address"},
    Sign{Outcome::infra, "No accelerator found", {}, Place::tpu},
    Sign{Outcome::infra, "Unable to initialize backend 'tpu'", {}, Place::tpu},
    Sign{Outcome::infra, "alling back to cpu", {}, Place::tpu},
    Sign{Outcome::infra, "alling back to CPU", {}, Place::tpu},
    Sign{Outcome::infra, "job was pending too long"},
    Sign{Outcome::oom, "RESOURCE_EXHAUSTED"},
    Sign{Outcome::oom, "scoped vmem limit"},
    Sign{Outcome::compile, "Mosaic failed to compile"},
    Sign{Outcome::compile, "MosaicError"},
    Sign{Outcome::compile, "XLA compilation failed"},
    Sign{Outcome::compile, "XlaRuntimeError: INTERNAL"},
    Sign{Outcome::compile, "UNIMPLEMENTED: "},
};

bool shows(std::string_view output, const Sign& sign) {
    constexpr auto k_nowhere = std::string_view::npos;
    for (auto at = output.find(sign.words); at != k_nowhere; at = output.find(sign.words, at + 1)) {
        const auto before = output.rfind('\n', at);
        const auto begin = before == k_nowhere ? 0 : before + 1;
        const auto line = output.substr(begin, output.find('\n', at) - begin);
        if (line.find(sign.on_that_line) != k_nowhere) return true;
    }
    return false;
}

bool is_surroundings(Outcome outcome) { return outcome == Outcome::infra || outcome == Outcome::environment; }

}  // namespace

std::string_view to_text(Outcome outcome) { return k_names[static_cast<std::size_t>(outcome)]; }

std::optional<Outcome> parse_outcome(std::string_view text) {
    const auto at = std::find(k_names.begin(), k_names.end(), text);
    if (at == k_names.end()) return std::nullopt;
    return static_cast<Outcome>(at - k_names.begin());
}

OutcomeRule rule_of(Outcome outcome) {
    switch (outcome) {
        case Outcome::accepted: return {Counts::no, Disposition::kept, Pause::no};
        case Outcome::no_op: return {Counts::by_policy, Disposition::none, Pause::no};
        case Outcome::agent_error:
        case Outcome::timeout: return {Counts::yes, Disposition::parked, Pause::no};
        case Outcome::environment: return {Counts::no, Disposition::parked, Pause::at_once};
        case Outcome::infra: return {Counts::no, Disposition::parked, Pause::after_three};
        case Outcome::compile:
        case Outcome::oom:
        case Outcome::test_fail:
        case Outcome::rejected: return {Counts::yes, Disposition::rejected, Pause::no};
        case Outcome::error: return {Counts::by_policy, Disposition::parked, Pause::no};
        case Outcome::flaky: break;
    }
    return {Counts::no, Disposition::kept, Pause::no};
}

std::optional<Failure> failure_of(std::string_view output, Place place) {
    for (const Sign& sign : k_signs) {
        if (sign.place == Place::tpu && place != Place::tpu) continue;
        if (shows(output, sign)) return Failure{sign.outcome, std::string(sign.words)};
    }
    return std::nullopt;
}

bool waits_for_step(std::string_view output) {
    constexpr std::string_view k_running = ": RUNNING";
    const auto state = output.rfind("] Status ");
    if (state == std::string_view::npos) return false;
    const auto line = text::trim(output.substr(state, output.find('\n', state) - state));
    return line.ends_with(k_running) && output.find("lock for ", state) == std::string_view::npos;
}

bool too_many_failures(std::int64_t failures, std::int64_t limit) { return limit >= 0 && failures > limit; }

bool calls_for_a_pause(Outcome outcome) {
    return is_surroundings(outcome) || outcome == Outcome::agent_error || outcome == Outcome::timeout ||
           outcome == Outcome::error;
}

std::int64_t pause_seconds(std::int64_t sleep_seconds, int failures_in_a_row) {
    constexpr std::int64_t k_longest = 900;
    std::int64_t pause = sleep_seconds;
    for (int i = 0; i < failures_in_a_row && pause < k_longest; ++i) pause = std::min(pause * 2, k_longest);
    return std::max(pause, sleep_seconds);
}

std::optional<std::string> circuit_breaker(std::span<const PastIteration> past) {
    constexpr std::size_t k_row = 3;
    if (past.empty()) return std::nullopt;
    const PastIteration& last = past.back();
    const std::string name = last.sign.empty() ? std::string(to_text(last.outcome)) : last.sign;
    const Pause pause = rule_of(last.outcome).pause;
    if (pause == Pause::at_once) return name;
    if (past.size() < k_row) return std::nullopt;
    const auto row = past.last(k_row);
    if (!last.said.empty() &&
        std::all_of(row.begin(), row.end(), [&](const auto& one) { return one.said == last.said; })) {
        return last.said;
    }
    if (pause == Pause::no) return std::nullopt;
    const bool all = std::all_of(row.begin(), row.end(), [](const auto& one) { return is_surroundings(one.outcome); });
    return all ? std::optional(name) : std::nullopt;
}

std::string said_of(std::string_view kind, std::string_view reason) {
    std::string said = std::string(kind) + ": ";
    for (const char c : reason.substr(0, reason.find(", request id"))) {
        const bool digit = c >= '0' && c <= '9';
        if (!digit || said.back() != '0') said += digit ? '0' : c;
    }
    return said;
}

std::optional<std::string_view> budget_end(const Budget& budget, const Spent& spent) {
    if (budget.wall_s && spent.wall_s >= *budget.wall_s) return "max-wall";
    if (budget.tpu_minutes && spent.tpu_s >= *budget.tpu_minutes * 60) return "max-tpu-minutes";
    if (budget.tokens && spent.tokens >= *budget.tokens) return "max-tokens";
    if (budget.plateau && spent.since_promotion >= *budget.plateau) return "plateau";
    return std::nullopt;
}

std::string_view to_text(StageVerdict verdict) {
    switch (verdict) {
        case StageVerdict::pass: return "pass";
        case StageVerdict::fail: return "fail";
        case StageVerdict::skip: break;
    }
    return "skip";
}

}  // namespace gdnctl::loop
