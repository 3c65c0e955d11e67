#include "services/agent/verdict.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/redact.h"
#include "core/text.h"
#include "services/agent/json_fields.h"
#include "services/agent/reset_time.h"

namespace gdnctl::codex {

namespace {

constexpr int k_panic = 101;

AgentClass class_of_status(int status) {
    if (status == 401 || status == 403) return AgentClass::authentication;
    if (status == 429) return AgentClass::rate_limit;
    return status >= 500 ? AgentClass::server_error : AgentClass::configuration;
}

// The number after `lead`, if there is one.
std::optional<int> number_after(std::string_view text, std::string_view lead) {
    const std::size_t at = text.find(lead);
    if (at == std::string_view::npos) return std::nullopt;
    const std::string_view rest = text.substr(at + lead.size());
    const auto number = text::parse_int(rest.substr(0, rest.find_first_not_of("0123456789")));
    if (!number || *number > 999) return std::nullopt;
    return static_cast<int>(*number);
}

// Apostrophes may be typographic, plain or missing.
std::string plain(std::string_view message) {
    std::string text;
    for (std::size_t i = 0; i < message.size(); ++i) {
        if (message.substr(i).starts_with("\xe2\x80\x99")) {
            i += 2;
        } else if (message[i] != '\'') {
            text += message[i];
        }
    }
    return text::to_lower(text);
}

// For a status of 400, the message is the body of the answer.
std::optional<AgentClass> class_of_body(std::string_view message) {
    message = text::trim(message);
    if (!message.starts_with('{')) return std::nullopt;
    const auto body = parse_json(message, "answer");
    if (!body) return std::nullopt;
    const std::string code = json::text(json::field(*body, "error"), "code");
    if (code == "context_length_exceeded") return AgentClass::context_full;
    if (code == "invalid_prompt") return AgentClass::invalid_prompt;
    return json::field(*body, "error").is_object() || json::field(*body, "detail").is_string()
               ? std::optional(AgentClass::configuration)
               : std::nullopt;
}

struct Phrase {
    std::string_view words;
    AgentClass kind;
};
// In this order, because a server's message may quote words of a later row.
constexpr std::array<Phrase, 28> k_phrases = {{
    {"thread/resume failed", AgentClass::thread_missing},
    {"hit your usage limit", AgentClass::usage_limit},
    {"quota exceeded", AgentClass::quota},
    {"check your plan and billing", AgentClass::quota},
    {"to use codex with your chatgpt plan", AgentClass::quota},
    {"experiencing high demand", AgentClass::server_error},
    {"stream disconnected before completion", AgentClass::stream_cut},
    {"rate limit", AgentClass::rate_limit},
    {"at capacity", AgentClass::overloaded},
    {"ran out of room in the model", AgentClass::context_full},
    {"context window", AgentClass::context_full},
    {"connection failed", AgentClass::unreachable},
    {"error sending request", AgentClass::unreachable},
    {"missing environment variable", AgentClass::configuration},
    {"incomplete response returned", AgentClass::incomplete},
    {"invalid prompt", AgentClass::invalid_prompt},
    {"invalid_prompt", AgentClass::invalid_prompt},
    {"usage policy", AgentClass::invalid_prompt},
    {"model_not_found", AgentClass::configuration},
    {"does not exist or you do not have access", AgentClass::configuration},
    {"model not found", AgentClass::configuration},
    {"model does not exist", AgentClass::configuration},
    {"model is not supported", AgentClass::configuration},
    {"not logged in", AgentClass::authentication},
    {"codex login", AgentClass::authentication},
    {"log in again", AgentClass::authentication},
    {"sign in again", AgentClass::authentication},
    {"unauthorized", AgentClass::authentication},
}};

AgentClass class_of_text(std::string_view message) {
    if (const auto kind = class_of_body(message)) return *kind;
    const std::string text = plain(message);
    if (const auto status = number_after(text, "unexpected status ")) return class_of_status(*status);
    if (const auto status = number_after(text, "last status: ")) return class_of_status(*status);
    for (const Phrase& phrase : k_phrases) {
        if (text.find(phrase.words) != std::string::npos) return phrase.kind;
    }
    return AgentClass::failed;
}

void explain(Verdict& verdict, AgentClass kind, std::string_view reason) {
    verdict.kind = kind;
    verdict.action = action_of(kind);
    const auto line = text::trim(reason);
    verdict.reason = redact(text::repair_utf8(line.substr(0, line.find('\n'))));
    if (kind == AgentClass::configuration) verdict.stop_reason = "codex-config";
    if (kind == AgentClass::authentication) verdict.stop_reason = "codex-auth";
    if (kind == AgentClass::quota) verdict.stop_reason = "codex-quota";
}

// Sets when a retry makes sense.
void add_times(Verdict& verdict, const Evidence& evidence) {
    if (verdict.kind == AgentClass::rate_limit || verdict.kind == AgentClass::overloaded) {
        verdict.retry_after = retry_after_in(evidence.failure);
    }
    if (verdict.kind != AgentClass::usage_limit) return;
    verdict.not_before = reset_time_in(evidence.failure, evidence.now);
    if (verdict.not_before) return;
    constexpr double k_used_up = 95;
    for (const auto& window : evidence.rate_windows) {
        if (window.used_percent < k_used_up || !window.resets_at) continue;
        verdict.not_before = std::max(verdict.not_before.value_or(*window.resets_at), *window.resets_at);
    }
    if (verdict.not_before) *verdict.not_before += std::chrono::minutes(1);
}

bool is_ours_to_end(AgentClass kind) { return kind != AgentClass::stopped && kind != AgentClass::thread_missing; }

void judge_end(Verdict& verdict, const Evidence& evidence) {
    const int code = evidence.exit_code;
    const std::string exited = fmt::format("exited with code {}", code);
    const std::string& complaint = evidence.first_complaint.empty() ? exited : evidence.first_complaint;
    // codex states why it rejects something. A program that says nothing is another one, and may have failed for any
    // reason.
    const bool said = !evidence.first_complaint.empty();
    if (code == 2 && said) return explain(verdict, AgentClass::configuration, complaint);
    if (said && code > 0 && code != k_panic && !evidence.thread_started && !evidence.turn_failed &&
        evidence.failure.empty()) {
        const AgentClass kind = class_of_text(evidence.first_complaint);
        return explain(verdict, kind == AgentClass::failed ? AgentClass::configuration : kind, complaint);
    }
    if (evidence.turn_failed || (!evidence.events && code == 1 && !evidence.failure.empty())) {
        const std::string& why = evidence.failure.empty() ? complaint : evidence.failure;
        return explain(verdict, class_of_failure(evidence.failure, evidence.info), why);
    }
    if (code < 0) {
        return explain(verdict, AgentClass::crashed,
                       fmt::format("was killed by signal {} ({})", -code, strsignal(-code)));
    }
    if (code == k_panic) return explain(verdict, AgentClass::crashed, complaint);
    if (code == 0 && evidence.turn_completed) {
        verdict.exit_status = 0;
        return explain(verdict, AgentClass::ok, "");
    }
    if (code == 0) return explain(verdict, AgentClass::protocol, "ended well without having completed its turn");
    if (evidence.turn_completed) {
        return explain(verdict, AgentClass::protocol, fmt::format("completed its turn, then {}", exited));
    }
    if (evidence.aborted) return explain(verdict, AgentClass::stopped, "was interrupted by someone else");
    if (evidence.info || !evidence.failure.empty()) {
        return explain(verdict, class_of_failure(evidence.failure, evidence.info), evidence.failure);
    }
    explain(verdict, AgentClass::failed, complaint);
}

}  // namespace

AgentClass class_of_failure(std::string_view message, const std::optional<ErrorInfo>& info) {
    const AgentClass by_text = class_of_text(message);
    if (!info || info->name == "other") return by_text;
    const auto status = info->http_status;
    if (info->name == "http_connection_failed" || info->name == "response_too_many_failed_attempts" ||
        info->name == "response_stream_connection_failed") {
        return status ? class_of_status(*status) : AgentClass::unreachable;
    }
    // Three causes share this name; waiting helps with only one.
    if (info->name == "usage_limit_exceeded") {
        return by_text == AgentClass::usage_limit ? AgentClass::usage_limit : AgentClass::quota;
    }
    constexpr std::array<Phrase, 8> k_names = {{{"model_not_found", AgentClass::configuration},
                                                {"bad_request", AgentClass::configuration},
                                                {"unauthorized", AgentClass::authentication},
                                                {"internal_server_error", AgentClass::server_error},
                                                {"rate_limit_exceeded", AgentClass::rate_limit},
                                                {"server_overloaded", AgentClass::overloaded},
                                                {"context_window_exceeded", AgentClass::context_full},
                                                {"invalid_prompt", AgentClass::invalid_prompt}}};
    for (const Phrase& row : k_names) {
        if (row.words == info->name) return row.kind;
    }
    return by_text;
}

AgentAction action_of(AgentClass kind) {
    switch (kind) {
        case AgentClass::ok: return AgentAction::proceed;
        case AgentClass::configuration:
        case AgentClass::authentication:
        case AgentClass::quota: return AgentAction::stop_loop;
        case AgentClass::usage_limit: return AgentAction::wait_until;
        case AgentClass::rate_limit:
        case AgentClass::overloaded:
        case AgentClass::unreachable: return AgentAction::back_off;
        case AgentClass::context_full:
        case AgentClass::thread_missing: return AgentAction::fresh_thread;
        case AgentClass::incomplete: return AgentAction::retry_once;
        case AgentClass::server_error:
        case AgentClass::stream_cut:
        case AgentClass::hang:
        case AgentClass::wall_limit:
        case AgentClass::crashed:
        case AgentClass::protocol:
        case AgentClass::failed: return AgentAction::retry;
        case AgentClass::invalid_prompt:
        case AgentClass::token_limit:
        case AgentClass::compaction_limit:
        case AgentClass::request_limit:
        case AgentClass::stopped: return AgentAction::count;
    }
    return AgentAction::count;
}

Verdict judge(const Evidence& evidence) {
    constexpr int k_our_limit = 124;
    constexpr int k_interrupted = 130;
    constexpr int k_signal_base = 128;
    Verdict verdict;
    const int code = evidence.exit_code;
    verdict.exit_status = code < 0 ? k_signal_base - code : std::max(code, 1);
    if (evidence.our_doing) {
        explain(verdict, *evidence.our_doing, evidence.our_reason);
        if (is_ours_to_end(verdict.kind)) verdict.exit_status = k_our_limit;
        if (verdict.kind == AgentClass::stopped) verdict.exit_status = k_interrupted;
        return verdict;
    }
    judge_end(verdict, evidence);
    verdict.explained = verdict.kind != AgentClass::ok && !evidence.failure.empty();
    add_times(verdict, evidence);
    return verdict;
}

}  // namespace gdnctl::codex
