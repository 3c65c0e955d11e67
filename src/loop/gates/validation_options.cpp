#include "loop/gates/validation_options.h"

#include <fmt/format.h>

#include "loop/perf/gates.h"
#include "services/job/job.h"

namespace gdnctl::loop {

std::string_view to_text(ValidationMode mode) {
    return mode == ValidationMode::required       ? "required"
           : mode == ValidationMode::profile_only ? "profile-only"
           : mode == ValidationMode::off          ? "off"
                                                  : "auto";
}

std::string_view to_text(OracleMode mode) {
    return mode == OracleMode::required ? "required" : mode == OracleMode::off ? "off" : "auto";
}

std::string_view to_text(PerfMode mode) {
    return mode == PerfMode::required ? "required" : mode == PerfMode::off ? "off" : "auto";
}

ProfileSettings gate_profile_settings() {
    ProfileSettings settings;
    settings.run_name_prefix = "gdn_loopgate";
    settings.ce_implementation = "pallas_tpu";
    return settings;
}

std::optional<CeChoice> ce_comparison(const ValidationOptions& o) {
    const bool implementation = o.ce_compare_implementation != "auto", backward = o.ce_compare_bwd_mode != "off";
    if (!implementation && !backward) return std::nullopt;
    return CeChoice{implementation ? o.ce_compare_implementation : o.profile.ce_implementation,
                    backward ? o.ce_compare_bwd_mode : o.profile.ce_bwd_mode};
}

bool reports_to_wandb(const Target& target, const ValidationOptions& options) {
    constexpr std::string_view k_mode = "WANDB_MODE=", k_online = "online";
    if (target.style != TargetStyle::levanter || options.profile.dry_run) return false;
    std::string mode = options.profile.wandb_mode;
    for (const std::string& item : options.profile_env) {  // the last one wins
        if (item.starts_with(k_mode)) mode = item.substr(k_mode.size());
    }
    return mode == k_online;
}

Result<GateModes> resolve_modes(const GateChoices& choices) {
    GateModes modes;
    if (!choices.used) return modes;
    modes.validation =
        choices.validation.mode == ValidationMode::automatic ? ValidationMode::required : choices.validation.mode;
    if (modes.validation == ValidationMode::off && choices.perf.mode == PerfMode::required) {
        return fail(ErrorKind::usage, "--perf-mode required needs --validation-mode required or profile-only.",
                    "without a profile there is nothing to judge");
    }
    modes.perf = modes.validation != ValidationMode::off && choices.perf.mode != PerfMode::off;
    return modes;
}

namespace {

Status check_thresholds(const PerfOptions& p) {
    const auto bad = [](std::string text) { return Status(fail(ErrorKind::usage, std::move(text))); };
    const std::pair<const char*, std::optional<double>> numbers[] = {
        {"--perf-min-improvement-pct", p.min_improvement_pct},
        {"--perf-max-regression-pct", p.max_regression_pct},
        {"--perf-gate-override-pct", p.override_pct},
        {"--perf-upper-bound-step-ms", p.upper_bound_step_ms}};
    for (const auto& [option, value] : numbers) {
        if (value.value_or(0.0) < 0.0) return bad(std::string(option) + " must be >= 0.");
    }
    for (const LimitOption& limit : limit_options()) {
        const auto it = p.limits.find(std::string(limit.limit));
        if (it != p.limits.end() && it->second.value_or(0.0) < 0.0)
            return bad(std::string(limit.option) + " must be >= 0.");
    }
    return {};
}

Status check_recorded(const RecordedOptions& o) {
    const auto bad = [](std::string text) { return Status(fail(ErrorKind::usage, std::move(text))); };
    constexpr std::int64_t k_most_steps = 1'000'000;  // of a window: each step is a number that must be transferred
    if (o.step_start < 0) return bad("--perf-history-step-start must be >= 0.");
    if (o.step_end < o.step_start) return bad("--perf-history-step-end must be >= --perf-history-step-start.");
    if (o.step_end - o.step_start >= k_most_steps) {
        return bad(fmt::format("--perf-history-step-start and -end must be less than {} steps apart.", k_most_steps));
    }
    if (o.min_points < 1) return bad("--perf-history-min-points must be > 0.");
    if (o.min_points > o.step_end - o.step_start + 1) {
        return bad(fmt::format("--perf-history-min-points {}: there are only {} steps from {} to {}.", o.min_points,
                               o.step_end - o.step_start + 1, o.step_start, o.step_end));
    }
    for (const auto& [option, word] :
         {std::pair("--perf-wandb-entity", &o.entity), {"--perf-wandb-project", &o.project}}) {
        if (word->empty() || word->find('/') != std::string::npos) return bad(std::string(option) + " must be a name.");
    }
    return {};
}

}  // namespace

Status check_gates(const GateChoices& choices) {
    const ValidationOptions& v = choices.validation;
    const PerfOptions& p = choices.perf;
    const auto bad = [](std::string text) { return Status(fail(ErrorKind::usage, std::move(text))); };
    if (v.max_attempts != -1 && v.max_attempts < 1) return bad("--validation-max-attempts must be -1 or >= 1.");
    if (v.retry_sleep_s < 0) return bad("--validation-retry-sleep must be >= 0.");
    if (v.log_tail < 0) return bad("--validation-ray-log-tail must be >= 0.");
    if (v.test_timeout_s < 1) return bad("--validation-ray-test-timeout must be > 0.");
    if (v.profile_timeout_s < 1) return bad("--validation-ray-profile-timeout must be > 0.");
    if (p.pairs != 1 && p.pairs != 3 && p.pairs != 5 && p.pairs != 9) return bad("--perf-pairs must be 1, 3, 5 or 9.");
    GDNCTL_TRY(parse_env_items(v.profile_env, "--validation-profile-env"));
    if (ce_comparison(v) == CeChoice{v.profile.ce_implementation, v.profile.ce_bwd_mode}) {
        return bad(
            "--validation-profile-ce-compare-implementation and --validation-profile-ce-bwd-compare-mode name the "
            "cross-entropy that the profile has already.");
    }
    GDNCTL_TRY(check_thresholds(p));
    GDNCTL_TRY(check_recorded(p.recorded));
    const auto modes = resolve_modes(choices);
    return modes ? Status() : Status(tl::unexpected(modes.error()));
}

Result<PerfPolicy> policy_of(const PerfOptions& options, const Target& target, const std::filesystem::path& cwd) {
    GDNCTL_TRY(check_thresholds(options));
    GDNCTL_TRY_ASSIGN(PerfPolicy policy, policy_of_target(target, default_policy()));
    if (!options.policy_file.empty()) {
        GDNCTL_TRY_ASSIGN(policy, read_policy_file(cwd / options.policy_file, policy));
    }
    const auto put = [](const std::optional<double>& given, double& into) {
        if (given) into = *given;
    };
    put(options.min_improvement_pct, policy.min_improvement_pct);
    put(options.max_regression_pct, policy.max_regression_pct);
    put(options.override_pct, policy.override_pct);
    for (const auto& [name, value] : options.limits) put(value, policy.limits[name]);
    return policy;
}

}  // namespace gdnctl::loop
