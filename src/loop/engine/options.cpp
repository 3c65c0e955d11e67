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

class Rewriter {
public:
    // Replaces the old value by the new one.
    template <class T>
    void turn(const char* option, T& value, T from, T to) {
        if (value != from) return;
        list.push_back({option, std::string(to_text(from)), std::string(to_text(to))});
        value = to;
    }
    void set(const char* option, std::int64_t& value, std::int64_t to) {
        if (value == to) return;
        list.push_back({option, std::to_string(value), std::to_string(to)});
        value = to;
    }
    void set(const char* option, std::string& value, const char* to) {
        if (value == to) return;
        list.push_back({option, value, to});
        value = to;
    }
    void set(const char* option, bool& value, bool to) {
        if (value == to) return;
        list.push_back({option, value ? "on" : "off", to ? "on" : "off"});
        value = to;
    }
    std::vector<Rewrite> list;
};

void rewrite_gates(GateOptions& gates, Rewriter& rewriter) {
    if (gates.validation_mode == "off") rewriter.set("--validation-mode", gates.validation_mode, "required");
    rewriter.set("--validation-max-attempts", gates.validation_max_attempts, -1);
    if (!gates.ray_cluster_given) rewriter.set("--validation-ray-cluster-auto", gates.ray_cluster_auto, true);
    rewriter.set("--validation-cross-tpu-test-fallback", gates.cross_tpu_test_fallback, true);
    rewriter.set("--perf-mode", gates.perf_mode, "required");
    if (gates.perf_regression_policy == "fail") {
        rewriter.set("--perf-regression-policy", gates.perf_regression_policy, "revert-count-failure");
    }
}

}  // namespace

std::vector<Rewrite> make_resilient(LoopOptions& options) {
    if (!options.resilient) return {};
    Rewriter rewriter;
    if (options.max_failures >= 0) rewriter.set("--max-failures", options.max_failures, -1);
    rewriter.turn("--dirty-policy", options.dirty_policy, DirtyPolicy::fail, DirtyPolicy::stash);
    rewriter.turn("--no-commit-policy", options.no_commit_policy, Policy::fail, Policy::count_failure);
    rewriter.turn("--post-check-policy", options.post_check_policy, Policy::fail, Policy::count_failure);
    rewriter.turn("--iteration-error-policy", options.iteration_error_policy, Policy::fail, Policy::count_failure);
    rewriter.turn("--hold-dev-tpu-policy", options.hold.policy, HoldPolicy::required, HoldPolicy::best_effort);
    rewriter.turn("--stash-restore-policy", options.stash_restore_policy, StashRestorePolicy::fail,
                  StashRestorePolicy::warn_keep);
    if (options.codex_retries < 2) rewriter.set("--codex-retries", options.codex_retries, 2);
    if (options.post_check_retries < 2) rewriter.set("--post-check-retries", options.post_check_retries, 2);
    if (options.hold.name.empty()) rewriter.set("--hold-dev-tpu", options.hold.on, false);
    rewriter.turn("--sync-main-conflict-policy", options.sync_main_conflict_policy, ConflictPolicy::fail,
                  ConflictPolicy::skip);
    // Command lines of the first version must not start TPU work that they did not ask for.
    if (options.gates.used) rewrite_gates(options.gates, rewriter);
    return rewriter.list;
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

RunWords read_words(const Json& json) {
    RunWords words;
    words.cwd = json.at("cwd").get<std::string>();
    words.config_file = json.at("config").get<std::string>();
    words.target = json.at("target").get<std::string>();
    words.given = words_of(json.at("given"));
    words.configured = words_of(json.at("configured"));
    words.masked = json.at("masked").get<std::set<std::string>>();
    return words;
}

}  // namespace

std::string to_text(RunWords words) {
    Json json = {{"cwd", words.cwd}, {"config", words.config_file}, {"target", words.target}};
    json["given"] = json_of_words(words.given, words.masked);
    json["configured"] = json_of_words(words.configured, words.masked);
    json["masked"] = words.masked;
    return gdnctl::to_text(json);
}

Result<std::optional<RunWords>> words_of_run(const std::filesystem::path& journal) {
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
    if (last.empty()) return std::optional<RunWords>();
    const Json json = Json::parse(last, nullptr, false);
    try {
        RunWords words = read_words(json);
        words.run = std::move(run);
        return std::optional(std::move(words));
    } catch (const Json::exception&) {
        return fail(ErrorKind::config, fmt::format("{}: the options in record {} cannot be read", journal.string(), at),
                    "use the gdnctl that wrote it, or start a new run without --resume");
    }
}

}  // namespace gdnctl::loop
