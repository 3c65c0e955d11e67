#include "loop/gates/validation_jobs.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/log.h"
#include "core/log_timed.h"
#include "core/text.h"
#include "loop/measure/first_case.h"
#include "platform/fs.h"
#include "platform/signals.h"

namespace gdnctl::loop {

namespace {

constexpr std::string_view k_no_cluster = "No cluster config found for region";

// Longer than the child needs to stop its job and say so.
constexpr std::chrono::seconds k_child_grace{120};

std::string_view suite_word(TestSelection::Suite suite) {
    return suite == TestSelection::Suite::kernels ? "kernels" : suite == TestSelection::Suite::layer ? "layer" : "both";
}

void put_words(std::vector<std::string>& words, std::string_view option, const std::string& value) {
    if (value.empty()) return;
    words.emplace_back(option);
    words.push_back(value);
}

void put_words(std::vector<std::string>& words, std::string_view option, const std::optional<std::int64_t>& value) {
    if (value) put_words(words, option, std::to_string(*value));
}

// Of a run that takes settings; one that runs as it is written takes none.
void put_settings(std::vector<std::string>& words, const ValidationOptions& options, const JobOrder& order) {
    const ProfileSettings& s = options.profile;
    put_words(words, "--tpu", s.tpu);
    put_words(words, "--size", s.size);
    put_words(words, "--num-steps", s.num_steps);
    put_words(words, "--profile-start-step", s.profile_start_step);
    put_words(words, "--profile-num-steps", s.profile_num_steps);
    put_words(words, "--batch-size", s.batch_size);
    put_words(words, "--chunk-size", s.chunk_size);
    put_words(words, "--segment-size", s.segment_size);
    put_words(words, "--gdn-layers-per-block", s.gdn_layers_per_block);
    put_words(words, "--gdn-block-size", s.gdn_block_size);
    if (s.all_transformer) words.emplace_back("--all-transformer");
    put_words(words, "--ce-implementation", order.ce ? order.ce->implementation : s.ce_implementation);
    put_words(words, "--ce-bwd-mode", order.ce ? order.ce->bwd_mode : s.ce_bwd_mode);
    put_words(words, "--run-name-prefix", order.profile_prefix);
    put_words(words, "--wandb-mode", s.wandb_mode);
    if (s.dry_run) words.emplace_back("--dry-run");
    for (const std::string& item : options.profile_env) put_words(words, "--profile-env", item);
}

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

// Why green tests are no evidence; empty: they are.
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

void judge_success(JobEnd& end, JobKind kind, const TargetEvidence& expected, bool wants_tpu) {
    if (kind == JobKind::tests) {
        const std::string lack = evidence_lack(end.evidence, expected);
        if (!lack.empty()) return fail_job(end, Outcome::environment, lack);
    }
    if (wants_tpu && !end.report.backend.empty() && !end.report.tpu_evidence) {
        fail_job(end, Outcome::infra, "no sign of a TPU in the log");
    }
}

// The program that we are as a job's submitter could not write: nobody's work has failed. What a job itself prints has
// no exit code of ours beside it.
bool lacks_room(int rc, const JobSite& site, const Evidence& evidence) {
    constexpr int k_infra = 4, k_io = 8;
    const std::string& tail = evidence.output.tail();
    const auto says = [&](std::string_view words) { return tail.find(words) != std::string::npos; };
    const bool said = says("No space left on device") || says("Disk quota exceeded") || says("File too large");
    return (rc == k_io && (said || tail.empty())) || (rc == k_infra && site.cluster == "local" && said);
}

void judge_time_limit(JobEnd& end) {
    if (end.report.status == "PENDING") return fail_job(end, Outcome::infra, "job was pending too long");
    if (waits_for_step(end.evidence.output.tail())) {
        return fail_job(end, Outcome::infra, "executor status stuck RUNNING: the job waited for another one's step");
    }
    fail_job(end, Outcome::timeout, "ran into its time limit");
}

void judge_failure(JobEnd& end, JobKind kind, bool wants_tpu) {
    constexpr int k_usage = 2, k_stopped = 3, k_infra = 4, k_auth = 5, k_io = 8, k_time = 124;
    const JobReport& report = end.report;
    const std::string& tail = end.evidence.output.tail();
    if (tail.find(k_no_cluster) != std::string::npos) {
        end.site_is_unknown = true;
        return fail_job(end, Outcome::environment, std::string(k_no_cluster));
    }
    if (end.rc == k_time || report.failure_class == "timeout") return judge_time_limit(end);
    if (end.rc == k_auth || report.failure_class == "auth")
        return fail_job(end, Outcome::environment, "not authorised");
    const auto known = failure_of(tail, wants_tpu ? Place::tpu : Place::anywhere);
    if (known) return fail_job(end, known->outcome, known->sign);
    if (end.rc == k_usage || end.rc == k_io) {
        return fail_job(end, Outcome::environment,
                        fmt::format("the job command refuses to run (exit code {})", end.rc));
    }
    if (end.rc == k_infra || report.failure_class.starts_with("infra")) {
        return fail_job(end, Outcome::infra, report.message.empty() ? "cluster out of reach" : report.message);
    }
    if (end.rc == k_stopped) return fail_job(end, Outcome::infra, "the job was stopped");
    if (report.status == "SUCCEEDED") return fail_job(end, Outcome::infra, "green, but no evidence");
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

std::string last_lines(const std::string& text, std::int64_t count) {
    std::size_t from = text.size();
    if (from > 0 && text.back() == '\n') --from;
    for (std::int64_t i = 0; i < count && from != std::string::npos && from > 0; ++i) from = text.rfind('\n', from - 1);
    return from == std::string::npos || from == 0 ? text : text.substr(from + 1);
}

}  // namespace

std::string_view to_text(JobKind kind) { return kind == JobKind::tests ? "validation tests" : "validation profile"; }

std::string to_text(const JobSite& site) {
    std::string out = !site.dev_tpu.empty()  ? "held dev TPU " + site.dev_tpu + " on " + site.cluster
                      : site.cluster.empty() ? std::string("the default cluster")
                                             : site.cluster;
    if (!site.tpu.empty() && site.tpu != "auto") out += " (" + site.tpu + ")";
    return out;
}

std::vector<std::string> TargetJobs::words(const JobOrder& order) const {
    const bool tests = order.kind == JobKind::tests;
    const bool levanter = m_target.style == TargetStyle::levanter;
    const bool held = !order.site.dev_tpu.empty();
    std::vector<std::string> words = {held ? (tests ? "dev-tpu-test" : "dev-tpu-profile")
                                           : (tests ? "ray-test" : "ray-profile")};
    put_words(words, "--cluster", order.site.cluster);
    put_words(words, "--tpu-name", order.site.dev_tpu);
    if (held && m_options.dev_no_sync) words.emplace_back("--no-sync");
    if (tests && levanter) {
        put_words(words, "--tests", std::string(suite_word(m_options.suite)));
        put_words(words, "--pytest-args", order.pytest_args.empty() ? m_options.pytest_args : order.pytest_args);
    }
    if (tests && !held && order.site.tpu != "auto") put_words(words, "--tpu", order.site.tpu);
    if (!tests && levanter) put_settings(words, m_options, order);
    if (!tests && held) {
        put_words(words, "--marin-prefix",
                  m_options.marin_prefix.empty() ? bucket_of(order.site.cluster) : m_options.marin_prefix);
    }
    if (!held) {
        const std::int64_t limit = tests ? m_options.test_timeout_s : m_options.profile_timeout_s;
        words.insert(words.end(), {"--timeout", std::to_string(limit), "--auto-stop", "--json"});
    }
    return words;
}

void TargetJobs::show_failure(const JobEnd& end) const {
    if (!end.failure || m_options.log_tail <= 0) return;
    // An item of the oracle may stand before what is kept of the log's end.
    const auto& item = end.evidence.oracle.lines;
    const FailingCase shown = item.empty()
                                  ? first_failing_case(last_lines(end.evidence.output.tail(), m_options.log_tail))
                                  : FailingCase{item, true};
    log::warning("{}", failing_case_text(end.summary, shown, end.log.string()));
}

Result<JobEnd> TargetJobs::run(const JobOrder& order) {
    ProcessSpec spec;
    spec.argv = {m_self};
    for (const std::string& word : words(order)) spec.argv.push_back(word);
    if (m_name && order.site.dev_tpu.empty()) {
        GDNCTL_TRY_ASSIGN(const std::string id, m_name(order));
        put_words(spec.argv, "--submission-id", id);
    }
    spec.argv.insert(spec.argv.end(), m_globals.begin(), m_globals.end());
    spec.cwd = order.tree;
    spec.stderr_file = order.log;
    if (!order.site.dev_tpu.empty()) {
        spec.stdout_file = order.log;
    }
    const std::int64_t limit = order.kind == JobKind::tests ? m_options.test_timeout_s : m_options.profile_timeout_s;
    spec.wall_limit = std::chrono::seconds(limit) + k_child_grace;
    spec.interrupt_grace = k_child_grace;
    spec.stop = order.stop;
    const bool here = order.site.dev_tpu.empty() && (order.site.cluster.empty() || order.site.cluster == "local");
    const std::string busy = m_busy && here && order.kind == JobKind::profile ? m_busy() : std::string();
    log::write_as_it_is(log::Level::info, fmt::format("$ {}", text::shell_join(spec.argv)));
    GDNCTL_TRY_ASSIGN(const ProcessResult result, m_process.run(spec));
    if (order.stop.stop_requested()) return tl::unexpected(stopped_error());
    constexpr int k_time = 124, k_lost = 4;
    const bool limited = result.end == ProcessResult::End::wall_limit;
    const int rc = limited ? k_time : result.end == ProcessResult::End::exited ? result.exit_code : k_lost;
    JobReport report;
    if (auto parsed = parse_job_report(result.out)) report = std::move(*parsed);
    // What it runs is the same program, wherever it is installed.
    const std::string self = text::shell_quote(m_self);
    if (report.entrypoint.starts_with(self)) report.entrypoint.replace(0, self.size(), "gdnctl");
    Evidence evidence;
    if (std::filesystem::exists(order.log)) {
        GDNCTL_TRY_ASSIGN(evidence, read_evidence(order.log));
    }
    if (lacks_room(rc, order.site, evidence)) {
        return fail(
            ErrorKind::local_io,
            fmt::format("the job could not run because a file could not be written{}{}",
                        evidence.output.tail().empty() ? "" : ":\n", last_lines(evidence.output.tail(), 3)),
            "free space there (df -h) or raise the limit on the size of files (ulimit -f), then run the command "
            "again with --resume");
    }
    const bool whole_suite =
        m_options.pytest_args.empty() && order.pytest_args.empty() && m_options.suite == TestSelection::Suite::both;
    const TargetEvidence expected = m_target.test && whole_suite ? m_target.test->evidence : TargetEvidence{};
    const bool wants_tpu = m_target.style == TargetStyle::levanter;
    const std::string id = report.submission_id;
    const bool left = !id.empty() && !report.ended();
    JobEnd end =
        judge_job(order.kind, rc, std::move(report), std::move(evidence), to_text(order.site), expected, wants_tpu);
    end.log = order.log;
    if (end.report.backend == "local") end.busy = busy;
    std::vector<std::string> own = words(order);
    own.insert(own.begin(), "gdnctl");
    end.command = end.report.entrypoint.empty() ? text::shell_join(own) : end.report.entrypoint;
    if (left) stop_job(order, id);
    show_failure(end);
    return end;
}

ProcessSpec stop_command(const std::string& self, const std::string& id, const std::string& cluster,
                         const std::vector<std::string>& globals) {
    ProcessSpec spec;
    spec.argv = {self, "ray-stop", id};
    put_words(spec.argv, "--cluster", cluster);
    spec.argv.insert(spec.argv.end(), globals.begin(), globals.end());
    spec.wall_limit = k_child_grace;
    return spec;
}

void TargetJobs::stop_job(const JobOrder& order, const std::string& id) {
    ProcessSpec spec = stop_command(m_self, id, order.site.cluster, m_globals);
    spec.cwd = order.tree;
    spec.stdout_file = order.log;
    spec.stderr_file = order.log;
    log::write_as_it_is(log::Level::info, fmt::format("$ {}", text::shell_join(spec.argv)));
    const auto stopped = m_process.run(spec);
    if (!stopped || !stopped->ok()) log::warning("job {} may still be running: it could not be stopped", id);
}

JobEnd judge_job(JobKind kind, int rc, JobReport report, Evidence evidence, std::string_view site,
                 const TargetEvidence& expected, bool wants_tpu) {
    JobEnd end;
    end.rc = rc;
    end.report = std::move(report);
    end.evidence = std::move(evidence);
    if (rc == 0) {
        judge_success(end, kind, expected, wants_tpu);
    } else {
        judge_failure(end, kind, wants_tpu);
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

}  // namespace gdnctl::loop
