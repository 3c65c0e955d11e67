#include "loop/gates/validation_gate.h"

#include <chrono>

#include <fmt/format.h>

#include "core/log.h"
#include "core/text.h"
#include "loop/engine/prompt.h"
#include "loop/gates/validation_jobs.h"
#include "loop/measure/failing_case.h"
#include "loop/perf/state.h"
#include "platform/fs.h"
#include "platform/signals.h"
#include "services/cluster/cluster.h"

namespace gdnctl::loop {

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::seconds k_longest_look{60};

// Why jobs of this kind would wait forever on every one of these clusters; nullopt: one accepts them, or does not say.
std::optional<Error> nowhere_for(std::string_view option, const std::string& tpu,
                                 const std::vector<ClusterFile>& files) {
    if (tpu.empty()) return std::nullopt;
    std::vector<std::string> offered;
    for (const ClusterFile& file : files) {
        const auto types = tpu_types(file);
        if (types.empty() || (tpu == "auto" ? infer_tpu(file).has_value() : offers_tpu(file, tpu))) return std::nullopt;
        offered.push_back(fmt::format("{} offers {}", file.cluster_name, text::join(types, ", ")));
    }
    if (offered.empty()) return std::nullopt;
    return Error{ErrorKind::usage,
                 fmt::format("no cluster offers {} {}: jobs would wait forever", option, tpu),
                 text::join(offered, "; "),
                 {}};
}

// nullopt: it answers. Errors: interrupted, terminated.
Result<std::optional<Error>> look_at(const ClusterPreflight& p, const std::string& name) {
    const Status answers = p.jobs.check(name, k_longest_look);
    if (p.stop.stop_requested()) return tl::unexpected(stopped_error());
    if (answers) return std::optional<Error>();
    const ExitCode exit = exit_code_of(answers.error().kind);
    const ErrorKind kind = exit == ExitCode::usage            ? ErrorKind::usage
                           : exit == ExitCode::authentication ? ErrorKind::authentication
                                                              : ErrorKind::infrastructure;
    const std::string where = name.empty() ? "the default cluster" : name;
    return std::optional(Error{kind, where + ": " + text::visible(answers.error().text()), {}, {}});
}

}  // namespace

Status check_cluster_files(const ValidationOptions& options, const Target& target, const ClusterPlaces& places) {
    std::vector<ClusterFile> files;
    std::optional<Error> problem;
    for (const auto& name : options.clusters) {
        if (name == "local") return {};
        auto file = find_cluster(places, name);
        if (file) {
            files.push_back(std::move(*file));
        } else if (!problem) {
            problem = file.error();
        }
    }
    if (files.empty()) return problem ? Status(tl::unexpected(*problem)) : Status();
    if (!options.cross_tpu_tests && options.mode != ValidationMode::profile_only) {
        problem = nowhere_for("--validation-ray-tpu", options.tpu, files);
        if (problem) return tl::unexpected(*problem);
    }
    const bool takes_settings = target.style == TargetStyle::levanter;
    problem = takes_settings ? nowhere_for("--validation-profile-tpu", options.profile.tpu, files) : std::nullopt;
    return problem ? Status(tl::unexpected(*problem)) : Status();
}

Status check_clusters_answer(const ClusterPreflight& p) {
    std::optional<Error> away, refused;
    std::vector<std::string> said;
    for (const std::string& name : gate_clusters(p.options, p.hold, {}, p.root)) {
        if (name == "local") return {};
        GDNCTL_TRY_ASSIGN(const std::optional<Error> error, look_at(p, name));
        if (!error) return {};
        said.push_back(error->message);
        (error->kind == ErrorKind::infrastructure ? away : refused) = error;
    }
    if (said.empty()) return {};
    Error error = away ? *away : *refused;
    error.message = "no cluster that validation needs can be used: " + text::join(said, "; ");
    if (away && p.patient) {
        log::warning("{}; continuing, since it may come back", error.message);
        return {};
    }
    error.hint = away ? "`gdnctl cluster check NAME` says more; with --resilient the run starts anyway"
                      : "`gdnctl cluster list` shows the clusters known here; --validation-ray-cluster names one, "
                        "`local` is this machine";
    return tl::unexpected(std::move(error));
}

