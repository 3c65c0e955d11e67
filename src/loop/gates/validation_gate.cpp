#include "loop/gates/validation_gate.h"

#include <fmt/format.h>

#include "loop/gates/cluster_preflight.h"
#include "loop/perf/state.h"
#include "loop/prompt/prompt.h"

namespace gdnctl::loop {

GateOptions gate_options_of(const GateChoices& choices) {
    GateOptions options;
    options.used = choices.used;
    const auto modes = resolve_modes(choices);
    options.validation_mode = to_text(modes ? modes->validation : ValidationMode::off);
    options.validation_max_attempts = choices.validation.max_attempts;
    options.ray_cluster_given = !choices.validation.clusters.empty();
    options.ray_cluster_auto = choices.validation.cluster_auto;
    options.cross_tpu_test_fallback = choices.validation.cross_tpu_tests;
    options.perf_mode = modes && modes->perf ? "required" : "off";
    options.perf_regression_policy = to_text(choices.perf.regression_policy);
    return options;
}

void take_rewrites(GateChoices& choices, const GateOptions& rewritten) {
    for (const ValidationMode mode : {ValidationMode::required, ValidationMode::profile_only, ValidationMode::off}) {
        if (to_text(mode) == rewritten.validation_mode) choices.validation.mode = mode;
    }
    choices.validation.max_attempts = rewritten.validation_max_attempts;
    choices.validation.cluster_auto = rewritten.ray_cluster_auto;
    choices.validation.cross_tpu_tests = rewritten.cross_tpu_test_fallback;
    choices.perf.mode = rewritten.perf_mode == "required" ? PerfMode::required : PerfMode::off;
    for (const RegressionPolicy policy :
         {RegressionPolicy::revert_count_failure, RegressionPolicy::revert_continue, RegressionPolicy::fail,
          RegressionPolicy::count_failure, RegressionPolicy::go_on}) {
        if (to_text(policy) == rewritten.perf_regression_policy) choices.perf.regression_policy = policy;
    }
}

// A folder to use instead of this machine's /proc and /sys root; set by tests on busy machines.
constexpr std::string_view k_machine_files = "GDNCTL_MACHINE_FILES";

GateStages::GateStages(GateSetup setup, GateModes modes)
    : m_setup(std::move(setup)),
      m_modes(modes),
      m_jobs(m_setup.target, m_setup.choices.validation, m_setup.jobs),
      m_trees(m_setup.repository, {m_setup.measure_folder, m_setup.log_paths, m_setup.links}, m_setup.process,
              m_setup.clock),
      m_machine(m_setup.clock, m_setup.env.get(k_machine_files).value_or("/")) {
    m_jobs.name_jobs_by(m_setup.name_job);
    m_jobs.watch_machine_by([this] { return m_machine.busy(); });
}

Status check_gate_setup(const GateChoices& choices, const Target& target, const std::filesystem::path& cwd,
                        const std::filesystem::path& log_dir) {
    GDNCTL_TRY(check_gates(choices));
    GDNCTL_TRY_ASSIGN(const GateModes modes, resolve_modes(choices));
    if (modes.validation == ValidationMode::off) return {};
    if (modes.validation == ValidationMode::required && !target.test) {
        return fail(ErrorKind::usage, "target '" + target.name + "' has no test to validate with",
                    "give it one, or use --validation-mode profile-only");
    }
    if (!target.profile) {
        return fail(ErrorKind::usage, "target '" + target.name + "' has no profile to validate with",
                    "give it one, or use --validation-mode off");
    }
    if (uses_files(target)) {
        return fail(ErrorKind::usage,
                    fmt::format("target '{}' tests and times a built-in kernel, not this repository; the work of the "
                                "iterations would not be checked",
                                target.name),
                    "add a target with its own test and profile to gdnctl.toml (see examples/cpu-gdn), or use "
                    "--validation-mode off");
    }
    ValidationOptions validation = choices.validation;
    validation.mode = modes.validation;
    GDNCTL_TRY(check_cluster_files(validation, target, cwd));
    GDNCTL_TRY_ASSIGN(const PerfSettings perf, perf_settings(choices.perf, target, cwd, log_dir));
    if (modes.perf) GDNCTL_TRY(load_perf_state(perf.state_file));
    return {};
}

std::optional<std::string> gate_directive(const GateChoices& choices, const Target& target,
                                          const std::filesystem::path& cwd, const std::filesystem::path& log_dir) {
    const auto modes = resolve_modes(choices);
    if (!modes || modes->validation == ValidationMode::off) return std::nullopt;
    GateFacts facts;
    facts.tests = modes->validation == ValidationMode::required;
    const auto perf = perf_settings(choices.perf, target, cwd, log_dir);
    if (modes->perf && perf) {
        facts.metric = perf->metric;
        facts.higher_is_better = perf->higher_is_better;
    }
    if (target.style == TargetStyle::levanter) {
        facts.ce_implementation = choices.validation.profile.ce_implementation;
        facts.ce_bwd_mode = choices.validation.profile.ce_bwd_mode;
    }
    return gates_directive(facts);
}

Result<std::unique_ptr<GateStages>> GateStages::create(GateSetup setup) {
    GDNCTL_TRY(check_gate_setup(setup.choices, setup.target, setup.cwd, setup.log_dir));
    GDNCTL_TRY_ASSIGN(const GateModes modes, resolve_modes(setup.choices));
    if (modes.validation == ValidationMode::off) return std::unique_ptr<GateStages>();
    GDNCTL_TRY_ASSIGN(PerfSettings perf, perf_settings(setup.choices.perf, setup.target, setup.cwd, setup.log_dir));
    std::unique_ptr<GateStages> gate(new GateStages(std::move(setup), modes));
    gate->m_perf = std::move(perf);
    const GateSetup& own = gate->m_setup;
    if (reports_to_wandb(own.target, own.choices.validation)) {
        gate->m_recorded.emplace(own.choices.perf.recorded, own.http, own.env, own.clock);
    }
    return gate;
}

std::vector<std::unique_ptr<Stage>> GateStages::stages() {
    RecordedMetrics* recorded = m_recorded ? &*m_recorded : nullptr;
    const ValidationWorld world{m_jobs, m_setup.held, m_setup.clock, m_setup.hold, m_setup.repository.root(), recorded};
    std::vector<std::unique_ptr<Stage>> stages;
    if (m_modes.validation == ValidationMode::required) stages.push_back(std::make_unique<TestsStage>(world));
    stages.push_back(std::make_unique<ProfileStage>(world, m_perf.metric));
    if (m_modes.perf) {
        stages.push_back(std::make_unique<PerformanceStage>(m_perf, m_jobs, m_trees, m_setup.clock, recorded));
    }
    return stages;
}

}  // namespace gdnctl::loop
