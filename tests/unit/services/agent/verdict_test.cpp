// Every way in which a turn fails: class and action, with the rollout and without it.
#include "services/agent/verdict.h"

#include <cstdlib>
#include <ctime>

#include <doctest/doctest.h>

#include "unit/services/agent/codex_fixture.h"

using namespace gdnctl;
using namespace gdnctl::codex;
using namespace gdnctl::test;
using namespace std::chrono_literals;

namespace {

struct Row {
    const char* message;
    const char* info;
    AgentClass kind;
    AgentAction action;
};

const Row k_rows[] = {
    {R"({"error":{"message":"Unsupported value","type":"invalid_request_error","param":"reasoning.effort","code":"unsupported_value"}})",
     R"("other")", AgentClass::configuration, AgentAction::stop_loop},
    {"unexpected status 401 Unauthorized: bad key, url: http://h/v1/responses, request id: r",
     R"({"http_connection_failed":{"http_status_code":401}})", AgentClass::authentication, AgentAction::stop_loop},
    {"unexpected status 403 Forbidden: no, url: http://h/v1/responses",
     R"({"http_connection_failed":{"http_status_code":403}})", AgentClass::authentication, AgentAction::stop_loop},
    {"The model `m` does not exist or you do not have access to it.", R"("model_not_found")", AgentClass::configuration,
     AgentAction::stop_loop},
    {"exceeded retry limit, last status: 429 Too Many Requests, request id: r",
     R"({"response_too_many_failed_attempts":{"http_status_code":429}})", AgentClass::rate_limit,
     AgentAction::back_off},
    {"You\xe2\x80\x99ve hit your usage limit. Visit https://x/usage to purchase more credits or try again at 5:45 AM.",
     R"("usage_limit_exceeded")", AgentClass::usage_limit, AgentAction::wait_until},
    {"Your workspace is out of credits. Add credits to continue.", R"("usage_limit_exceeded")", AgentClass::usage_limit,
     AgentAction::wait_until},
    {"You've used up your credits. Buy more or try again in 3 days 4 hours.", R"("usage_limit_exceeded")",
     AgentClass::usage_limit, AgentAction::wait_until},
    {"The usage limit has been reached", R"("usage_limit_exceeded")", AgentClass::usage_limit, AgentAction::wait_until},
    {"Quota exceeded. Check your plan and billing details.", R"("usage_limit_exceeded")", AgentClass::quota,
     AgentAction::stop_loop},
    {"To use Codex with your ChatGPT plan, upgrade to Plus: https://x", R"("usage_limit_exceeded")", AgentClass::quota,
     AgentAction::stop_loop},
    {"We\xe2\x80\x99re currently experiencing high demand, which may cause temporary errors.",
     R"("internal_server_error")", AgentClass::server_error, AgentAction::retry},
    {"unexpected status 503 Service Unavailable: busy", R"({"http_connection_failed":{"http_status_code":503}})",
     AgentClass::server_error, AgentAction::retry},
    {"stream disconnected before completion: Transport error: network error: error decoding response body",
     R"("other")", AgentClass::stream_cut, AgentAction::retry},
    {"stream disconnected before completion: stream closed before response.completed", R"("other")",
     AgentClass::stream_cut, AgentAction::retry},
    {"stream disconnected before completion: idle timeout waiting for SSE", R"("other")", AgentClass::stream_cut,
     AgentAction::retry},
    {"stream disconnected before completion: the rate limit of our patience", R"("other")", AgentClass::stream_cut,
     AgentAction::retry},
    {"rate limit exceeded: slow down. Please try again in 1.5s.", R"("rate_limit_exceeded")", AgentClass::rate_limit,
     AgentAction::back_off},
    {"Selected model is at capacity. Please try a different model.", R"("server_overloaded")", AgentClass::overloaded,
     AgentAction::back_off},
    {"Codex ran out of room in the model's context window. Start a new thread or clear earlier history before "
     "retrying.",
     R"("context_window_exceeded")", AgentClass::context_full, AgentAction::fresh_thread},
    {"Invalid prompt: your prompt was flagged", R"("invalid_prompt")", AgentClass::invalid_prompt, AgentAction::count},
    {"Incomplete response returned, reason: max_output_tokens", R"("other")", AgentClass::incomplete,
     AgentAction::retry_once},
    {"Connection failed: error sending request", R"({"http_connection_failed":{"http_status_code":null}})",
     AgentClass::unreachable, AgentAction::back_off},
    {"Missing environment variable: `MOCK_KEY`.", R"("other")", AgentClass::configuration, AgentAction::stop_loop},
};

WallTime at(const char* text) { return *parse_iso8601(text); }

class Zone {
public:
    explicit Zone(const char* name) {
        if (const char* before = std::getenv("TZ")) m_before = before;
        setenv("TZ", name, 1);
        tzset();
    }
    ~Zone() {
        if (m_before)
            setenv("TZ", m_before->c_str(), 1);
        else
            unsetenv("TZ");
        tzset();
    }
    Zone(const Zone&) = delete;
    Zone& operator=(const Zone&) = delete;

private:
    std::optional<std::string> m_before;
};

}  // namespace

