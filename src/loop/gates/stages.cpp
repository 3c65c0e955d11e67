#include "loop/gates/stages.h"

#include <algorithm>
#include <chrono>
#include <fstream>

#include <fmt/format.h>

#include "core/for_people.h"
#include "core/json.h"
#include "core/log.h"
#include "core/redact.h"
#include "core/text.h"
#include "jobs/run.h"
#include "loop/engine/messages.h"
#include "loop/gates/flakes.h"
#include "loop/gates/traces.h"
#include "loop/measure/failing_case.h"
#include "loop/memory/run_view.h"
#include "loop/perf/state.h"
#include "platform/env.h"
#include "platform/fs.h"
#include "platform/machine.h"
#include "platform/signals.h"
#include "services/cluster/cluster.h"

namespace gdnctl::loop {

namespace {

constexpr std::size_t k_tail = std::size_t{64} << 10;
// Output lines of a check that are shown immediately. A failing check also shows its first failing case.
constexpr std::size_t k_shown_lines = 20;

// A login shell resets PATH; the caller's PATH is appended to it, then the folder of this program.
constexpr const char* k_more_path = "GDNCTL_CALLERS_PATH";

std::string callers_path(const std::filesystem::path& program) {
    std::string path = process_env().get("PATH").value_or("");
    const std::string own = program.parent_path().string();
    // An empty part of PATH would mean the command's working directory, which is the agent's tree.
    if (!path.empty() && !own.empty()) path += ':';
    return path + own;
}

class PostCheckStage final : public Stage {
public:
    PostCheckStage(PostChecks checks, Process& process, Clock& clock)
        : m_checks(std::move(checks)), m_process(process), m_clock(clock) {}

    std::string_view name() const override { return m_checks.name; }
    Policy policy() const override { return m_checks.policy; }
    bool wants(DiffClass diff) const override {
        return !m_checks.commands.empty() && (!m_checks.only_changes || diff == DiffClass::change);
    }

    Result<StageResult> run(const StageContext& context) override {
        StageResult result;
        for (std::size_t i = 0; i < m_checks.commands.size(); ++i) {
            GDNCTL_TRY_ASSIGN(result, run_command(i, context));
            if (result.verdict == StageVerdict::fail) {
                const bool post_check = m_checks.name == "post-check";
                const std::string on = message::going_on(m_checks.policy);
                if (post_check) {
                    log::write_as_it_is(log::Level::error, std::string(message::k_post_check_failed) + on);
                } else {
                    log::error("A command of the target's `validate` failed.{}", on);
                }
                return result;
            }
        }
        return result;
    }

private:
    Result<StageResult> run_command(std::size_t index, const StageContext& context) {
        const std::string& command = m_checks.commands[index];
        const auto attempts = static_cast<int>(m_checks.retries) + 1;
        StageResult result;
        for (int attempt = 1;; ++attempt) {
            GDNCTL_TRY_ASSIGN(result, try_command(index, context));
            if (result.verdict != StageVerdict::fail || attempt >= attempts) return result;
            log::write_as_it_is(log::Level::warning, message::post_check_retry(attempt, attempts, command));
            if (!m_clock.sleep_for(std::chrono::seconds(m_checks.retry_sleep_s), context.stop)) {
                return tl::unexpected(stopped_error());
            }
        }
    }

