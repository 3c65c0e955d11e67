#include "loop/gates/job_service.h"

#include <atomic>
#include <cerrno>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "core/log.h"
#include "core/text.h"
#include "core/time.h"
#include "jobs/held_job.h"
#include "jobs/run.h"
#include "jobs/stop.h"
#include "platform/clock.h"
#include "platform/fs.h"
#include "platform/progress.h"
#include "platform/signals.h"
#include "platform/terminal.h"

namespace gdnctl::loop {

namespace {

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

void put_settings(std::vector<std::string>& words, const JobSpec& spec) {
    const ProfileSettings& s = spec.profile;
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
    put_words(words, "--ce-implementation", s.ce_implementation);
    put_words(words, "--ce-bwd-mode", s.ce_bwd_mode);
    put_words(words, "--run-name-prefix", s.run_name_prefix);
    put_words(words, "--wandb-mode", s.wandb_mode);
    if (s.dry_run) words.emplace_back("--dry-run");
    for (const std::string& item : spec.profile_env) put_words(words, "--profile-env", item);
}

// Appends all output about a job to a file. Write errors are reported at the end.
class JobLogFile final : public Terminal {
public:
    static Result<std::unique_ptr<JobLogFile>> open(const std::filesystem::path& path) {
        UniqueFd fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
        if (!fd.valid()) return tl::unexpected(file_error(ErrorKind::local_io, "open", path, errno));
        return std::make_unique<JobLogFile>(std::move(fd), path);
    }
    JobLogFile(UniqueFd fd, std::filesystem::path path) : m_fd(std::move(fd)), m_path(std::move(path)) {}

    void out(std::string_view bytes) override { append(bytes); }
    void err(std::string_view bytes) override { append(bytes); }
    Status flush() override { return {}; }
    bool out_closed() const override { return false; }
    bool out_is_tty() const override { return false; }
    bool err_is_tty() const override { return false; }
    int columns() const override { return 100; }
    bool color_out() const override { return false; }
    bool color_err() const override { return false; }

    Status written() const {
        if (m_problem == 0) return {};
        return tl::unexpected(file_error(ErrorKind::local_io, "write", m_path, m_problem));
    }

private:
    void append(std::string_view bytes) {
        while (!bytes.empty() && m_problem == 0) {
            const ssize_t n = ::write(m_fd.get(), bytes.data(), bytes.size());
            if (n < 0 && errno == EINTR) continue;
            if (n < 0) {
                m_problem = errno;
                return;
            }
            bytes.remove_prefix(static_cast<std::size_t>(n));
        }
    }