TEST_CASE("codex verdict: each cause has its class and action, with the rollout and without") {
    CodexFixture world;
    for (const Row& row : k_rows) {
        for (const bool rollout : {true, false}) {
            CAPTURE(row.message);
            CAPTURE(rollout);
            world.settings.ephemeral = !rollout;
            const auto outcome = world.run(fmt::format("thread\nfailed {} || {}\nexit 1", row.message, row.info));
            CHECK(outcome.kind == row.kind);
            CHECK(outcome.action == row.action);
            CHECK(outcome.exit_status == 1);
            CHECK_FALSE(outcome.reason.empty());
            CHECK(outcome.stop_reason.empty() == (row.action != AgentAction::stop_loop));
        }
    }
}

TEST_CASE("codex verdict: what the rollout says about an unknown text decides") {
    CHECK(class_of_failure("whatever", ErrorInfo{"model_not_found", {}}) == AgentClass::configuration);
    CHECK(class_of_failure("whatever", ErrorInfo{"invalid_prompt", {}}) == AgentClass::invalid_prompt);
    CHECK(class_of_failure("whatever", ErrorInfo{"usage_limit_exceeded", {}}) == AgentClass::quota);
    CHECK(class_of_failure("whatever", ErrorInfo{"http_connection_failed", {}}) == AgentClass::unreachable);
    CHECK(class_of_failure("whatever", ErrorInfo{"http_connection_failed", 404}) == AgentClass::configuration);
    CHECK(class_of_failure("whatever", ErrorInfo{"something_new", {}}) == AgentClass::failed);
    CHECK(class_of_failure("You've hit your usage limit", std::nullopt) == AgentClass::usage_limit);
    CHECK(class_of_failure("YOUVE HIT YOUR USAGE LIMIT", std::nullopt) == AgentClass::usage_limit);
    CHECK(class_of_failure(R"({"error":{"code":"context_length_exceeded"}})", std::nullopt) ==
          AgentClass::context_full);
    CHECK(class_of_failure("{", std::nullopt) == AgentClass::failed);
}

TEST_CASE("codex verdict: our own doing comes before all that the program says") {
    Evidence evidence;
    evidence.exit_code = 1;
    evidence.thread_started = evidence.turn_failed = true;
    evidence.failure = "unexpected status 401 Unauthorized";
    CHECK(judge(evidence).kind == AgentClass::authentication);
    CHECK(judge(evidence).explained);
    evidence.our_doing = AgentClass::token_limit;
    evidence.our_reason = "used 5 of 4 tokens";
    const auto verdict = judge(evidence);
    CHECK(verdict.kind == AgentClass::token_limit);
    CHECK_FALSE(verdict.explained);
    CHECK(verdict.exit_status == 124);
    CHECK(verdict.action == AgentAction::count);
}

TEST_CASE("codex verdict: somebody else's SIGINT") {
    Evidence evidence;
    evidence.exit_code = 1;
    evidence.thread_started = evidence.aborted = true;
    CHECK(judge(evidence).kind == AgentClass::stopped);
}

