#include "services/agent/agent.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "core/redact.h"
#include "core/text.h"
#include "platform/clock.h"
#include "platform/descendants.h"
#include "platform/env.h"
#include "platform/http_policy.h"

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

namespace {

// A provider that is overloaded, limits the rate or cannot be reached: 30 s doubling to 15 min, ±20 %.
RetryPolicy overload_policy() {
    RetryPolicy policy;
    policy.first_delay = milliseconds(30'000);
    policy.factor = 2;
    policy.max_delay = std::chrono::minutes(15);
    policy.least_part = 0.8;
    policy.random_part = 0.4;
    return policy;
}

// A usage limit whose end is not known: 15 min doubling to 2 h.
RetryPolicy usage_limit_policy() {
    RetryPolicy policy;
    policy.first_delay = std::chrono::minutes(15);
    policy.factor = 2;
    policy.max_delay = std::chrono::hours(2);
    return policy;
}

}  // namespace

milliseconds provider_pause(const AgentOutcome& outcome, int waits, double u, WallTime now) {
    if (outcome.action != AgentAction::back_off && outcome.action != AgentAction::wait_until) return milliseconds(0);
    if (outcome.not_before && *outcome.not_before > now) {
        return std::chrono::ceil<milliseconds>(*outcome.not_before - now);
    }
    if (outcome.action == AgentAction::wait_until) return http::retry_delay(usage_limit_policy(), waits + 1);
    return http::retry_delay(overload_policy(), waits + 1, outcome.retry_after, u);
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

// The part of our environment that an agent may see: an allow-list, never a deny-list.

namespace {

constexpr std::array<std::string_view, 3> k_never = {"HF_TOKEN", "WANDB_API_KEY", "RAY_AUTH_TOKEN"};

constexpr std::array k_names = {
    // user and paths
    std::string_view("PATH"), std::string_view("HOME"), std::string_view("USER"), std::string_view("LOGNAME"),
    std::string_view("SHELL"), std::string_view("LANG"), std::string_view("LANGUAGE"), std::string_view("TERM"),
    std::string_view("TMPDIR"), std::string_view("TZ"), std::string_view("HOSTNAME"),
    // network access
    std::string_view("HTTP_PROXY"), std::string_view("HTTPS_PROXY"), std::string_view("NO_PROXY"),
    std::string_view("ALL_PROXY"), std::string_view("http_proxy"), std::string_view("https_proxy"),
    std::string_view("no_proxy"), std::string_view("all_proxy"), std::string_view("SSL_CERT_FILE"),
    std::string_view("SSL_CERT_DIR"), std::string_view("REQUESTS_CA_BUNDLE"), std::string_view("CURL_CA_BUNDLE"),
    std::string_view("NODE_EXTRA_CA_CERTS"), std::string_view("SSH_AUTH_SOCK"),
    // the agent itself and its model provider
    std::string_view("CODEX_HOME"), std::string_view("CODEX_API_KEY"), std::string_view("OPENAI_API_KEY"),
    std::string_view("OPENAI_BASE_URL"), std::string_view("OPENAI_ORGANIZATION"), std::string_view("OPENAI_PROJECT"),
    // building and measuring
    std::string_view("CC"), std::string_view("CXX"), std::string_view("CFLAGS"), std::string_view("CXXFLAGS"),
    std::string_view("CPPFLAGS"), std::string_view("LDFLAGS"), std::string_view("LD_LIBRARY_PATH"),
    std::string_view("MAKEFLAGS"), std::string_view("VIRTUAL_ENV"), std::string_view("PYTHONPATH"),
    std::string_view("PYTHONDONTWRITEBYTECODE"), std::string_view("CONDA_PREFIX"), std::string_view("XLA_FLAGS"),
    std::string_view("LIBTPU_INIT_ARGS"), std::string_view("OMP_NUM_THREADS"), std::string_view("MARIN_PREFIX"),
    std::string_view("HF_HOME"), std::string_view("WANDB_MODE"), std::string_view("WANDB_ENTITY"),
    std::string_view("WANDB_PROJECT"), std::string_view("RAY_ADDRESS"), std::string_view("RAY_AUTH_TOKEN_PATH"),
    std::string_view("GOOGLE_CLOUD_PROJECT"), std::string_view("NO_COLOR"), std::string_view("GDNCTL")};

constexpr std::array<std::string_view, 12> k_prefixes = {
    "LC_",     "XDG_",        "GDNCTL_",        "UV_",         "JAX_",      "TPU_",
    "CCACHE_", "GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_CONFIG_", "CLOUDSDK_", "CARGO_"};

// A name that contains one of these is not allowed by a prefix.
bool speaks_of_a_secret(std::string_view any_name) {
    const std::string name = text::to_lower(any_name);
    constexpr std::array<std::string_view, 7> k_words = {"token",  "secret", "passw",     "api_key",
                                                         "apikey", "_key",   "credential"};
    return std::any_of(k_words.begin(), k_words.end(),
                       [&](std::string_view word) { return name.find(word) != std::string::npos; });
}

constexpr std::size_t k_shortest = 8;

// Whether a value is the secret that its name suggests. MAX_TOKENS, SSH_KEY_FILE and GIT_CONFIG_KEY_0 hold none, nor
// does the path of a file. A secret may also begin with '/'.
bool is_secret(std::string_view any_name, std::string_view value) {
    constexpr std::array<std::string_view, 9> k_ends = {"token",  "secret", "password", "passwd",    "_pass",
                                                        "apikey", "_key",   "_pat",     "credential"};
    const std::string name = text::to_lower(any_name);
    if (value.size() < k_shortest || name.ends_with("ssh_key")) return false;
    if (std::none_of(k_ends.begin(), k_ends.end(), [&](std::string_view end) { return name.ends_with(end); }))
        return false;
    std::error_code problem;
    return value.front() != '/' || !std::filesystem::exists(value, problem);
}

// Registers it whole and line by line, because masking works on single lines.
void register_lines(std::string_view secret) {
    register_secret(secret);
    for (const std::string_view line : text::split(secret, '\n')) {
        if (line.size() >= k_shortest) register_secret(line);
    }
}

bool is_allowed(std::string_view name) {
    if (std::find(k_names.begin(), k_names.end(), name) != k_names.end()) return true;
    return !speaks_of_a_secret(name) && std::any_of(k_prefixes.begin(), k_prefixes.end(),
                                                    [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// Passes on git settings in variables, renumbered, but only from harmless sections: any other value may be a password.
void put_git_settings(const Env& env, std::map<std::string, std::string>& variables) {
    constexpr std::array<std::string_view, 6> k_sections = {"safe.", "user.", "init.", "core.", "commit.", "protocol."};
    constexpr std::int64_t k_most = 1000;
    std::erase_if(variables, [](const auto& one) {
        const std::string_view name = one.first;
        return name == "GIT_CONFIG_COUNT" || name == "GIT_CONFIG_PARAMETERS" || name.starts_with("GIT_CONFIG_KEY_") ||
               name.starts_with("GIT_CONFIG_VALUE_");
    });
    const std::int64_t count = text::parse_int(env.get("GIT_CONFIG_COUNT").value_or("")).value_or(0);
    int given = 0;
    for (std::int64_t i = 0; i < std::min(count, k_most); ++i) {
        const auto key = env.get(fmt::format("GIT_CONFIG_KEY_{}", i));
        const auto value = env.get(fmt::format("GIT_CONFIG_VALUE_{}", i));
        if (!key || !value) continue;
        const std::string name = text::to_lower(*key);
        if (name.ends_with("extraheader")) register_lines(*value);
        if (std::none_of(k_sections.begin(), k_sections.end(), [&](auto section) { return name.starts_with(section); }))
            continue;
        variables[fmt::format("GIT_CONFIG_KEY_{}", given)] = *key;
        variables[fmt::format("GIT_CONFIG_VALUE_{}", given)] = *value;
        variables["GIT_CONFIG_COUNT"] = std::to_string(++given);
    }
}

Status check_name(const std::string& name) {
    if (std::find(k_never.begin(), k_never.end(), name) != k_never.end()) {
        return fail(ErrorKind::usage, fmt::format("{} cannot be passed to an agent", name),
                    "only gdnctl itself needs it");
    }
    const bool bad =
        name.empty() || name.find_first_of("=\n ") != std::string::npos || name.find('\0') != std::string::npos;
    if (bad) {
        return fail(ErrorKind::usage, fmt::format("'{}' is not a variable name", name),
                    "give the name without a value");
    }
    return {};
}

}  // namespace

Result<std::map<std::string, std::string>> agent_environment(const Env& env, const std::vector<std::string>& also,
                                                             std::string_view loop_id) {
    std::map<std::string, std::string> variables;
    for (const auto& [name, value] : env.all()) {
        // Also secrets that the agent does not get: its commands may find them in files, and checks have them.
        if (is_secret(name, value)) register_lines(value);
        if (is_allowed(name)) variables.emplace(name, value);
    }
    put_git_settings(env, variables);
    for (const auto& name : also) {
        GDNCTL_TRY(check_name(name));
        const auto value = env.get(name);
        if (!value) continue;
        if (speaks_of_a_secret(name)) register_lines(*value);
        variables.insert_or_assign(name, *value);
    }
    variables.insert_or_assign(std::string(k_loop_id_variable), std::string(loop_id));
    return variables;
}

namespace {

bool starts_update(std::string_view line) {
    constexpr std::string_view k_file = "file ";
    constexpr std::array<std::string_view, 5> k_words = {"update:", "create:", "add:", "delete:", "rename:"};
    if (!line.starts_with(k_file)) return false;
    line.remove_prefix(k_file.size());
    for (const auto word : k_words) {
        if (line.starts_with(word)) return true;
    }
    return false;
}

// "index 83db48f..bf269f4 100644"
bool is_index_line(std::string_view line) {
    constexpr std::string_view k_index = "index ";
    if (!line.starts_with(k_index)) return false;
    line.remove_prefix(k_index.size());
    const std::size_t digits = line.find_first_not_of("0123456789abcdef");
    if (digits == 0 || digits == std::string_view::npos || !line.substr(digits).starts_with("..")) return false;
    line.remove_prefix(digits + 2);
    return !line.empty() && line.find_first_not_of("0123456789abcdef") != 0;
}

bool is_diff_header(std::string_view line) {
    constexpr std::array<std::string_view, 15> k_starts = {"diff --git ",
                                                           "--- ",
                                                           "+++ ",
                                                           "@@ ",
                                                           "\\ No newline",
                                                           "old mode ",
                                                           "new mode ",
                                                           "new file mode ",
                                                           "deleted file mode ",
                                                           "similarity index ",
                                                           "dissimilarity index ",
                                                           "rename from ",
                                                           "rename to ",
                                                           "copy from ",
                                                           "Binary files "};
    for (const auto start : k_starts) {
        if (line.starts_with(start)) return true;
    }
    return line.starts_with("copy to ") || line == "GIT binary patch" || is_index_line(line);
}

// "12,3" or "12": the number of lines. nullopt: neither.
std::optional<std::int64_t> line_count(std::string_view range) {
    const std::size_t comma = range.find(',');
    const auto start = text::parse_int(range.substr(0, comma));
    if (!start || *start < 0) return std::nullopt;
    if (comma == std::string_view::npos) return 1;
    const auto count = text::parse_int(range.substr(comma + 1));
    return count && *count >= 0 ? count : std::nullopt;
}

}  // namespace

bool OutputFilter::shows(std::string_view line) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (m_show_all) return true;
    if (starts_update(line)) {
        m_suppressing = true;
        m_counted = false;
        m_old = m_new = 0;
        return false;
    }
    m_suppressing = m_suppressing && continues_diff(line);
    return !m_suppressing;
}

bool OutputFilter::continues_diff(std::string_view line) {
    const char first = line.empty() ? ' ' : line.front();
    if (m_old > 0 || m_new > 0) {  // within a hunk of known length
        if (first == ' ' || first == '-') --m_old;
        if (first == ' ' || first == '+') --m_new;
        if (first == ' ' || first == '-' || first == '+' || first == '\\') return true;
        m_old = m_new = 0;
        return is_diff_header(line);
    }
    if (line.starts_with("@@ -")) {
        const auto words = text::split(line, ' ');
        if (words.size() >= 4 && words[2].starts_with('+') && words[3] == "@@") {
            const auto old_lines = line_count(words[1].substr(1));
            const auto new_lines = line_count(words[2].substr(1));
            m_counted = old_lines && new_lines;
            m_old = old_lines.value_or(0);
            m_new = new_lines.value_or(0);
            return true;
        }
    }
    if (line.empty() || is_diff_header(line)) return true;
    // Text after the last line of a counted hunk may start with a blank or a dash.
    return !m_counted && (first == ' ' || first == '+' || first == '-');
}

}  // namespace gdnctl