void make_resilient(GateChoices& choices, std::vector<Rewrite>& list) {
    ValidationOptions& validation = choices.validation;
    PerfOptions& perf = choices.perf;
    const GateModes modes = resolve_modes(choices).value_or(GateModes());
    validation.mode = modes.validation;
    perf.mode = modes.perf ? PerfMode::required : PerfMode::off;
    if (validation.mode == ValidationMode::off) {
        rewrite(list, "--validation-mode", validation.mode, ValidationMode::required);
    }
    rewrite(list, "--validation-max-attempts", validation.max_attempts, -1);
    if (validation.clusters.empty()) rewrite(list, "--validation-ray-cluster-auto", validation.cluster_auto, true);
    rewrite(list, "--validation-cross-tpu-test-fallback", validation.cross_tpu_tests, true);
    rewrite(list, "--perf-mode", perf.mode, PerfMode::required);
    if (perf.regression_policy == RegressionPolicy::fail) {
        rewrite(list, "--perf-regression-policy", perf.regression_policy, RegressionPolicy::revert_count_failure);
    }
}

// A folder to use instead of this machine's /proc and /sys root; set by tests on busy machines.
constexpr std::string_view k_machine_files = "GDNCTL_MACHINE_FILES";

GateStages::GateStages(GateDeps setup, GateModes modes)
    : m_deps(std::move(setup)),
      m_modes(modes),
      m_jobs(m_deps.target, m_deps.choices.validation, m_deps.jobs),
      m_trees(m_deps.repository, {m_deps.measure_folder, m_deps.log_paths, m_deps.links}, m_deps.process, m_deps.clock),
      m_machine(m_deps.clock, m_deps.env.get(k_machine_files).value_or("/")) {
    m_jobs.name_jobs_by(m_deps.name_job);
    m_jobs.watch_machine_by([this] { return m_machine.busy(); });
}