    Result<StageResult> try_command(std::size_t index, const StageContext& context) {
        ProcessSpec spec;
        const std::string& command = m_checks.commands[index];
        spec.argv = {"bash", "-lc", fmt::format("PATH=$PATH:${}; {}", k_more_path, command)};
        spec.cwd = context.tree / m_checks.subfolder;
        if (m_checks.private_tree) {
            for (const std::string_view name : active_python_variables()) spec.env[std::string(name)] = std::nullopt;
        }
        for (const auto& [name, value] : m_checks.environment) spec.env[name] = value;
        spec.env[k_more_path] = callers_path(m_checks.program);
        spec.merge_stderr = true;
        spec.takes_strays = true;
        spec.stop = context.stop;
        if (m_checks.timeout_s > 0) spec.wall_limit = std::chrono::seconds(m_checks.timeout_s);
        const auto output =
            context.artefacts.unused(context.iteration, fmt::format("{}-{}", m_checks.name, index + 1), ".log");
        std::ofstream file(output);
        std::string tail;
        std::size_t lines = 0;
        spec.on_stdout_line = [&](std::string_view line) {
            (file << redact(line) << '\n').flush();  // people follow this file
            if (++lines <= k_shown_lines && m_checks.show) m_checks.show(line);
            if (lines == k_shown_lines + 1) log::info("more output of this check: {}", output.string());
            tail.append(line).append("\n");
            if (tail.size() > 2 * k_tail) tail.erase(0, tail.size() - k_tail);
        };
        log::write_as_it_is(log::Level::info, fmt::format("$ bash -lc {}", text::shell_quote(command)));
        GDNCTL_TRY_ASSIGN(const ProcessResult ended, m_process.run(spec));
        if (ended.end == ProcessResult::End::stopped) return tl::unexpected(stopped_error());
        StageResult result;
        result.facts["command"] = m_checks.commands[index];
        result.facts["log"] = output.filename().string();
        if (ended.ok()) return result;
        constexpr int k_by_signal = 128;
        result.verdict = StageVerdict::fail;
        result.exit_status = ended.exit_code < 0 ? k_by_signal - ended.exit_code : ended.exit_code;
        result.reason = fmt::format("{} {}", command, describe_end(ended, spec));
        if (ended.end == ProcessResult::End::wall_limit) {
            result.exit_status = static_cast<int>(ExitCode::timeout);
            result.outcome = Outcome::timeout;
            result.sign = command;
            return result;
        }
        log::warning("{}", failing_case_text(result.reason, first_failing_case(tail), output.string()));
        const auto failure = failure_of(tail, RunsOn::anywhere);
        result.outcome = failure ? failure->outcome : Outcome::test_fail;
        result.sign = failure ? failure->sign : command;
        return result;
    }