    UniqueFd m_fd;
    std::filesystem::path m_path;
    int m_problem = 0;
};

// The context of a command that starts in `folder`.
Context context_at(const Context& c, const std::filesystem::path& folder, const Config& config, Terminal& terminal,
                   std::stop_token stop) {
    GlobalOptions global;
    global.json = true;
    return {c.env,           c.clock, terminal,    config,    c.process, c.http,
            std::move(stop), folder,  c.state_dir, c.program, global};
}

// A stop source that fires when `outer` does, or after a time limit.
class Patience {
public:
    Patience(std::stop_token outer, std::chrono::milliseconds limit, Clock& clock)
        : m_forward(std::move(outer), [this] { m_stop.request_stop(); }),
          m_timer([this, limit, &clock](std::stop_token cancelled) {
              if (!clock.sleep_for(limit, cancelled)) return;
              m_over = true;
              m_stop.request_stop();
          }) {}
    std::stop_token token() const { return m_stop.get_token(); }
    bool over() const { return m_over; }

private:
    std::stop_source m_stop;
    std::atomic<bool> m_over{false};
    std::stop_callback<std::function<void()>> m_forward;
    std::jthread m_timer;
};

DestinationOptions place_at(const std::string& cluster) {
    DestinationOptions options;
    if (!cluster.empty()) options.cluster = cluster;
    return options;
}

Result<Target> target_of(const JobSpec& spec, const Context& context) {
    GDNCTL_TRY_ASSIGN(Target target, select_target(context.config, project_root(context)));
    auto& job = spec.kind == JobKind::tests ? target.test : target.profile;
    if (!spec.argv.empty() && job) {
        job->argv = spec.argv;
        job->argv_here.clear();
    }
    return target;
}

void add_env(JobPlan& plan, const JobSpec& spec) {
    plan.command.env.insert(plan.command.env.end(), spec.env.begin(), spec.env.end());
}

Result<ProfileSettings> settings_of(const JobSpec& spec) {
    ProfileSettings settings = spec.profile;
    GDNCTL_TRY(check_settings(settings));
    GDNCTL_TRY(add_profile_env(settings, spec.profile_env));
    return settings;
}

ExitCode conclude(const JobSpec& spec, const PlannedJob& job, JobRun& run) {
    TestNeeds needs;
    needs.oracle = spec.selection.oracle != TestSelection::Oracle::off;
    needs.allow_cpu = spec.selection.oracle == TestSelection::Oracle::alone;  // its verdict names the device
    const ExitCode exit =
        spec.kind == JobKind::tests ? conclude_test(run, job.target, needs) : conclude_profile(run, job.target, true);
    return run.cut_short ? exit_code_of(run.cut_short->kind) : exit;
}

// The trace of a profile. Its value is not read here: the caller knows what to compare it with.
Result<std::optional<JobTrace>> take_profile(const JobSpec& spec, const Target& target, JobRun& run, Context& context) {
    if (spec.kind != JobKind::profile) return std::optional<JobTrace>();
    if (target.metric && target.metric->from_trace()) run.metric.reset();
    return trace_of_job(target, run, context);
}

// The message with which commands end after an error.
void say(const Error& error) {
    log::error("error: {}", text::visible(error.text()));
    if (!error.hint.empty()) log::warning("hint: {}", text::visible(error.hint));
}

Result<JobAnswer> run_on_cluster(const JobSpec& spec, Context& context) {
    const DestinationOptions place = place_at(spec.site.cluster);
    GDNCTL_TRY_ASSIGN(Target target, target_of(spec, context));
    Result<PlannedJob> job = fail(ErrorKind::internal, "");
    if (spec.kind == JobKind::tests) {
        const std::string& tpu = spec.site.tpu;
        job = plan_test(std::move(target), spec.selection, tpu.empty() ? "auto" : tpu, place, context);
    } else {
        GDNCTL_TRY_ASSIGN(ProfileSettings settings, settings_of(spec));
        job = plan_profile(std::move(target), std::move(settings), false, place, context);
    }
    if (!job) return tl::unexpected(std::move(job).error());
    add_env(job->plan, spec);
    job->plan.log_decides = job->plan.log_decides || spec.kind == JobKind::profile;
    GDNCTL_TRY_ASSIGN(const auto backend, open_backend(job->place, place, context));
    SubmitOptions submit;
    if (!spec.id.empty()) submit.submission_id = spec.id;
    submit.auto_stop = true;
    submit.timeout_s = static_cast<double>(spec.limit_s);
    GDNCTL_TRY_ASSIGN(JobRun run, run_job(job->plan, submit, *backend, context));
    JobAnswer answer;
    GDNCTL_TRY_ASSIGN(answer.trace, take_profile(spec, job->target, run, context));
    answer.exit = conclude(spec, *job, run);
    answer.report = job_report(run, *job);
    answer.oracle = std::move(run.data);
    if (run.cut_short) say(*run.cut_short);
    return answer;
}

// The hold counts the cost of a held TPU, so the report stays empty.
Result<JobAnswer> run_on_held(const JobSpec& spec, Context& context) {
    HeldRunOptions options;
    options.sync.no_sync = spec.no_sync;
    options.run.timeout_s = static_cast<double>(spec.limit_s);
    GDNCTL_TRY_ASSIGN(Target target, target_of(spec, context));
    GDNCTL_TRY(check_target_is_named(target, place_at(spec.site.cluster), context));
    GDNCTL_TRY_ASSIGN(ProfileSettings settings, settings_of(spec));
    Via via = options.run.via;
    GDNCTL_TRY_ASSIGN(const FoundHold hold,
                      ready_hold(spec.site.dev_tpu, place_at(spec.site.cluster), options.sync, via, context));
    std::optional<std::string> prefix;
    if (!spec.marin_prefix.empty()) prefix = spec.marin_prefix;
    GDNCTL_TRY_ASSIGN(PlannedJob job,
                      spec.kind == JobKind::tests
                          ? plan_held_test(std::move(target), spec.selection, hold, via, context)
                          : plan_held_profile(std::move(target), std::move(settings), prefix, hold, via, context));
    add_env(job.plan, spec);
    job.plan.log_decides = job.plan.log_decides || spec.kind == JobKind::profile;
    GDNCTL_TRY_ASSIGN(JobRun run, run_held(hold, via, job.plan, options, context));
    JobAnswer answer;
    GDNCTL_TRY_ASSIGN(answer.trace, take_profile(spec, job.target, run, context));
    answer.exit = conclude(spec, job, run);
    answer.oracle = std::move(run.data);
    if (run.cut_short) say(*run.cut_short);
    return answer;
}

}  // namespace

std::string_view to_text(JobKind kind) { return kind == JobKind::tests ? "validation tests" : "validation profile"; }

std::string to_text(const JobSite& site) {
    std::string out = site.held()            ? "held dev TPU " + site.dev_tpu + " on " + site.cluster
                      : site.cluster.empty() ? std::string("the default cluster")
                                             : site.cluster;
    if (!site.tpu.empty() && site.tpu != "auto") out += " (" + site.tpu + ")";
    return out;
}

std::vector<std::string> command_words(const JobSpec& spec) {
    const bool tests = spec.kind == JobKind::tests;
    const bool held = spec.site.held();
    const bool oracle_alone = spec.selection.oracle == TestSelection::Oracle::alone;
    std::vector<std::string> words = spec.oracle;
    if (!oracle_alone) {
        words = {held ? (tests ? "dev-tpu-test" : "dev-tpu-profile") : (tests ? "ray-test" : "ray-profile")};
    }
    put_words(words, "--cluster", spec.site.cluster);
    put_words(words, "--tpu-name", spec.site.dev_tpu);
    if (held && spec.no_sync && !oracle_alone) words.emplace_back("--no-sync");
    if (spec.selection.oracle == TestSelection::Oracle::first) words.emplace_back("--oracle");
    if (tests && spec.has_settings && !oracle_alone) {
        put_words(words, "--tests", std::string(suite_word(spec.selection.suite)));
        put_words(words, "--pytest-args", spec.selection.pytest_args);
    }
    if (tests && !held && spec.site.tpu != "auto") put_words(words, "--tpu", spec.site.tpu);
    if (!tests && spec.has_settings) put_settings(words, spec);
    if (!tests && held) put_words(words, "--marin-prefix", spec.marin_prefix);
    if (!held) {
        words.insert(words.end(), {"--timeout", std::to_string(spec.limit_s)});
        if (!oracle_alone) words.insert(words.end(), {"--auto-stop", "--json"});
        put_words(words, "--submission-id", spec.id);
    }
    return words;
}

JobReport job_report(const JobRun& run, const PlannedJob& job) {
    const auto milliseconds = [](const std::optional<WallTime>& time) {
        return time ? std::optional<std::int64_t>(time->time_since_epoch().count()) : std::nullopt;
    };
    const JobDetails& details = run.details;
    JobReport report;
    report.submission_id = details.submission_id;
    report.backend = run.place.backend;
    report.cluster = run.place.cluster;
    if (run.submitted) report.status = status_of(details);
    report.failure_class = to_text(run.verdict.failure);
    report.message = details.message;
    report.target = job.target.name;
    report.entrypoint = own_command(run.request.entrypoint);
    report.tpu = job.tpu;
    if (details.driver_exit_code) report.driver_exit_code = *details.driver_exit_code;
    report.start_ms = milliseconds(details.start_time);
    report.end_ms = milliseconds(details.end_time);
    report.tpu_evidence = is_tpu_evidence(run.place, run.verdict, details, run.output);
    report.runs_as_written = job.target.style == TargetStyle::argv;
    if (run.metric && job.target.metric) {
        report.metric_name = job.target.metric->name;
        report.metric_value = run.metric->value();
    }
    return report;
}

Result<JobAnswer> InProcessJobs::run(const JobSpec& spec) {
    GDNCTL_TRY_ASSIGN(const auto log, JobLogFile::open(spec.log));
    // The job's own lines go to its log; whoever started the loop by hand sees that it works.
    const bool shown = m_context.terminal.err_is_tty() && !m_context.global.quiet && !Progress::is_live();
    Progress progress(m_context.terminal, m_context.clock,
                      {.label = fmt::format("{} on {}", to_text(spec.kind), to_text(spec.site)),
                       .quiet = !shown,
                       .after = std::chrono::seconds(2)});
    progress.tick();
    const log::Diverted diverted([&](std::string_view line) { log->err(std::string(line) + "\n"); });
    const auto answer = [&]() -> Result<JobAnswer> {
        GDNCTL_TRY_ASSIGN(const Config config, m_config(spec.tree));
        Context context = context_at(m_context, spec.tree, config, *log, spec.stop);
        return spec.site.held() ? run_on_held(spec, context) : run_on_cluster(spec, context);
    }();
    if (!answer) say(answer.error());
    if (spec.stop.stop_requested()) return tl::unexpected(stopped_error());
    GDNCTL_TRY(log->written());
    return answer ? *answer : JobAnswer{exit_code_of(answer.error().kind), {}};
}

Status InProcessJobs::stop(const std::string& id, const JobSite& site, const std::filesystem::path& tree, bool wait) {
    constexpr std::chrono::minutes k_patience{2};
    const log::Diverted diverted([](std::string_view) {});
    GDNCTL_TRY_ASSIGN(const Config config, m_config(tree));
    // Without `wait`, this is cleanup after a stop request, so the request must not interrupt it.
    const Patience patience(wait ? m_context.stop : std::stop_token(), k_patience, m_context.clock);
    Context context = context_at(m_context, tree, config, m_context.terminal, patience.token());
    context.global.quiet = true;
    const auto stopped = [&]() -> Status {
        GDNCTL_TRY_ASSIGN(const auto backend, open_backend(place_at(site.cluster), !wait, context));
        GDNCTL_TRY(stop_job(*backend, id, {wait, k_patience}, context));
        return {};
    }();
    if (!stopped && patience.over() && is_interruption(stopped.error())) {
        return fail(ErrorKind::timeout, "the job did not end within " + format_duration(k_patience));
    }
    return stopped;
}

Status InProcessJobs::check(const std::string& cluster, std::chrono::milliseconds patience) {
    const log::Diverted diverted([](std::string_view) {});
    const Patience limited(m_context.stop, patience, m_context.clock);
    Context context = context_at(m_context, m_context.cwd, m_context.config, m_context.terminal, limited.token());
    const auto answers = [&]() -> Status {
        GDNCTL_TRY_ASSIGN(const gdnctl::JobDestination place, choose_destination(place_at(cluster), context));
        return check_answers(place, context);
    }();
    if (!answers && limited.over() && is_interruption(answers.error())) {
        return fail(ErrorKind::timeout, "no answer within " + format_duration(patience));
    }
    return answers;
}

}  // namespace gdnctl::loop
