#include "loop/engine/options.h"

#include <fmt/format.h>

#include "core/json.h"
#include "core/redact.h"
#include "loop/engine/journal.h"

namespace gdnctl::loop {

std::string_view to_text(Policy policy) {
    return policy == Policy::fail ? "fail" : policy == Policy::count_failure ? "count-failure" : "continue";
}
std::string_view to_text(DirtyPolicy policy) { return policy == DirtyPolicy::fail ? "fail" : "stash"; }
std::string_view to_text(StashRestorePolicy policy) {
    return policy == StashRestorePolicy::fail ? "fail" : "warn-keep";
}
std::string_view to_text(HoldPolicy policy) { return policy == HoldPolicy::required ? "required" : "best-effort"; }
std::string_view to_text(SyncPolicy policy) {
    return policy == SyncPolicy::off ? "off" : policy == SyncPolicy::once ? "once" : "each-iteration";
}
std::string_view to_text(StampMode mode) {
    switch (mode) {
        case StampMode::automatic: return "auto";
        case StampMode::commit: return "commit";
        case StampMode::next_entry: return "next-entry";
        case StampMode::notes: return "notes";
        case StampMode::inplace: return "inplace";
        case StampMode::off: break;
    }
    return "off";
}
std::string_view to_text(ConflictPolicy policy) { return policy == ConflictPolicy::fail ? "fail" : "skip"; }

Status check_options(const LoopOptions& options) {
    const auto at_least = [](const char* option, std::int64_t value, std::int64_t least) -> Status {
        if (value >= least) return {};
        return fail(ErrorKind::usage, fmt::format("--{} must be {}.", option, least == 1 ? "> 0" : ">= 0"));
    };
    const HoldOptions& hold = options.hold;
    GDNCTL_TRY(at_least("iterations", options.iterations, 1));
    GDNCTL_TRY(at_least("sleep-seconds", options.sleep_seconds, 0));
    GDNCTL_TRY(at_least("post-check-retries", options.post_check_retries, 0));
    GDNCTL_TRY(at_least("post-check-timeout", options.post_check_timeout_s, 0));
    GDNCTL_TRY(at_least("codex-retries", options.codex_retries, 0));
    GDNCTL_TRY(at_least("retry-sleep-seconds", options.retry_sleep_seconds, 0));
    GDNCTL_TRY(at_least("keep-iterations", options.keep_iterations, 1));
    GDNCTL_TRY(at_least("codex-timeout-seconds", options.codex_timeout_s, 0));
    GDNCTL_TRY(at_least("codex-idle-timeout-seconds", options.codex_idle_timeout_s, 0));
    GDNCTL_TRY(at_least("codex-busy-timeout-seconds", options.codex_busy_timeout_s, 0));
    GDNCTL_TRY(at_least("codex-max-tokens", options.codex_max_tokens, 0));
    GDNCTL_TRY(at_least("codex-max-requests", options.codex_max_requests, 0));
    GDNCTL_TRY(at_least("codex-max-wait", options.codex_max_wait_s, 0));
    GDNCTL_TRY(at_least("max-wall", options.max_wall_s.value_or(1), 1));
    GDNCTL_TRY(at_least("max-tpu-minutes", options.max_tpu_minutes.value_or(1), 1));
    GDNCTL_TRY(at_least("max-tokens", options.max_tokens.value_or(1), 1));
    GDNCTL_TRY(at_least("plateau", options.plateau.value_or(1), 1));
    if (options.sync.policy != SyncPolicy::off && (options.sync.remote.empty() || options.sync.branch.empty())) {
        return fail(ErrorKind::usage, "--sync-main-remote and --sync-main-branch must not be empty.");
    }
    if (options.agent == AgentKind::command && options.agent_command.empty()) {
        return fail(ErrorKind::usage, "--agent command requires --agent-command.");
    }
    if (options.agent == AgentKind::codex && !options.agent_command.empty()) {
        return fail(ErrorKind::usage, "--agent-command requires --agent command.");
    }
    if (options.iterations > 1'000'000) return fail(ErrorKind::usage, "--iterations must be <= 1000000.");
    if (hold.on && hold.name.empty() && !options.resilient) {
        return fail(ErrorKind::usage, "--hold-dev-tpu requires --dev-tpu-name.");
    }
    GDNCTL_TRY(at_least("dev-tpu-ready-timeout", hold.ready_timeout_s, 1));
    GDNCTL_TRY(at_least("dev-tpu-stop-timeout", hold.stop_timeout_s, 1));
    GDNCTL_TRY(at_least("dev-tpu-allocate-attempts", hold.allocate_attempts, 1));
    return at_least("dev-tpu-allocate-retry-sleep", hold.allocate_retry_sleep_s, 0);
}

namespace {

constexpr const char* k_word = "options";  // key in the records

Json json_of_words(const OptionWords& words, std::set<std::string>& masked) {
    Json json = Json::object();
    for (const auto& [option, values] : words) {
        Json& list = json[option] = Json::array();
        for (const std::string& value : values) {
            const std::string safe = redact(value);
            if (safe != value) masked.insert(option);
            list.push_back(safe);
        }
    }
    return json;
}

OptionWords words_of(const Json& json) {
    OptionWords words;
    for (const auto& [option, values] : json.items()) words[option] = values.get<std::vector<std::string>>();
    return words;
}

SavedOptions read_words(const Json& json) {
    SavedOptions words;
    words.cwd = json.at("cwd").get<std::string>();
    words.config_file = json.at("config").get<std::string>();
    words.target = json.at("target").get<std::string>();
    words.given = words_of(json.at("given"));
    words.configured = words_of(json.at("configured"));
    words.masked = json.at("masked").get<std::set<std::string>>();
    return words;
}

}  // namespace

std::vector<Rewrite> make_resilient(LoopOptions& options) {
    std::vector<Rewrite> list;
    if (!options.resilient) return list;
    const auto turn = [&list](const char* option, auto& value, auto from, auto to) {
        if (value == from) rewrite(list, option, value, to);
    };
    if (options.max_failures >= 0) rewrite(list, "--max-failures", options.max_failures, -1);
    turn("--dirty-policy", options.dirty_policy, DirtyPolicy::fail, DirtyPolicy::stash);
    turn("--no-commit-policy", options.no_commit_policy, Policy::fail, Policy::count_failure);
    turn("--post-check-policy", options.post_check_policy, Policy::fail, Policy::count_failure);
    turn("--iteration-error-policy", options.iteration_error_policy, Policy::fail, Policy::count_failure);
    turn("--hold-dev-tpu-policy", options.hold.policy, HoldPolicy::required, HoldPolicy::best_effort);
    turn("--stash-restore-policy", options.stash_restore_policy, StashRestorePolicy::fail,
         StashRestorePolicy::warn_keep);
    if (options.codex_retries < 2) rewrite(list, "--codex-retries", options.codex_retries, 2);
    if (options.post_check_retries < 2) rewrite(list, "--post-check-retries", options.post_check_retries, 2);
    if (options.hold.name.empty()) rewrite(list, "--hold-dev-tpu", options.hold.on, false);
    turn("--sync-main-conflict-policy", options.sync_main_conflict_policy, ConflictPolicy::fail, ConflictPolicy::skip);
    return list;
}

std::string to_text(SavedOptions words) {
    Json json = {{"cwd", words.cwd}, {"config", words.config_file}, {"target", words.target}};
    json["given"] = json_of_words(words.given, words.masked);
    json["configured"] = json_of_words(words.configured, words.masked);
    json["masked"] = words.masked;
    return gdnctl::to_text(json);
}

Result<std::optional<SavedOptions>> words_of_run(const std::filesystem::path& journal) {
    std::string run, last;
    std::size_t at = 0;
    const auto use = [&](const Json& record, std::size_t line) -> Status {
        if (line == 1) run = json::text(record, "run");
        if (std::string options = json::text(record, k_word); !options.empty()) {
            last = std::move(options);
            at = line;
        }
        return {};
    };
    GDNCTL_TRY_ASSIGN(const std::string last_line, read_chain_file(journal, use));
    if (last_line.empty()) GDNCTL_TRY(check_never_begun(journal));
    if (last.empty()) return std::optional<SavedOptions>();
    const Json json = Json::parse(last, nullptr, false);
    try {
        SavedOptions words = read_words(json);
        words.run = std::move(run);
        return std::optional(std::move(words));
    } catch (const Json::exception&) {
        return fail(ErrorKind::config, fmt::format("{}: the options in record {} cannot be read", journal.string(), at),
                    "use the gdnctl that wrote it, or start a new run without --resume");
    }
}

}  // namespace gdnctl::loop