Status check_gate_setup(const GateChoices& choices, const Target& target, const ClusterPlaces& places,
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
    if (choices.validation.oracle == OracleMode::required &&
        (!target.oracle || modes.validation != ValidationMode::required)) {
        return fail(ErrorKind::usage,
                    target.oracle ? "--validation-oracle required needs --validation-mode required"
                                  : "target '" + target.name + "' has no oracle",
                    target.oracle ? "the oracle runs in the job of the tests"
                                  : "add [targets." + target.name + ".oracle] with a kernel to gdnctl.toml");
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
    GDNCTL_TRY(check_cluster_files(validation, target, places));
    GDNCTL_TRY_ASSIGN(const PerfSettings perf, perf_settings(choices.perf, target, places.cwd, log_dir));
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

Result<std::unique_ptr<GateStages>> GateStages::create(GateDeps setup) {
    GDNCTL_TRY(check_gate_setup(setup.choices, setup.target, setup.clusters, setup.log_dir));
    GDNCTL_TRY_ASSIGN(const GateModes modes, resolve_modes(setup.choices));
    if (modes.validation == ValidationMode::off) return std::unique_ptr<GateStages>();
    GDNCTL_TRY_ASSIGN(PerfSettings perf,
                      perf_settings(setup.choices.perf, setup.target, setup.clusters.cwd, setup.log_dir));
    std::unique_ptr<GateStages> gate(new GateStages(std::move(setup), modes));
    GateModes& chosen = gate->m_modes;
    chosen.oracle = chosen.validation == ValidationMode::required && gate->m_deps.target.oracle &&
                    gate->m_deps.choices.validation.oracle != OracleMode::off;
    gate->m_perf = std::move(perf);
    const GateDeps& own = gate->m_deps;
    if (reports_to_wandb(own.target, own.choices.validation)) {
        gate->m_recorded.emplace(own.choices.perf.recorded, own.http, own.env, own.clock);
    }
    return gate;
}

ValidationDeps GateStages::validation_deps() {
    ValidationDeps deps{m_jobs, m_deps.held, m_deps.clock, m_deps.hold, m_deps.clusters};
    if (m_recorded) deps.recorded = &*m_recorded;
    return deps;
}

namespace {

// <log-dir>/oracle_base.json: the oracle's verdict on the base.
constexpr std::string_view k_oracle_base = "oracle_base.json";

// The answer on record, if nothing has changed since, or the run has only gone on from a base that was right; null:
// there is none.
Json earlier_answer(const fs::path& file, const Json& question) {
    const auto text = read_file_if_exists(file);
    const auto answer = text && *text ? parse_json(**text, file.string()) : Result<Json>(Json());
    if (!answer || !answer->is_object()) return nullptr;
    const auto same = [&](const char* field) { return json::text(*answer, field) == json::text(question, field); };
    const bool went_on = same("run") && json::text(*answer, "verdict") == "OK";
    return same("asked") && (same("base") || went_on) ? *answer : Json(nullptr);
}

}  // namespace

// {"asked", "run", "base", "verdict", "said"}; without a verdict if nothing can be said, as the place is at fault.
Result<Json> GateStages::judge_base(const std::string& base, const Artefacts& artefacts) {
    const TargetOracle& oracle = *m_deps.target.oracle;
    std::vector<std::string> asked = oracle_words(oracle);
    asked.insert(asked.end(), oracle.python.begin(), oracle.python.end());
    const ValidationDeps deps = validation_deps();
    for (const JobSite& site : sites_for(JobKind::tests, deps)) asked.push_back(to_text(site));
    Json answer = {{"asked", text::shell_join(asked)}, {"run", m_deps.run}, {"base", base}};
    const fs::path file = artefacts.folder() / k_oracle_base;
    if (Json earlier = earlier_answer(file, answer); !earlier.is_null()) return earlier;
    log::info("judging the base, {}, with the oracle", base.substr(0, 12));
    GDNCTL_TRY_ASSIGN(const fs::path tree, m_trees.at(base));
    GDNCTL_TRY_ASSIGN(const JobEnd end, ask_oracle(deps, tree, artefacts, m_deps.stop));
    answer["said"] = end.failure ? end.failure->sign : end.summary;
    const bool of_place = end.failure && (end.failure->outcome != Outcome::test_fail ||
                                          (end.oracle.is_null() && end.failure->sign != k_no_oracle_verdict));
    if (of_place) return answer;
    const std::string verdict = json::text(end.oracle, "verdict");
    answer["verdict"] = verdict;
    if (oracle_ran(verdict)) GDNCTL_TRY(atomic_replace(file, to_text(answer, 2) + "\n", 0600));
    return answer;
}

Result<OracleUse> GateStages::oracle_use(const std::string& base, const Artefacts& artefacts) {
    if (m_oracle != OracleUse::unknown) return m_oracle;
    const bool required = m_deps.choices.validation.oracle == OracleMode::required;
    const std::string& kernel = m_deps.target.oracle->kernel;
    GDNCTL_TRY_ASSIGN(const Json answer, judge_base(base, artefacts));
    const std::string verdict = json::text(answer, "verdict"), said = json::text(answer, "said");
    if (json::find(answer, "verdict") == nullptr) {
        log::warning("the oracle could not judge the base: {}", said);
        return OracleUse::unknown;
    }
    if (!oracle_ran(verdict) && required) {
        return fail(
            ErrorKind::config, fmt::format("the oracle cannot run {}: {}", kernel, said),
            "correct [targets." + m_deps.target.name + ".oracle] in gdnctl.toml, or use --validation-oracle off");
    }
    m_oracle = verdict == "OK" || required ? OracleUse::judges : OracleUse::off;
    if (!oracle_ran(verdict)) {
        log::warning("the oracle cannot run {}: {}; candidates are judged without it", kernel, said);
    } else if (verdict != "OK") {
        log::warning("the oracle judges the base {}: {}; {}", verdict, said,
                     required ? "candidates must be OK"
                              : "candidates are judged without it (--validation-oracle required uses it anyway)");
    } else {
        log::info("the oracle judges each candidate before its tests; the base is OK");
    }
    return m_oracle;
}

std::vector<std::unique_ptr<Stage>> GateStages::stages() {
    RecordedMetrics* recorded = m_recorded ? &*m_recorded : nullptr;
    ValidationDeps deps = validation_deps();
    std::vector<std::unique_ptr<Stage>> stages;
    if (m_modes.oracle) {
        deps.tests = std::make_shared<TestRun>();
        deps.oracle = [this](const std::string& base, const Artefacts& artefacts) {
            return oracle_use(base, artefacts);
        };
        stages.push_back(std::make_unique<OracleStage>(deps));
    }
    if (m_modes.validation == ValidationMode::required) stages.push_back(std::make_unique<TestsStage>(deps));
    stages.push_back(
        std::make_unique<ProfileStage>(deps, m_perf.metric, m_modes.perf ? m_perf.state_file : fs::path()));
    if (m_modes.perf) {
        stages.push_back(std::make_unique<PerformanceStage>(m_perf, m_jobs, m_trees, m_deps.clock, recorded));
    }
    return stages;
}

}  // namespace gdnctl::loop
