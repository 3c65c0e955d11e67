#include "loop/gates/perf_stage.h"

#include <chrono>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "core/log.h"
#include "loop/report/report.h"
#include "platform/clock.h"
#include "platform/fs.h"

namespace gdnctl::loop {

namespace {

// The agent may state what kind of change it made. Decisions use nothing else that it says.
std::string change_class_of(const StageContext& context) {
    const auto text = read_file_if_exists(context.artefacts.path(context.iteration, "report.json"));
    if (!text || !*text) return {};
    const auto report = parse_json(**text, "the agent's report");
    return report ? json::text(*report, "change_class") : std::string();
}

// An existing verdict on this candidate, from a loop that was killed before it wrote its own record.
std::optional<PerfRecord> earlier_verdict(const PerfState& state, int iteration, const std::string& commit) {
    const auto history = state.history();
    if (history.empty()) return std::nullopt;
    const PerfRecord& last = history.back();
    if (last.iteration != iteration || last.commit != commit) return std::nullopt;
    return last;
}

// If a commit that was measured before now fails, that is not the fault of the candidate measured alongside.
ErrorKind kind_of(Outcome outcome, bool of_candidate) {
    switch (outcome) {
        case Outcome::environment: return ErrorKind::config;
        case Outcome::infra:
        case Outcome::timeout: return ErrorKind::infrastructure;
        default: return of_candidate ? ErrorKind::check_failed : ErrorKind::infrastructure;
    }
}

// A profile of either side failed.
StageResult unmeasured(const Error& error, StageResult result) {
    result.verdict = StageVerdict::fail;
    result.outcome = error.kind == ErrorKind::config           ? Outcome::environment
                     : error.kind == ErrorKind::infrastructure ? Outcome::infra
                                                               : Outcome::rejected;
    result.reason = error.text();
    result.sign = error.message;
    result.exit_status = 1;
    return result;
}

bool is_ours(const Error& error) {
    return error.kind == ErrorKind::config || error.kind == ErrorKind::infrastructure ||
           error.kind == ErrorKind::check_failed;
}

}  // namespace

Result<PerfSettings> perf_settings(const PerfOptions& options, const Target& target, const std::filesystem::path& cwd,
                                   const std::filesystem::path& log_dir) {
    PerfSettings settings;
    GDNCTL_TRY_ASSIGN(settings.policy, policy_of(options, target, cwd));
    settings.on_regression = options.regression_policy;
    settings.pairs = static_cast<int>(options.pairs);
    settings.upper_bound_step_ms = options.upper_bound_step_ms;
    settings.metric = !options.metric.empty() ? options.metric
                      : target.metric         ? target.metric->name
                                              : std::string("throughput/mfu");
    settings.unit = target.metric && target.metric->name == settings.metric && !target.metric->unit.empty()
                        ? target.metric->unit
                        : runlog::unit_of(settings.metric, nullptr);
    settings.higher_is_better =
        !target.metric || target.metric->name != settings.metric || !target.metric->lower_is_better;
    settings.state_file = options.state_file.empty() ? log_dir / k_perf_state : cwd / options.state_file;
    return settings;
}

Policy PerformanceStage::policy() const {
    switch (m_settings.on_regression) {
        case RegressionPolicy::revert_count_failure:
        case RegressionPolicy::count_failure: return Policy::count_failure;
        case RegressionPolicy::revert_continue:
        case RegressionPolicy::go_on: return Policy::go_on;
        case RegressionPolicy::fail: break;
    }
    return Policy::fail;
}

Result<Measurement> PerformanceStage::measure(const StageContext& context, const JobSite& site,
                                              const std::string& commit, StageResult& spent) {
    constexpr int k_tries = 2;
    std::filesystem::path tree = context.tree;
    const bool of_candidate = commit == context.candidate.head;
    if (!of_candidate) {
        GDNCTL_TRY_ASSIGN(tree, m_trees.at(commit));
    }
    // Runs of each commit have their own name, so that a search for one never finds the other.
    const std::string name = profile_prefix(m_jobs.options(), context.iteration) + "_" + commit.substr(0, 8);
    JobOrder order{JobKind::profile, site, tree, {}, name, {}, context.stop};
    JobEnd end;
    for (int attempt = 0; attempt < k_tries; ++attempt) {
        order.log = context.artefacts.unused(context.iteration, "performance-" + commit.substr(0, 12), ".log");
        const WallTime submitted = m_clock.wall();
        GDNCTL_TRY_ASSIGN(end, m_jobs.run(order));
        if (end.report.backend != "local") spent.tpu_ms += end.report.duration_ms();
        if (!end.failure) return read_profile(end, order, submitted, m_jobs, m_settings.metric, m_recorded);
        if (!end.retryable) break;
    }
    Error error{kind_of(end.failure->outcome, of_candidate), end.failure->sign, {}, {}};
    return tl::unexpected(std::move(error).within("profile of " + commit.substr(0, 12)));
}

Result<StageResult> PerformanceStage::run(const StageContext& context) {
    const std::string& head = context.candidate.head;
    GDNCTL_TRY_ASSIGN(const PerfState state, load_perf_state(m_settings.state_file));
    if (const auto known = earlier_verdict(state, context.iteration, head)) {
        return stage_result_of(recorded_decision(*known, m_settings.policy, m_settings.on_regression), *known);
    }
    GDNCTL_TRY_ASSIGN(const StoredMeasurement stored,
                      load_measurement(context.artefacts.path(context.iteration, "measurement.json")));
    const auto now = std::chrono::duration_cast<std::chrono::seconds>(m_clock.wall().time_since_epoch());
    ReviewInput input{m_settings.policy,
                      m_settings.on_regression,
                      m_settings.higher_is_better,
                      m_settings.pairs,
                      context.iteration,
                      context.base.sha,
                      head,
                      stored.measurement,
                      change_class_of(context),
                      m_settings.upper_bound_step_ms,
                      now.count(),
                      m_settings.unit};
    StageResult spent;
    const ReviewWorld world{[&](const std::string& commit) { return measure(context, stored.site, commit, spent); },
                            [&](const std::string& from, const std::string& to) { return m_trees.differs(from, to); },
                            [](const std::string& line) { log::info("{}", line); }};
    const auto done = review(state, input, world);
    if (!done) {
        if (is_ours(done.error())) return unmeasured(done.error(), std::move(spent));
        return tl::unexpected(done.error());
    }
    int suspects = 0;
    GDNCTL_TRY(update_perf_state(m_settings.state_file, [&](PerfState& latest) -> Status {
        suspects = apply_review(latest, *done);
        return {};
    }));
    if (suspects > 0) log::warning("{} earlier rejections are suspect: the base had moved (perf_state.json)", suspects);
    StageResult result = stage_result_of(done->decision, done->record);
    result.tpu_ms = spent.tpu_ms;
    result.facts["runs"] = std::to_string(done->runs);
    if (done->base_shifted) result.facts["baseline_shift"] = "true";
    const auto champion = state.champion(done->record.measured.fingerprint.key());
    const PerfVerdict verdict = done->decision.verdict;
    const bool worse = verdict == PerfVerdict::regression || verdict == PerfVerdict::control_flow_regression;
    if (worse && champion) result.facts["champion"] = champion->commit;
    return result;
}

StageResult stage_result_of(const PerfDecision& decision, const PerfRecord& record) {
    StageResult result;
    result.promoted = decision.becomes_champion();
    result.reason = std::string(to_text(decision.verdict));
    const std::string gain = decision.gain ? runlog::gain_text(*decision.gain) : std::string();
    if (!gain.empty()) result.reason += ": " + gain;
    if (!decision.why_not_compared.empty()) result.reason += ": " + decision.why_not_compared;
    if (!decision.reasons.empty()) result.reason += ": " + decision.reasons.front();
    if (const std::string busy = busy_words(decision); !busy.empty()) {
        result.reason += "; " + busy;
        result.facts["busy"] = decision.busy;
    }
    result.facts["decision"] = to_text(decision.verdict);
    if (record.measured.value) {
        result.facts["metric." + record.measured.metric] = fmt::format("{:.9g}", *record.measured.value);
        result.facts["noise"] = noise_text(record.measured.points, decision.gain ? decision.gain->unit : "");
    }
    if (!gain.empty()) {
        result.facts["gain"] = gain;
        result.facts["compared"] = runlog::compared_text(*decision.gain);
    }
    for (const GateResult& gate : decision.gates) {
        result.facts["gate." + gate.id] =
            fmt::format("{}{}{}", to_text(gate.kind), gate.numbers.empty() ? "" : " " + gate.numbers,
                        gate.kind == GateResult::Kind::skip ? " (" + gate.reason + ")" : "");
    }
    const bool stays = decision.ok && !decision.take_back && !decision.count_failure;
    if (stays) return result;
    result.verdict = StageVerdict::fail;
    result.outcome = Outcome::rejected;
    result.sign = std::string(to_text(decision.verdict));
    result.exit_status = 1;
    // Being no faster is not a failure, whatever the policy for regressions is.
    if (decision.ok && !decision.count_failure) result.policy = Policy::go_on;
    return result;
}

}  // namespace gdnctl::loop