TEST_CASE("codex verdict: usage limits say when they reset, in local time") {
    const Zone zone("CET-1CEST,M3.5.0,M10.5.0/3");  // UTC+1 in November
    const auto now = at("2026-11-22T12:00:00Z");    // 13:00 there
    const auto reset = [&](const char* text) { return reset_time_in(text, now); };
    CHECK(reset("or try again at 1:45 PM.") == at("2026-11-22T12:46:00Z"));
    CHECK(reset("or try again at 1:00 PM.") == at("2026-11-22T12:01:00Z"));   // this minute
    CHECK(reset("or try again at 12:05 AM.") == at("2026-11-22T23:06:00Z"));  // of the next day
    CHECK(reset("try again at 17:45.") == at("2026-11-22T16:46:00Z"));
    CHECK(reset("resets 3pm (Europe/Oslo)") == at("2026-11-22T14:01:00Z"));
    CHECK(reset("try again at 3:30 p.m. UTC") == at("2026-11-22T15:31:00Z"));
    CHECK(reset("try again tomorrow. Try again at tomorrow 5:45 AM") == at("2026-11-23T04:46:00Z"));
    CHECK(reset("try again at Nov 24th, 2026 4:07 PM.") == at("2026-11-24T15:08:00Z"));
    CHECK(reset("try again at November 30th, 2026 3:04 PM.") == at("2026-11-30T14:05:00Z"));
    CHECK(reset("try again at Dec 1 4:07 PM.") == at("2026-12-01T15:08:00Z"));
    CHECK(reset("try again at 1 Dec 2026 16:07") == at("2026-12-01T15:08:00Z"));
    CHECK(reset("try again at Jan 2nd 4:07 PM.") == at("2027-01-02T15:08:00Z"));
    CHECK(reset("try again at Jul 1st, 2027 4:07 AM.") == at("2027-07-01T02:08:00Z"));
    CHECK(reset("try again at 2026-11-24T16:07:00Z") == at("2026-11-24T16:08:00Z"));
    CHECK(reset("try again at 2026-11-24 16:07") == at("2026-11-24T15:08:00Z"));
    CHECK(reset("try again in 3 days 4 hours.") == at("2026-11-25T16:01:00Z"));
    CHECK(reset("try again in 1 day, 2 hours and 5 minutes.") == at("2026-11-23T14:06:00Z"));
    CHECK(reset("Try again in 45 minutes.") == at("2026-11-22T12:46:00Z"));
    CHECK(reset("try again in about an hour") == at("2026-11-22T13:01:00Z"));
    CHECK(reset("try again in 2h5m") == at("2026-11-22T14:06:00Z"));
    for (const char* none :
         {"try again later.", "try again at noon.", "try again at 25:00 PM.", "try again at 17:45 PM.", "try again at",
          "try again at 5", "try again at Nov 4:07 PM", "try again in a few minutes", "try again at 4:70 PM"}) {
        CAPTURE(none);
        CHECK_FALSE(reset(none));
    }
    // What has passed, although the provider still refuses, says nothing of the next answer.
    for (const char* past : {"try again at 12:30 PM.", "try again at 5:45 AM.", "try again at Nov 21st, 2026 4:07 PM.",
                             "try again at Nov 22nd, 2026 12:58 PM.", "try again at 2026-11-22T11:00:00Z"}) {
        CAPTURE(past);
        CHECK_FALSE(reset(past));
    }

    Evidence evidence;
    evidence.exit_code = 1;
    evidence.thread_started = evidence.turn_failed = true;
    evidence.now = now;
    evidence.failure = "You've hit your usage limit. Try again later.";
    CHECK_FALSE(judge(evidence).not_before);
    evidence.rate_windows = {{99, at("2026-11-22T11:59:00Z")}};  // passed
    CHECK_FALSE(judge(evidence).not_before);
    evidence.rate_windows = {{40, at("2026-11-22T13:00:00Z")}, {99, at("2026-11-22T18:00:00Z")}};
    CHECK(judge(evidence).not_before == at("2026-11-22T18:01:00Z"));
    evidence.failure = "You've hit your usage limit. Try again at 1:45 PM.";
    CHECK(judge(evidence).not_before == at("2026-11-22T12:46:00Z"));
}

TEST_CASE("codex verdict: how long a rate limit asks to wait") {
    CHECK(retry_after_in("Please try again in 1.5s.") == 1500ms);
    CHECK(retry_after_in("Please try again in 20ms") == 20ms);
    CHECK(retry_after_in("try again in 1h2m3s.") == 3'723'000ms);
    CHECK(retry_after_in("try again in 20 seconds") == 20s);
    CHECK_FALSE(retry_after_in("try again in a while"));
    CHECK_FALSE(retry_after_in("try again"));
    CHECK(retry_after_in("try again in 99999999999h") == 7 * 24h);
}

