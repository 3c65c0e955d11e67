#include "loop/gates/validation_jobs.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/log.h"
#include "core/text.h"
#include "loop/measure/failing_case.h"
#include "platform/fs.h"
#include "platform/signals.h"

namespace gdnctl::loop {

namespace {

constexpr std::string_view k_no_cluster = "No cluster config found for region";

std::string counts_text(const Evidence& evidence) {
    const auto& counts = evidence.output.pytest();
    if (counts) {
        std::string out = fmt::format("{} passed, {} skipped", counts->passed, counts->skipped);
        if (counts->failed > 0) out += fmt::format(", {} failed", counts->failed);
        if (counts->errors > 0) out += fmt::format(", {} errors", counts->errors);
        return out;
    }
    const OracleVerdicts& verdicts = evidence.output.verdicts();
    return verdicts.overall.empty() ? std::string() : "verdict " + verdicts.overall;
}

bool tests_are_red(const JobReport& report, const Evidence& evidence) {
    const auto& counts = evidence.output.pytest();
    if (counts) return counts->failed + counts->errors > 0;
    return report.failure_class == "user";
}

// Why passing tests do not count as evidence; empty: they count.
std::string evidence_lack(const Evidence& evidence, const TargetEvidence& expected) {
    if (expected.empty()) return {};
    const auto& counts = evidence.output.pytest();
    if (!counts) return "the log has no pytest summary";
    if (expected.passed_min && counts->passed < *expected.passed_min) {
        return fmt::format("{} passed, {} skipped: at least {} must pass", counts->passed, counts->skipped,
                           *expected.passed_min);
    }
    if (expected.skipped_max && counts->skipped > *expected.skipped_max) {
        return fmt::format("{} passed, {} skipped: at most {} may be skipped (is a package missing?)", counts->passed,
                           counts->skipped, *expected.skipped_max);
    }
    return {};
}

void fail_job(JobEnd& end, Outcome outcome, std::string sign) {
    end.failure = Failure{outcome, std::move(sign)};
    end.retryable = outcome == Outcome::infra || outcome == Outcome::timeout;
}

void judge_success(JobEnd& end, JobKind kind, const JobNeeds& needs) {
    if (needs.oracle && !end.oracle_ok) {
        return fail_job(end, Outcome::infra, "passed, but without a verdict of the oracle");
    }
    if (kind == JobKind::tests) {
        const std::string lack = evidence_lack(end.evidence, needs.evidence);
        if (!lack.empty()) return fail_job(end, Outcome::environment, lack);
    }
    if (needs.tpu && !end.report.backend.empty() && !end.report.tpu_evidence) {
        fail_job(end, Outcome::infra, "no sign of a TPU in the log");
    }
}

// The submitter could not write locally, so no candidate has failed. Output of the job itself comes without one of our
// errors.
bool lacks_room(ExitCode exit, const JobSite& site, const Evidence& evidence) {
    const std::string& tail = evidence.output.tail();
    const auto says = [&](std::string_view words) { return tail.find(words) != std::string::npos; };
    const bool said = says("No space left on device") || says("Disk quota exceeded") || says("File too large");
    return (exit == ExitCode::local_io && (said || tail.empty())) ||
           (exit == ExitCode::infrastructure && site.cluster == "local" && said);
}

void judge_time_limit(JobEnd& end) {
    if (end.report.status == "PENDING") return fail_job(end, Outcome::infra, "job was pending too long");
    if (waits_for_step(end.evidence.output.tail())) {
        return fail_job(end, Outcome::infra, "executor status stuck RUNNING: the job waited for another one's step");
    }
    fail_job(end, Outcome::timeout, "reached its time limit");
}

void judge_failure(JobEnd& end, JobKind kind, ExitCode exit, bool wants_tpu) {
    const JobReport& report = end.report;
    const std::string& tail = end.evidence.output.tail();
    if (tail.find(k_no_cluster) != std::string::npos) {
        end.site_is_unknown = true;
        return fail_job(end, Outcome::environment, std::string(k_no_cluster));
    }
    if (exit == ExitCode::timeout || report.failure_class == "timeout") return judge_time_limit(end);
    if (exit == ExitCode::authentication || report.failure_class == "auth") {
        return fail_job(end, Outcome::environment, "not authorised");
    }
    const auto known = failure_of(tail, wants_tpu ? RunsOn::tpu : RunsOn::anywhere);
    if (known) return fail_job(end, known->outcome, known->sign);
    if (exit == ExitCode::usage || exit == ExitCode::local_io) {
        return fail_job(end, Outcome::environment,
                        fmt::format("the job command refuses to run (exit code {})", end.rc));
    }
    if (exit == ExitCode::infrastructure || report.failure_class.starts_with("infra")) {
        const bool passed = report.status == "SUCCEEDED";
        return fail_job(end, Outcome::infra,
                        passed                   ? "log incomplete"
                        : report.message.empty() ? "cluster unreachable"
                                                 : report.message);
    }
    if (exit == ExitCode::nothing_done) return fail_job(end, Outcome::infra, "the job was stopped");
    if (report.status == "SUCCEEDED") return fail_job(end, Outcome::infra, "passed, but without the required evidence");
    if (kind == JobKind::tests && tests_are_red(report, end.evidence)) {
        const auto& names = end.evidence.failed_tests;
        const std::string found = end.evidence.oracle.sign();
        return fail_job(end, Outcome::test_fail,
                        !names.empty()   ? names.front()
                        : !found.empty() ? found
                                         : "tests failed");
    }
    if (report.failure_class == "user") return fail_job(end, Outcome::rejected, "the profile failed");
    fail_job(end, Outcome::infra, fmt::format("the job command ended with exit code {}", end.rc));
}

// The oracle has found the kernel wrong, or it could not be run.
void judge_oracle(JobEnd& end, bool wants_tpu) {
    const std::string verdict = json::text(end.oracle, "verdict");
    constexpr std::string_view k_of_results[] = {"WRONG", "SUSPECT", "NON_FINITE", "UNSTEADY", "OUT_OF_BOUNDS"};
    const bool of_results =
        std::find(std::begin(k_of_results), std::end(k_of_results), verdict) != std::end(k_of_results);
    const auto known = failure_of(end.evidence.output.tail(), wants_tpu ? RunsOn::tpu : RunsOn::anywhere);
    const bool elsewhere = known && (known->outcome == Outcome::infra || known->outcome == Outcome::environment);
    // A kernel that cannot run may lack a device; one whose results were judged had it.
    if (!of_results && elsewhere) return fail_job(end, known->outcome, known->sign);
    const std::string found = end.evidence.oracle.sign();
    const std::string hint = json::text_at(end.oracle, "/groups/0/hint");
    fail_job(end, Outcome::test_fail,
             !found.empty() ? found : fmt::format("oracle: {}{}{}", verdict, hint.empty() ? "" : ": ", hint));
}

// Its step ended without a verdict, before any test.
bool oracle_broke(const JobEnd& end) {
    const std::string& tail = end.evidence.output.tail();
    const bool named = tail.find("gdnctl: failed step: ") != std::string::npos;
    return end.oracle.is_null() && end.failure->outcome == Outcome::test_fail &&
           (!named || tail.find("gdnctl: failed step: oracle ") != std::string::npos);
}

// For "any number": one hour at the default pause. After that the candidate is parked, and the run ends when this
// happens three times in a row; budgets are not checked in here.
constexpr std::int64_t k_most_passes = 30;

JobEnd no_place(std::string sign) {
    JobEnd end;
    end.rc = 1;
    end.failure = Failure{Outcome::environment, sign};
    end.summary = std::move(sign);
    return end;
}

}  // namespace

JobSpec TargetJobs::spec(const JobOrder& order) const {
    const bool tests = order.kind == JobKind::tests;
    JobSpec spec;
    spec.kind = order.kind;
    spec.site = order.site;
    spec.tree = order.tree;
    spec.log = order.log;
    spec.has_settings = m_target.style == TargetStyle::levanter;
    spec.limit_s = tests ? m_options.test_timeout_s : m_options.profile_timeout_s;
    spec.no_sync = m_options.dev_no_sync;
    spec.stop = order.stop;
    spec.env = order.env;
    spec.argv = order.argv;
    spec.selection.oracle = order.oracle;
    if (order.oracle == TestSelection::Oracle::alone) spec.oracle = oracle_words(*m_target.oracle);
    if (!tests && order.site.held()) {
        spec.marin_prefix = m_options.marin_prefix.empty() ? bucket_of(order.site.cluster) : m_options.marin_prefix;
    }
    // A command that is run as written takes no settings.
    if (!spec.has_settings) return spec;
    spec.selection.suite = m_options.suite;
    spec.selection.pytest_args = order.pytest_args.empty() ? m_options.pytest_args : order.pytest_args;
    if (tests) return spec;
    spec.profile = m_options.profile;
    spec.profile_env = m_options.profile_env;
    if (!order.profile_prefix.empty()) spec.profile.run_name_prefix = order.profile_prefix;
    if (order.ce) {
        spec.profile.ce_implementation = order.ce->implementation;
        spec.profile.ce_bwd_mode = order.ce->bwd_mode;
    }
    return spec;
}

void TargetJobs::show_failure(const JobEnd& end) const {
    if (!end.failure || m_options.log_tail <= 0) return;
    // The oracle's failing case may come before the part of the log that is kept.
    const auto& item = end.evidence.oracle.lines;
    const auto lines = static_cast<std::size_t>(std::max<std::int64_t>(m_options.log_tail, 0));
    const FailingCase shown = item.empty() ? first_failing_case(text::last_lines(end.evidence.output.tail(), lines))
                                           : FailingCase{item, true};
    log::warning("{}", failing_case_text(end.summary, shown, end.log.string()));
}

Result<JobEnd> TargetJobs::run(const JobOrder& order) {
    JobSpec spec = this->spec(order);
    const std::vector<std::string> nameless = command_words(spec);
    if (m_name && !order.site.held()) {
        GDNCTL_TRY_ASSIGN(spec.id, m_name(order));
    }
    const bool here = !order.site.held() && (order.site.cluster.empty() || order.site.cluster == "local");
    const std::string busy = m_busy && here && order.kind == JobKind::profile ? m_busy() : std::string();
    log::write_as_it_is(log::Level::info, "$ gdnctl " + text::shell_join(command_words(spec)));
    GDNCTL_TRY_ASSIGN(JobAnswer answer, m_service.run(spec));
    Evidence evidence;
    if (std::filesystem::exists(order.log)) {
        GDNCTL_TRY_ASSIGN(evidence, read_evidence(order.log));
    }
    if (lacks_room(answer.exit, order.site, evidence)) {
        return fail(
            ErrorKind::local_io,
            fmt::format("the job could not run because a file could not be written{}{}",
                        evidence.output.tail().empty() ? "" : ":\n", text::last_lines(evidence.output.tail(), 3)),
            "free space there (df -h) or raise the limit on the size of files (ulimit -f), then run the command "
            "again with --resume");
    }
    const bool alone = order.oracle == TestSelection::Oracle::alone;
    const bool whole_suite = !alone && m_options.pytest_args.empty() && order.pytest_args.empty() &&
                             m_options.suite == TestSelection::Suite::both;
    JobNeeds needs;
    if (m_target.test && whole_suite) needs.evidence = m_target.test->evidence;
    needs.tpu = m_target.style == TargetStyle::levanter && !alone;
    needs.oracle = order.oracle != TestSelection::Oracle::off;
    const bool here_or_played = order.site.cluster == "local" || answer.report.backend == "local";
    needs.oracle_tpu = m_target.style == TargetStyle::levanter && !here_or_played;
    JobEnd end = judge_job(order.kind, std::move(answer), std::move(evidence), to_text(order.site), needs);
    if (!end.oracle.is_null()) {
        end.oracle["command"] = "gdnctl " + text::shell_join(oracle_words(*m_target.oracle));
    }
    end.log = order.log;
    if (end.report.backend == "local") end.busy = busy;
    end.command = end.report.entrypoint.empty() ? "gdnctl " + text::shell_join(nameless) : end.report.entrypoint;
    if (!end.report.submission_id.empty() && !end.report.ended()) stop_job(order, end.report.submission_id);
    show_failure(end);
    return end;
}

void TargetJobs::stop_job(const JobOrder& order, const std::string& id) {
    const std::string where = order.site.cluster.empty() ? "" : " --cluster " + order.site.cluster;
    log::write_as_it_is(log::Level::info, "$ gdnctl ray-stop " + id + where);
    const Status stopped = m_service.stop(id, order.site, order.tree, false);
    if (!stopped) log::warning("job {} may still be running: it could not be stopped", id);
}

JobEnd judge_job(JobKind kind, JobAnswer answer, Evidence evidence, std::string_view site, const JobNeeds& needs) {
    JobEnd end;
    end.rc = static_cast<int>(answer.exit);
    end.report = std::move(answer.report);
    end.trace = std::move(answer.trace);
    end.evidence = std::move(evidence);
    if (needs.oracle) end.oracle = oracle_record(answer.oracle, end.evidence.oracle);
    const std::string verdict = json::text(end.oracle, "verdict");
    const std::string platform = json::text_at(end.oracle, "/environment/platform");
    const bool elsewhere = needs.oracle_tpu && !platform.empty() && platform != "tpu";
    end.oracle_ok = verdict == "OK" && !elsewhere;
    if (elsewhere) {
        fail_job(end, Outcome::infra, fmt::format("the oracle ran on {}, not on a TPU", platform));
    } else if (answer.exit == ExitCode::ok) {
        judge_success(end, kind, needs);
    } else if (!verdict.empty() && verdict != "OK") {
        judge_oracle(end, needs.tpu);
    } else {
        judge_failure(end, kind, answer.exit, needs.tpu);
        if (needs.oracle && oracle_broke(end)) fail_job(end, Outcome::test_fail, std::string(k_no_oracle_verdict));
    }
    const std::string counts = kind == JobKind::tests ? counts_text(end.evidence) : std::string();
    const std::string found = end.evidence.oracle.text();
    const bool told = end.failure && !found.empty() && end.failure->sign == end.evidence.oracle.sign();
    end.summary = fmt::format("{} on {}: {}{}", to_text(kind), site, counts,
                              end.failure      ? (counts.empty() ? "" : "; ") + (told ? found : end.failure->sign)
                              : counts.empty() ? std::string("done")
                                               : std::string());
    if (!end.report.submission_id.empty()) end.summary += " (job " + end.report.submission_id + ")";
    return end;
}

std::vector<std::string> discover_clusters(const std::filesystem::path& root, std::string_view tpu,
                                           const std::vector<std::string>& exclude) {
    constexpr std::string_view k_start = "marin-", k_end = ".yaml";
    std::string with_underscores(tpu);
    std::replace(with_underscores.begin(), with_underscores.end(), '-', '_');
    std::vector<std::string> names;
    std::error_code problem;
    for (const auto& entry : std::filesystem::directory_iterator(root / "infra", problem)) {
        const std::string file = entry.path().filename().string();
        if (!file.starts_with(k_start) || !file.ends_with(k_end)) continue;
        const std::string name = file.substr(k_start.size(), file.size() - k_start.size() - k_end.size());
        const bool left_out = std::any_of(exclude.begin(), exclude.end(), [&](const std::string& word) {
            return !word.empty() && file.find(word) != std::string::npos;
        });
        const auto text =
            left_out ? Result<std::optional<std::string>>(std::nullopt) : read_file_if_exists(entry.path());
        if (!text || !*text) continue;
        const auto offers = [&](std::string_view type) {
            return (*text)->find("tpu_slice_" + std::string(type)) != std::string::npos;
        };
        if (offers(tpu) || offers(with_underscores)) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
}

JobSite Ladder::held_site() const { return {m_deps.held->cluster(), m_deps.held->name(), {}}; }

Result<JobEnd> Ladder::run(const JobSite& site) {
    GDNCTL_TRY_ASSIGN(JobEnd end, m_deps.run(site));
    if (end.failure && end.failure->outcome == Outcome::timeout && ++m_time_limits > 1) end.retryable = false;
    return end;
}

// Another place would give the same result.
bool Ladder::is_final(const JobEnd& end) const { return !end.failure || (!end.retryable && !end.site_is_unknown); }

bool Ladder::get_back(const char* why) {
    const std::string reason = fmt::format("{} {}", to_text(m_kind), why);
    log::info("{}; re-acquiring it", reason);
    return m_deps.held->reacquire(reason);
}

Result<JobEnd> Ladder::try_held() {
    if (!m_deps.held->active() && !get_back("starting without an active held dev TPU")) {
        return no_place("the held dev TPU is not available");
    }
    GDNCTL_TRY_ASSIGN(JobEnd end, run(held_site()));
    if (is_final(end) || !get_back("failed on the held dev TPU")) return end;
    return run(held_site());
}

Result<JobEnd> Ladder::try_clusters() {
    JobEnd last = no_place(fmt::format("no valid Ray clusters remain for {}.", to_text(m_kind)));
    for (auto site = m_clusters.begin(); site != m_clusters.end();) {
        GDNCTL_TRY_ASSIGN(JobEnd end, run(*site));
        if (is_final(end)) return end;
        if (end.site_is_unknown) {
            log::warning("{}: {}; not trying it again", to_text(*site), end.failure->sign);
            site = m_clusters.erase(site);
            continue;
        }
        last = std::move(end);
        ++site;
    }
    if (m_clusters.empty())
        log::write_as_it_is(log::Level::error, fmt::format("no valid Ray clusters remain for {}.", to_text(m_kind)));
    return last;
}

Result<JobEnd> Ladder::pass() {
    if (m_deps.held != nullptr) {
        GDNCTL_TRY_ASSIGN(JobEnd end, try_held());
        const bool nowhere = end.log.empty() && end.failure && end.failure->outcome == Outcome::environment;
        if (is_final(end) && !nowhere) return end;
    }
    GDNCTL_TRY_ASSIGN(JobEnd end, try_clusters());
    const bool nowhere = m_clusters.empty();
    if (m_deps.held == nullptr || (is_final(end) && !nowhere)) return end;
    if (!get_back("Ray fallback failed")) return end;
    return run(held_site());
}

Result<JobEnd> Ladder::climb(std::int64_t attempts, std::chrono::seconds pause) {
    for (std::int64_t attempt = 1;; ++attempt) {
        GDNCTL_TRY_ASSIGN(JobEnd end, pass());
        if (!end.failure || !end.retryable || attempt >= (attempts < 0 ? k_most_passes : attempts)) return end;
        if (m_deps.asked_to_stop && m_deps.asked_to_stop()) return end;
        log::warning("{} failed (attempt {}{}): {}; again in {} s", to_text(m_kind), attempt,
                     attempts < 0 ? "" : fmt::format("/{}", attempts), end.failure->sign, pause.count());
        if (!m_deps.clock.sleep_for(pause, m_deps.stop)) return tl::unexpected(stopped_error());
    }
}

std::vector<std::string> cluster_order(const ValidationOptions& options, const HoldOptions& hold,
                                       const std::string& active, const std::vector<std::string>& discovered) {
    std::vector<std::string> order;
    const auto add = [&order](const std::string& name) {
        if (!name.empty() && std::find(order.begin(), order.end(), name) == order.end()) order.push_back(name);
    };
    if (!options.clusters.empty()) {
        for (const std::string& name : options.clusters) add(name);
        return order;
    }
    if (!hold.on && !options.cluster_auto) return {""};
    add(active);
    add(hold.cluster);
    for (const std::string& name : hold.fallback_clusters) add(name);
    if (options.cluster_auto) {
        for (const std::string& name : discovered) add(name);
    }
    return order;
}

std::vector<std::string> gate_clusters(const ValidationOptions& options, const HoldOptions& hold,
                                       const std::string& active, const std::filesystem::path& root) {
    std::vector<std::string> exclude = options.cluster_exclude;
    if (exclude.empty()) exclude = {"vllm", "big-run"};
    const auto found =
        options.cluster_auto ? discover_clusters(root, options.profile.tpu, exclude) : std::vector<std::string>();
    return cluster_order(options, hold, active, found);
}

}  // namespace gdnctl::loop