    PostChecks m_checks;
    Process& m_process;
    Clock& m_clock;
};

constexpr std::string_view k_usual_pytest = "-k ";
constexpr std::size_t k_most_flakes = 3;  // more failures at once are no coincidence
constexpr int k_reruns = 2;

// "tests/test_gdn_layer.py::test_x[4]" -> "test_x": what -k understands.
std::string test_name(const std::string& id) {
    const std::size_t from = id.rfind("::");
    const std::string name = from == std::string::npos ? id : id.substr(from + 2);
    return name.substr(0, name.find('['));
}

LadderDeps ladder_deps(const ValidationDeps& deps, const StageContext& context,
                       std::function<Result<JobEnd>(const JobSite&)> run) {
    return {std::move(run), deps.held, [&context] { return context.artefacts.stop_requested(); }, deps.clock,
            context.stop};
}

std::int64_t device_ms(const JobReport& report) { return report.backend == "local" ? 0 : report.duration_ms(); }

void put_fact(StageResult& result, const char* name, const std::string& value) {
    if (!value.empty()) result.facts[name] = value;
}

void put_job_facts(StageResult& result, const JobEnd& end) {
    put_fact(result, "job", end.report.submission_id);
    put_fact(result, "cluster", end.report.cluster);
    put_fact(result, "log", end.log.filename().string());
    put_fact(result, "command", end.command);
}

void put_test_facts(StageResult& result, const JobEnd& end, const ValidationOptions& options) {
    using Suite = TestSelection::Suite;
    put_fact(result, "suites",
             options.suite == Suite::both      ? "kernels,layer"
             : options.suite == Suite::kernels ? "kernels"
                                               : "layer");
    if (const auto& counts = end.evidence.output.pytest()) {
        result.facts["passed"] = std::to_string(counts->passed);
        result.facts["failed"] = std::to_string(counts->failed + counts->errors);
        result.facts["skipped"] = std::to_string(counts->skipped);
    }
    put_fact(result, "verdict", end.evidence.output.verdicts().overall);
    const OracleFinding& oracle = end.evidence.oracle;
    if (oracle.found()) put_fact(result, "oracle_item", oracle.item + ": " + oracle.verdict);
    put_fact(result, "oracle_stage", oracle.stage);
    put_fact(result, "oracle_where", oracle.where);
    put_fact(result, "oracle_first_wrong_token", oracle.token);
    // Measured, not assumed: everything was run, and the output is evidence.
    const bool whole = options.suite == Suite::both && options.pytest_args.empty();
    result.facts["validation_tests_full_parity"] = whole && !end.failure ? "true" : "false";
}

// What the run reports to have run, in addition to what was requested.
void put_setting_facts(StageResult& result, const ProfileSettings& asked, const ProfileReport& reported) {
    const SettingWords words = setting_words(asked, reported);
    for (const auto& [name, value] : words.requested) result.facts["requested." + name] = value;
    for (const auto& [name, value] : words.effective) result.facts["effective." + name] = value;
}

void put_compared(CeCompare& compare, const Measurement& first, const Measurement& other) {
    compare.backend_selected = other.ce_backend_selected;
    compare.run_url = other.run_url;
    compare.source = other.source;
    compare.value = other.value;
    compare.window_points = other.window_points;
    compare.metrics = other.metrics;
    if (!other.value) {
        compare.failure = "no " + other.metric + " was measured";
    } else if (first.value && is_same_source(first, other)) {
        compare.delta_pct = delta_percent(*first.value, *other.value);
    }
}

// "xla, pallas: 5.4 (+8.00%)"
std::string compare_text(const CeCompare& compare) {
    return fmt::format("{}, {}: {}{}", compare.implementation, compare.bwd_mode,
                       compare.value ? number_for_people(*compare.value) : compare.failure,
                       compare.delta_pct ? fmt::format(" ({}%)", signed_number(*compare.delta_pct, 2)) : "");
}

std::string hash_text(const std::string& bytes) {
    const Fingerprint whole{{{"", bytes}}, {}};
    return whole.key();
}

// How a failed job affects the iteration.
StageResult failed_stage(const JobEnd& end) {
    StageResult result;
    result.verdict = StageVerdict::fail;
    result.outcome = end.failure->outcome == Outcome::timeout ? Outcome::rejected : end.failure->outcome;
    result.sign = end.failure->sign;
    result.reason = end.summary;
    result.exit_status = end.rc == 0 ? 1 : end.rc;
    result.tpu_ms = device_ms(end.report);
    put_job_facts(result, end);
    return result;
}

Status store_measurement(const std::filesystem::path& path, const StoredMeasurement& stored) {
    Json out = measurement_json(stored.measurement);
    out["site"] = {{"cluster", stored.site.cluster}, {"dev_tpu", stored.site.dev_tpu}, {"tpu", stored.site.tpu}};
    return atomic_replace(path, gdnctl::to_text(out, 2) + "\n", 0600);
}

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

std::string no_trace_value(const Measurement& m) {
    return fmt::format("no {} was read from a trace{}{}", m.metric, m.warnings.empty() ? "" : ": ",
                       m.warnings.empty() ? std::string() : m.warnings.back());
}

// The trace says nothing of the candidate.
void fail_without_trace(StageResult& result, const Measurement& m) {
    result.verdict = StageVerdict::fail;
    result.outcome = Outcome::infra;
    result.reason = result.sign = no_trace_value(m);
    result.exit_status = static_cast<int>(ExitCode::infrastructure);
    log::write_as_it_is(log::Level::warning, k_gate_failed);
}

bool is_ours(const Error& error) {
    return error.kind == ErrorKind::config || error.kind == ErrorKind::infrastructure ||
           error.kind == ErrorKind::check_failed;
}

// How a decision affects the iteration. `count-failure` without `revert` also removes the candidate: nothing slower is
// kept.
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
    if (!decision.labels.empty()) {
        result.facts["labels"] = text::join(decision.labels, ", ");
        result.reason += "; " + result.facts["labels"];
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
    const bool stays = decision.ok && !decision.undo && !decision.count_failure;
    if (stays) return result;
    result.verdict = StageVerdict::fail;
    result.outcome = Outcome::rejected;
    result.sign = std::string(to_text(decision.verdict));
    result.exit_status = 1;
    // Being no faster is not a failure, whatever the policy for regressions is.
    if (decision.ok && !decision.count_failure) result.policy = Policy::go_on;
    return result;
}

}  // namespace

std::unique_ptr<Stage> make_post_checks(PostChecks checks, Process& process, Clock& clock) {
    return std::make_unique<PostCheckStage>(std::move(checks), process, clock);
}

Policy policy_of_gate(ValidationPolicy policy) {
    return policy == ValidationPolicy::fail            ? Policy::fail
           : policy == ValidationPolicy::count_failure ? Policy::count_failure
                                                       : Policy::go_on;
}

std::string profile_prefix(const ValidationOptions& options, int iteration) {
    return fmt::format("{}_iter{:03d}", options.profile.run_name_prefix, iteration);
}

std::string ce_profile_prefix(const ValidationOptions& options, const CeChoice& ce, int iteration) {
    return fmt::format("{}_ce_{}_{}_iter{:03d}", options.profile.run_name_prefix, ce.implementation, ce.bwd_mode,
                       iteration);
}

namespace {

Result<TestRun> run_tests(const ValidationDeps& deps, const StageContext& context, TestSelection::Oracle oracle) {
    TestRun run;
    run.head = context.candidate.head;
    Ladder ladder(JobKind::tests, sites_for(JobKind::tests, deps),
                  ladder_deps(deps, context, [&](const JobSite& site) -> Result<JobEnd> {
                      run.site = site;
                      JobOrder order{JobKind::tests,
                                     site,
                                     context.tree,
                                     context.artefacts.unused(context.iteration, "validation-tests", ".log"),
                                     {},
                                     {},
                                     context.stop};
                      order.oracle = oracle;
                      GDNCTL_TRY_ASSIGN(JobEnd end, deps.jobs.run(order));
                      run.spent += device_ms(end.report);
                      return end;
                  }));
    const ValidationOptions& options = deps.jobs.options();
    GDNCTL_TRY_ASSIGN(run.end, ladder.climb(options.max_attempts, std::chrono::seconds(options.retry_sleep_s)));
    return run;
}

void put_oracle_facts(StageResult& result, const JobEnd& end) {
    if (!end.oracle.is_null()) result.facts["oracle"] = gdnctl::to_text(end.oracle);
    put_fact(result, "verdict", json::text(end.oracle, "verdict"));
    const OracleFinding& oracle = end.evidence.oracle;
    if (oracle.found()) put_fact(result, "oracle_item", oracle.item + ": " + oracle.verdict);
    put_fact(result, "oracle_stage", oracle.stage);
    put_fact(result, "oracle_where", oracle.where);
    put_fact(result, "oracle_first_wrong_token", oracle.token);
}

}  // namespace

std::vector<JobSite> sites_for(JobKind kind, const ValidationDeps& deps) {
    const ValidationOptions& options = deps.jobs.options();
    const std::string active = deps.held != nullptr && deps.held->active() ? deps.held->cluster() : std::string();
    std::vector<JobSite> sites;
    const auto names = gate_clusters(options, deps.hold, active, deps.clusters.root);
    for (const std::string& name : names) sites.push_back({name, {}, kind == JobKind::tests ? options.tpu : ""});
    if (kind != JobKind::tests || !options.cross_tpu_tests) return sites;
    for (const std::string& name : names) {
        const auto file = find_cluster(deps.clusters, name);
        if (!file) continue;
        const auto meant = options.tpu == "auto" ? infer_tpu(*file) : Result<std::string>(options.tpu);
        for (const std::string& type : tpu_types(*file)) {
            const bool known = type.starts_with("v5") || type.starts_with("v6e");  // v5p, v5e (v5litepod), v6e
            if (known && meant != type) sites.push_back({name, {}, type});
        }
    }
    return sites;
}

Result<JobEnd> ask_oracle(const ValidationDeps& deps, const std::filesystem::path& tree, const Artefacts& artefacts,
                          std::stop_token stop) {
    Ladder ladder(JobKind::tests, sites_for(JobKind::tests, deps),
                  {[&](const JobSite& site) {
                       JobOrder order{
                           JobKind::tests, site, tree, artefacts.unused(0, "oracle-base", ".log"), {}, {}, stop};
                       order.oracle = TestSelection::Oracle::alone;
                       return deps.jobs.run(order);
                   },
                   deps.held, [&artefacts] { return artefacts.stop_requested(); }, deps.clock, stop});
    const ValidationOptions& options = deps.jobs.options();
    return ladder.climb(options.max_attempts, std::chrono::seconds(options.retry_sleep_s));
}

Result<StageResult> OracleStage::run(const StageContext& context) {
    StageResult result;
    GDNCTL_TRY_ASSIGN(const OracleUse use, m_deps.oracle(context.base.sha, context.artefacts));
    if (use == OracleUse::off) {
        result.verdict = StageVerdict::skip;
        result.reason = "the base is not OK, so candidates are judged without the oracle";
        return result;
    }
    if (use == OracleUse::unknown) {
        result.verdict = StageVerdict::fail;
        result.outcome = Outcome::infra;
        result.reason = result.sign = "the oracle could not judge the base";
        result.exit_status = static_cast<int>(ExitCode::infrastructure);
        return result;
    }
    GDNCTL_TRY_ASSIGN(TestRun run, run_tests(m_deps, context, TestSelection::Oracle::first));
    const JobEnd& end = run.end;
    if (end.oracle_ok) {
        // Where and for how long the job ran is in the record of the tests.
        result.facts["command"] = json::text(end.oracle, "command");
        result.reason = "verdict OK";
        put_oracle_facts(result, end);
        *m_deps.tests = std::move(run);
        return result;
    }
    result = failed_stage(end);
    log::write_as_it_is(log::Level::warning, k_gate_failed);
    put_oracle_facts(result, end);
    result.tpu_ms = run.spent;
    return result;
}

Result<StageResult> TestsStage::run(const StageContext& context) {
    TestRun run;
    if (m_deps.tests && m_deps.tests->head == context.candidate.head) {
        std::swap(run, *m_deps.tests);
    } else {
        GDNCTL_TRY_ASSIGN(run, run_tests(m_deps, context, TestSelection::Oracle::off));
    }
    const ValidationOptions& options = m_deps.jobs.options();
    const JobEnd& end = run.end;
    bool flaky = false;
    if (end.failure && end.failure->outcome == Outcome::test_fail) {
        GDNCTL_TRY_ASSIGN(flaky, passes_alone(context, run.site, end));
    }
    StageResult result;
    if (end.failure && !flaky) {
        result = failed_stage(end);
        log::write_as_it_is(log::Level::warning, k_gate_failed);
    } else {
        put_job_facts(result, end);
        result.reason = end.summary;
        if (flaky) {
            result.outcome = Outcome::flaky;
            result.reason += "; passed when run alone";
            result.facts["flaky"] = text::join(end.evidence.failed_tests, " ");
        }
    }
    put_test_facts(result, end, options);
    result.tpu_ms = run.spent;
    return result;
}

// Whether the failed tests pass on their own. Each is recorded as a sighting of a flake.
Result<bool> TestsStage::passes_alone(const StageContext& context, const JobSite& site, const JobEnd& red) {
    const auto& failed = red.evidence.failed_tests;
    if (m_deps.jobs.target().style != TargetStyle::levanter || failed.empty() || failed.size() > k_most_flakes) {
        return false;
    }
    std::vector<std::string> names;
    for (const std::string& id : failed) names.push_back(test_name(id));
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    JobOrder order{JobKind::tests, site, context.tree, {}, {}, {}, context.stop};
    order.pytest_args = std::string(k_usual_pytest) + text::shell_quote(text::join(names, " or "));
    bool passed = false;
    for (int rerun = 0; rerun < k_reruns; ++rerun) {
        order.log = context.artefacts.unused(context.iteration, "validation-tests-alone", ".log");
        GDNCTL_TRY_ASSIGN(const JobEnd end, m_deps.jobs.run(order));
        passed = !end.failure;
        // Failing twice in the same test is no coincidence. An environment problem says nothing about the test.
        if (passed || !end.retryable) break;
    }
    for (const std::string& id : failed) {
        GDNCTL_TRY(append_flake(context.artefacts.folder(),
                                {id, context.run, context.iteration, passed, red.evidence.max_abs, std::nullopt, {}},
                                m_deps.clock.wall()));
    }
    return passed;
}

Measurement measured_by(const JobEnd& end, const JobOrder& order, const TargetJobs& jobs, const std::string& metric) {
    ProfileQuestion question{metric, jobs.options().profile, {}};
    if (order.ce) {
        question.settings.ce_implementation = order.ce->implementation;
        question.settings.ce_bwd_mode = order.ce->bwd_mode;
    }
    if (is_in_trace(jobs.target(), metric)) question.asked["metric_from"] = jobs.target().metric->from;
    if (jobs.target().style == TargetStyle::levanter) {
        const JobOrder plain{JobKind::profile, {}, order.tree, {}, {}, {}, {}, order.ce};
        question.asked["settings"] = text::shell_join(command_words(jobs.spec(plain)));
    }
    if (end.report.backend == "local") {
        if (const auto host = host_name()) question.asked["machine"] = *host;
    }
    // It determines what is installed on the device.
    if (const auto lock = read_file_if_exists(order.tree / "uv.lock"); lock && *lock) {
        question.asked["uv.lock"] = hash_text(**lock);
    }
    Measurement m = measurement_of(end.report, end.evidence, question);
    m.busy = end.busy;
    return m;
}

Result<Measurement> read_profile(const JobEnd& end, const JobOrder& order, WallTime submitted, const TargetJobs& jobs,
                                 const std::string& metric, RecordedMetrics* recorded) {
    Measurement m = measured_by(end, order, jobs, metric);
    if (recorded == nullptr || is_in_trace(jobs.target(), metric)) return m;
    m.fingerprint.asked["aggregation"] = to_text(recorded->options());
    GDNCTL_TRY(recorded->take(m, {m.run_url, order.profile_prefix, submitted, order.stop}));
    return m;
}

Result<StoredMeasurement> load_measurement(const std::filesystem::path& path) {
    ReadOptions options;
    options.missing = ErrorKind::bad_input;
    GDNCTL_TRY_ASSIGN(const std::string text, read_file(path, options));
    GDNCTL_TRY_ASSIGN(const Json value, parse_json(text, path.string()));
    if (!value.is_object() || value.value("schema", Json()) != Json("gdnctl.measurement/1")) {
        return fail(ErrorKind::bad_input, path.string() + " is not a measurement");
    }
    StoredMeasurement stored{parse_measurement(value), {}};
    stored.site = {json::text_at(value, "/site/cluster"), json::text_at(value, "/site/dev_tpu"),
                   json::text_at(value, "/site/tpu")};
    return stored;
}

Result<StageResult> ProfileStage::run(const StageContext& context) {
    const ValidationOptions& options = m_deps.jobs.options();
    const std::string prefix = profile_prefix(options, context.iteration);
    std::int64_t spent = 0;
    JobOrder last;
    WallTime submitted;
    Ladder ladder(JobKind::profile, sites_for(JobKind::profile, m_deps),
                  ladder_deps(m_deps, context, [&](const JobSite& site) -> Result<JobEnd> {
                      last = JobOrder{
                          JobKind::profile, site,
                          context.tree,     context.artefacts.unused(context.iteration, "validation-profile", ".log"),
                          prefix,           {},
                          context.stop};
                      submitted = m_deps.clock.wall();
                      GDNCTL_TRY_ASSIGN(JobEnd end, m_deps.jobs.run(last));
                      spent += device_ms(end.report);
                      return end;
                  }));
    GDNCTL_TRY_ASSIGN(JobEnd end, ladder.climb(options.max_attempts, std::chrono::seconds(options.retry_sleep_s)));
    StageResult result;
    if (end.failure) {
        result = failed_stage(end);
        log::write_as_it_is(log::Level::warning, k_gate_failed);
    } else {
        GDNCTL_TRY_ASSIGN(Measurement m, read_profile(end, last, submitted, m_deps.jobs, m_metric, m_deps.recorded));
        GDNCTL_TRY(put_trace(context, m, end, result));
        GDNCTL_TRY(compare_ce(context, last.site, m, result));
        GDNCTL_TRY(store_measurement(context.artefacts.path(context.iteration, "measurement.json"), {m, last.site}));
        put_job_facts(result, end);
        result.reason = m.value ? fmt::format("{}={}", m.metric, quantity(*m.value, runlog::unit_of(m.metric, nullptr)))
                                : "no " + m.metric + " was printed";
        if (m.value) result.facts["metric." + m.metric] = fmt::format("{:.9g}", *m.value);
        if (m_deps.recorded != nullptr) put_fact(result, "metric_source", m.source);
        put_fact(result, "warnings", text::join(m.warnings, "; "));
        put_fact(result, "busy", m.busy);
        put_fact(result, "run_url", m.run_url);
        put_fact(result, "ce_backend_selected", m.ce_backend_selected);
        put_fact(result, "profile_architecture", m.profile_architecture);
        if (!end.report.runs_as_written) put_setting_facts(result, options.profile, end.evidence.output.profile());
        if (!m.value && is_in_trace(m_deps.jobs.target(), m_metric)) fail_without_trace(result, m);
    }
    result.facts["profile_prefix"] = prefix;
    result.tpu_ms += spent;
    return result;
}

// Reads the profile's trace, if there is one, into the measurement, and keeps what later steps need of it.
Status ProfileStage::put_trace(const StageContext& context, Measurement& m, JobEnd& end, StageResult& result) {
    const Artefacts& artefacts = context.artefacts;
    if (end.trace) GDNCTL_TRY(keep_trace(*end.trace, artefacts, context.iteration));
    auto champion = m_state_file.empty() ? std::nullopt : load_baseline(trace_baseline(m_state_file, m.fingerprint));
    const auto read = add_trace(m, end, m_deps.jobs.target(), std::move(champion));
    if (!read) return {};
    GDNCTL_TRY(store_baseline(artefacts.path(context.iteration, k_trace_profile), read->profile));
    GDNCTL_TRY(atomic_replace(artefacts.path(context.iteration, k_trace_digest), read->digest, 0600));
    const auto inside = std::filesystem::path(read->path).lexically_relative(artefacts.folder());
    put_fact(result, "trace", inside.generic_string());
    put_fact(result, "trace_sha256", read->sha256);
    put_fact(result, "trace_lines", text::join(read->log_lines, "\n"));
    for (const auto& [key, value] : read->budgets) result.facts["trace." + key] = fmt::format("{:.9g}", value);
    if (read->diff) {
        put_fact(result, "trace_verdict", trace::name_of(read->diff->verdict));
        put_fact(result, "trace_labels", text::join(read->diff->labels, ", "));
    }
    return {};
}

// Takes a second profile with another cross-entropy, if requested. Whatever its result, the candidate is judged by its
// own profile only.
Status ProfileStage::compare_ce(const StageContext& context, const JobSite& site, Measurement& m, StageResult& result) {
    const ValidationOptions& options = m_deps.jobs.options();
    const auto ce = ce_comparison(options);
    if (!ce || m_deps.jobs.target().style != TargetStyle::levanter) return {};
    JobOrder order{JobKind::profile,
                   site,
                   context.tree,
                   context.artefacts.unused(context.iteration, "validation-profile-ce", ".log"),
                   ce_profile_prefix(options, *ce, context.iteration),
                   {},
                   context.stop,
                   ce};
    CeCompare compare;
    compare.implementation = ce->implementation;
    compare.bwd_mode = ce->bwd_mode;
    compare.profile_prefix = order.profile_prefix;
    const WallTime submitted = m_deps.clock.wall();
    const auto end = m_deps.jobs.run(order);
    if (!end && is_interruption(end.error())) return tl::unexpected(end.error());
    if (end) result.tpu_ms += device_ms(end->report);
    if (!end || end->failure) {
        compare.failure = end ? end->summary : end.error().text();
    } else {
        GDNCTL_TRY_ASSIGN(const Measurement other,
                          read_profile(*end, order, submitted, m_deps.jobs, m_metric, m_deps.recorded));
        put_compared(compare, m, other);
    }
    if (!compare.failure.empty()) {
        log::warning("no comparison with the cross-entropy {}, {}: {}", ce->implementation, ce->bwd_mode,
                     compare.failure);
    }
    put_fact(result, "ce_ab_compare", compare_text(compare));
    m.ce_ab_compare = std::move(compare);
    return {};
}

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
        if (!end.failure) {
            GDNCTL_TRY_ASSIGN(Measurement m,
                              read_profile(end, order, submitted, m_jobs, m_settings.metric, m_recorded));
            auto read = add_trace(m, end, m_jobs.target(), std::nullopt);
            drop_trace(end);
            if (read) m_traces[commit] = std::move(read->profile);
            if (m.value || !is_in_trace(m_jobs.target(), m.metric)) return m;
            return fail(ErrorKind::infrastructure, no_trace_value(m));
        }
        if (!end.retryable) break;
    }
    Error error{kind_of(end.failure->outcome, of_candidate), end.failure->sign, {}, {}};
    return tl::unexpected(std::move(error).within("profile of " + commit.substr(0, 12)));
}

