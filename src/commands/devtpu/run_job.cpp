#include "commands/devtpu/run_job.h"

#include <fmt/format.h>

#include "core/log.h"
#include "core/redact.h"
#include "core/text.h"
#include "jobs/env.h"
#include "jobs/hold_heart.h"
#include "jobs/hold_host.h"
#include "jobs/log.h"
#include "platform/clock.h"
#include "platform/terminal.h"

namespace gdnctl::commands {

namespace {

void set_end(JobRun& run, int code) {
    run.details.state = code == 0 ? JobState::succeeded : JobState::failed;
    run.details.driver_exit_code = code;
    if (code == 0) {
        run.details.message = job_message::k_succeeded;
        return;
    }
    run.details.error_type = job_error::k_command_error;
    run.details.message = job_message::exit_code(code, run.output.tail());
}

Result<JobRun> run_by_road(const FoundHold& hold, const JobPlan& plan, const HeldRunOptions& options,
                           Context& context) {
    JobRun run;
    if (plan.metric) {
        GDNCTL_TRY_ASSIGN(run.metric, MetricReader::create(*plan.metric));
    }
    std::vector<JobEnv> extra;
    if (hold.record.cluster != "local") {
        for (const auto& [name, value] : plan.cluster_env) extra.push_back({name, value});
    }
    for (const auto& [name, value] : plan.command.env) extra.push_back({name, value});
    GDNCTL_TRY_ASSIGN(const auto own, devtpu_options::extra_env(options.run, context));
    HostRun command;
    GDNCTL_TRY_ASSIGN(command.env, host_environment(hold, {}, options.run.forward_all_env, context));
    command.env.insert(command.env.end(), extra.begin(), extra.end());
    command.env.insert(command.env.end(), own.begin(), own.end());
    for (const JobEnv& item : own) register_secret(item.value);
    command.line = plan.command.entrypoint;
    command.wall_limit = devtpu_options::limit_of(options.run.timeout_s);
    if (plan.command.timeout_s && command.wall_limit.count() == 0) {
        command.wall_limit = std::chrono::seconds(*plan.command.timeout_s);
    }
    command.idle_limit = devtpu_options::limit_of(options.run.idle_timeout_s);
    const LogFilter::Out print = log_printer(context);
    const auto take = [&](std::string_view bytes) {
        print(bytes);
        run.output.feed(bytes);
        if (run.metric) run.metric->feed(bytes);
    };
    command.on_out = take;
    command.on_err = take;
    run.place = {hold.record.cluster == "local" ? "local" : "ray", hold.record.cluster, hold.record.address, ""};
    run.details.submission_id = hold.record.submission_id;
    run.details.entrypoint = plan.command.entrypoint;
    run.details.start_time = context.clock.wall();
    run.request.entrypoint = plan.command.entrypoint;
    run.request.env = command.env;
    run.waited = true;
    const auto code = run_on_host(hold, command, context);
    run.output.finish();
    if (run.metric) run.metric->finish();
    run.details.end_time = context.clock.wall();
    if (code) {
        set_end(run, *code);
        run.verdict = classify(run.details, run.output.tail());
        return run;
    }
    run.details.state = JobState::stopped;
    run.verdict = {code.error().kind == ErrorKind::timeout ? FailureClass::timeout : failure_of(code.error()),
                   exit_code_of(code.error().kind)};
    run.cut_short = code.error();
    return run;
}

}  // namespace

Result<JobRun> run_beside(const FoundHold& hold, const JobPlan& plan, const HeldRunOptions& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto backend, open_backend(hold.place, false, context));
    const auto heart = start_heart(hold.record, hold.place, context);
    if (!heart) log::warning("nothing renews the lease meanwhile: {}", heart.error().text());
    GDNCTL_TRY_ASSIGN(const auto extra, devtpu_options::extra_env(options.run, context));
    SubmitOptions submit;
    for (const JobEnv& item : extra) submit.env.push_back(item.name + "=" + item.value);
    submit.auto_stop = true;
    submit.timeout_s = options.run.timeout_s;
    if (options.sync.no_sync) submit.working_dir = "none";
    if (options.sync.sync_path) submit.working_dir = options.sync.sync_path;
    JobPlan beside = plan;
    beside.beside = hold.record.submission_id;
    beside.command.resources.clear();
    return run_job(beside, submit, *backend, context);
}

Result<JobRun> run_held(const FoundHold& hold, Via via, const JobPlan& plan, const HeldRunOptions& options,
                        Context& context) {
    if (via == Via::ray) return run_beside(hold, plan, options, context);
    report_busy_chips(hold, context);
    return run_by_road(hold, plan, options, context);
}

}  // namespace gdnctl::commands