TEST_CASE("codex verdict: waits grow and have an end") {
    AgentOutcome outcome;
    const auto now = at("2026-11-22T12:00:00Z");
    outcome.action = AgentAction::back_off;
    CHECK(provider_pause(outcome, 0, 0.5, now) == 30s);
    CHECK(provider_pause(outcome, 1, 0.5, now) == 60s);
    CHECK(provider_pause(outcome, 9, 0.5, now) == 15min);
    CHECK(provider_pause(outcome, 0, 0, now) == 24s);
    CHECK(provider_pause(outcome, 0, 1, now) == 36s);
    CHECK(provider_pause(outcome, 100, 0.5, now) == 15min);
    outcome.action = AgentAction::wait_until;
    CHECK(provider_pause(outcome, 0, 0.5, now) == 15min);
    CHECK(provider_pause(outcome, 2, 0.5, now) == 1h);
    CHECK(provider_pause(outcome, 50, 0.5, now) == 2h);

    outcome.action = AgentAction::wait_until;
    CHECK(provider_pause(outcome, 0, .5, now) == 15min);
    CHECK(provider_pause(outcome, 1, .5, now) == 30min);
    outcome.not_before = now - 1min;
    CHECK(provider_pause(outcome, 1, .5, now) == 30min);
    outcome.not_before = now + 3h;
    CHECK(provider_pause(outcome, 1, .5, now) == 3h);
    outcome.action = AgentAction::back_off;
    outcome.not_before.reset();
    outcome.retry_after = 50s;
    CHECK(provider_pause(outcome, 0, .5, now) == 50s);
    CHECK(provider_pause(outcome, 1, .5, now) == 60s);
    outcome.action = AgentAction::retry;
    CHECK(provider_pause(outcome, 1, .5, now) == 0s);
}

TEST_CASE("agent: three failing starts a minute, and no limit for others") {
    StartLimit limit;
    const std::chrono::steady_clock::time_point start{};
    for (const auto after : {0s, 5s, 10s}) {
        CHECK(limit.wait(start + after) == 0s);
        limit.failed(start + after);
    }
    CHECK(limit.wait(start + 12s) == 48s);
    CHECK(limit.wait(start + 60s) == 0s);
    limit.failed(start + 60s);
    CHECK(limit.wait(start + 61s) == 4s);
    limit.succeeded();
    CHECK(limit.wait(start + 61s) == 0s);
}

TEST_CASE("agent: what other programs say of their provider") {
    const auto now = at("2026-11-22T12:00:00Z");
    const auto kind = [&](const char* text) {
        const auto verdict = provider_trouble(text, now);
        return verdict ? verdict->kind : AgentClass::ok;
    };
    CHECK(kind("Traceback\n  File x\nopenai.APIConnectionError: Connection error.") == AgentClass::unreachable);
    CHECK(kind("litellm.RateLimitError: slow down") == AgentClass::rate_limit);
    CHECK(kind("openai.RateLimitError: Error code: 429 - {'error': {'code': 'insufficient_quota'}}") ==
          AgentClass::usage_limit);
    CHECK(kind("anthropic.InternalServerError: Error code: 529 - overloaded_error") == AgentClass::overloaded);
    CHECK(kind("Error: Your credit balance is too low to access the API") == AgentClass::usage_limit);
    CHECK(kind("curl: (6) Could not resolve host: api.example.org\n") == AgentClass::unreachable);
    CHECK(kind("HTTP/1.1 503 Service Unavailable") == AgentClass::server_error);
    CHECK(kind("TypeError: fetch failed") == AgentClass::unreachable);
    CHECK(kind("SyntaxError: invalid syntax") == AgentClass::ok);
    CHECK(kind("") == AgentClass::ok);
    const auto limit = provider_trouble("You have hit your usage limit, try again in 2 hours.\n", now);
    REQUIRE(limit);
    CHECK(limit->action == AgentAction::wait_until);
    CHECK(limit->not_before == at("2026-11-22T14:01:00Z"));
}