// The champion has changed, and so does what the next trace is compared with.
Status PerformanceStage::keep_champions_trace(const StageContext& context, const PerfRecord& champion) const {
    const auto path = trace_baseline(m_settings.state_file, champion.measured.fingerprint);
    const auto known = m_traces.find(champion.commit);
    if (known != m_traces.end()) return store_baseline(path, known->second);
    if (champion.commit != context.candidate.head) return store_baseline(path, std::nullopt);
    return store_baseline(path, load_baseline(context.artefacts.path(context.iteration, k_trace_profile)));
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
    const ReviewDeps deps{[&](const std::string& commit) { return measure(context, stored.site, commit, spent); },
                          [&](const std::string& from, const std::string& to) { return m_trees.differs(from, to); },
                          [](const std::string& line) { log::info("{}", line); },
                          [&](const std::string& step) { note_work(context.artefacts.folder(), step); }};
    const auto done = review(state, input, deps);
    if (!done) {
        if (is_ours(done.error())) return unmeasured(done.error(), std::move(spent));
        return tl::unexpected(done.error());
    }
    int suspects = 0;
    GDNCTL_TRY(update_perf_state(m_settings.state_file, [&](PerfState& latest) -> Status {
        suspects = apply_review(latest, *done);
        return {};
    }));
    if (done->champion) GDNCTL_TRY(keep_champions_trace(context, *done->champion));
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

}  // namespace gdnctl::loop
