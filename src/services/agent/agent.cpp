#include "services/agent/agent.h"

#include <algorithm>
#include <csignal>
#include <set>

#include <fmt/format.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/descendants.h"

namespace gdnctl {

using std::chrono::milliseconds;

std::string_view word_of(AgentClass kind) {
    switch (kind) {
        case AgentClass::ok: return "ok";
        case AgentClass::configuration: return "config";
        case AgentClass::authentication: return "auth";
        case AgentClass::quota: return "quota";
        case AgentClass::usage_limit: return "usage-limit";
        case AgentClass::rate_limit: return "rate-limit";
        case AgentClass::overloaded: return "overloaded";
        case AgentClass::server_error: return "server-error";
        case AgentClass::unreachable: return "unreachable";
        case AgentClass::stream_cut: return "stream";
        case AgentClass::context_full: return "context";
        case AgentClass::thread_missing: return "no-thread";
        case AgentClass::invalid_prompt: return "invalid-prompt";
        case AgentClass::incomplete: return "incomplete";
        case AgentClass::hang: return "hang";
        case AgentClass::wall_limit: return "wall-limit";
        case AgentClass::token_limit: return "token-limit";
        case AgentClass::compaction_limit: return "compaction-limit";
        case AgentClass::request_limit: return "request-limit";
        case AgentClass::stopped: return "stopped";
        case AgentClass::crashed: return "crashed";
        case AgentClass::protocol: return "protocol";
        case AgentClass::failed: return "failed";
    }
    return "";
}

std::string_view word_of(AgentAction action) {
    switch (action) {
        case AgentAction::proceed: return "proceed";
        case AgentAction::stop_loop: return "stop";
        case AgentAction::back_off: return "back-off";
        case AgentAction::wait_until: return "wait";
        case AgentAction::retry: return "retry";
        case AgentAction::retry_once: return "retry-once";
        case AgentAction::fresh_thread: return "fresh-thread";
        case AgentAction::count: return "count";
    }
    return "";
}

std::string summary_of(const AgentOutcome& outcome) {
    std::string tokens = "unknown";
    if (outcome.tokens) {
        tokens = fmt::format("{}/{}/{}", outcome.tokens->input, outcome.tokens->cached_input, outcome.tokens->output);
    }
    return fmt::format("class={} rc={} thread={} tokens={} secs={:.1f} survivors={}", word_of(outcome.kind),
                       outcome.exit_status, outcome.thread_id.empty() ? "-" : outcome.thread_id, tokens,
                       static_cast<double>(outcome.elapsed.count()) / 1000, outcome.survivors.size());
}

milliseconds back_off_delay(int waits, double u) {
    constexpr milliseconds k_first{30'000};
    constexpr milliseconds k_longest{15 * 60'000};
    constexpr double k_spread = 0.2;
    const int doublings = std::clamp(waits, 0, 10);
    const milliseconds delay = std::min(k_longest, k_first * (1 << doublings));
    return milliseconds(
        static_cast<std::int64_t>(static_cast<double>(delay.count()) * (1 - k_spread + 2 * k_spread * u)));
}

milliseconds usage_limit_delay(int waits) {
    constexpr milliseconds k_first{15 * 60'000};
    constexpr milliseconds k_longest{120 * 60'000};
    return std::min(k_longest, k_first * (1 << std::clamp(waits, 0, 10)));
}

milliseconds provider_pause(const AgentOutcome& outcome, int waits, double u, WallTime now) {
    if (outcome.action != AgentAction::back_off && outcome.action != AgentAction::wait_until) return milliseconds(0);
    if (outcome.not_before && *outcome.not_before > now) {
        return std::chrono::ceil<milliseconds>(*outcome.not_before - now);
    }
    if (outcome.action == AgentAction::wait_until) return usage_limit_delay(waits);
    return std::max(back_off_delay(waits, u), outcome.retry_after.value_or(milliseconds(0)));
}

void StartLimit::failed(std::chrono::steady_clock::time_point started) {
    constexpr std::size_t k_starts = 3;
    m_failed.push_back(started);
    if (m_failed.size() > k_starts) m_failed.pop_front();
}

milliseconds StartLimit::wait(std::chrono::steady_clock::time_point now) const {
    constexpr std::size_t k_starts = 3;
    constexpr std::chrono::minutes k_window{1};
    if (m_failed.size() < k_starts) return milliseconds(0);
    return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(m_failed.front() + k_window - now));
}

bool is_providers(AgentClass kind) {
    return kind == AgentClass::usage_limit || kind == AgentClass::rate_limit || kind == AgentClass::overloaded ||
           kind == AgentClass::server_error || kind == AgentClass::unreachable || kind == AgentClass::stream_cut;
}

std::vector<ProcessResult::Survivor> sweep_loop(std::string_view loop_id, Clock& clock) {
    constexpr milliseconds k_grace{2000};
    constexpr milliseconds k_quiet{20};
    std::vector<ProcessResult::Survivor> found;
    if (loop_id.empty()) return found;
    const std::string entry = fmt::format("{}={}", k_loop_id_variable, loop_id);
    std::set<ProcessId> known;
    const auto find = [&] {
        const auto all = all_processes();
        auto carriers = processes_with_entry(entry, all);
        // May be called from inside the loop: the caller must survive to get the result.
        std::set<pid_t> spared = {getpid()};
        for (pid_t at = getpid(); at > 1;) {
            const auto info = process_info(at);
            at = info ? info->parent : 0;
            spared.insert(at);
        }
        std::erase_if(carriers, [&](const ProcessId& id) { return spared.contains(id.pid); });
        for (const auto& id : carriers) {
            if (known.insert(id).second) found.push_back({id, process_command(id.pid), process_age(id)});
        }
        return carriers;
    };
    for (int quiet = 0; quiet < 2;) {
        const EndReport report = end_processes(find, k_grace, clock);
        if (report.left > 0) break;
        quiet = report.ended == 0 ? quiet + 1 : 0;
        clock.sleep_for(k_quiet, {});
    }
    return found;
}

}  // namespace gdnctl
