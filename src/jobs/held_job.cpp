#include "jobs/held_job.h"

#include <fmt/format.h>

#include "core/log.h"
#include "core/redact.h"
#include "core/text.h"
#include "jobs/env.h"
#include "jobs/hold_heart.h"
#include "jobs/hold_host.h"
#include "jobs/log.h"
#include "jobs/target.h"
#include "platform/clock.h"
#include "platform/env.h"
#include "platform/terminal.h"
#include "services/devtpu/names.h"
#include "services/devtpu/road.h"

namespace gdnctl {

Result<std::filesystem::path> sync_root(const HeldSync& options, const Context& context) {
    if (!options.sync_path || *options.sync_path == ".") {
        const auto root = project_root(context);
        return options.sync_path ? context.cwd : root;
    }
    const auto root = (context.cwd / *options.sync_path).lexically_normal();
    std::error_code ignored;
    if (std::filesystem::is_directory(root, ignored)) return root;
    return fail(ErrorKind::usage, "--sync-path " + *options.sync_path + ": no such folder");
}

Result<std::vector<JobEnv>> extra_env(const HeldRun& options, const Context& context) {
    std::vector<std::string> items;
    for (const std::string& item : options.env) {
        if (item.find('=') != std::string::npos) {
            items.push_back(item);
        } else if (const auto value = context.env.get(item)) {
            items.push_back(item + "=" + *value);
        } else {
            return fail(ErrorKind::usage, "-e " + item + ": not set in this environment",
                        "write -e " + item + "=VALUE");
        }
    }
    return parse_env_items(items, "-e");
}

std::chrono::milliseconds limit_of(const std::optional<double>& seconds) {
    return std::chrono::milliseconds(seconds ? static_cast<std::int64_t>(*seconds * 1000.0) : 0);
}

Result<FoundHold> ready_hold(const std::string& tpu_name, const PlaceOptions& place, const HeldSync& sync, Via& via,
                             Context& context) {
    GDNCTL_TRY_ASSIGN(const auto root, sync_root(sync, context));
    GDNCTL_TRY_ASSIGN(FoundHold hold, find_hold(tpu_name, place, context));
    GDNCTL_TRY_ASSIGN(via, choose_via(hold, via, context));
    if (sync.no_sync || via != Via::ssh) return hold;
    auto synced = sync_to_host(hold.record, root, sync.sync_path.has_value(), context);
    if (synced) {
        hold.synced = std::move(*synced);
        return hold;
    }
    if (synced.error().kind == ErrorKind::infrastructure) {
        if (auto over = over_now(hold, context)) {
            over->kind = ErrorKind::infrastructure;
            return tl::unexpected(std::move(*over));
        }
    }
    return tl::unexpected(std::move(synced).error());
}

namespace {

std::string prefix_of(const std::optional<std::string>& given, const devtpu::HoldRecord& record,
                      const Context& context) {
    if (given) return *given;
    if (const auto value = context.env.get("MARIN_PREFIX"); value && !value->empty()) return *value;
    const std::string& zone = record.host.gcloud_zone;
    return devtpu::marin_prefix(zone.empty() ? record.cluster : zone);
}

Result<PlannedJob> begin_held_plan(Target target, const FoundHold& hold, Context& context) {
    GDNCTL_TRY(check_target_is_named(target, hold.record.cluster == "local", context));
    PlannedJob job;
    GDNCTL_TRY_ASSIGN(job.place, choose_place(hold.place, context));
    GDNCTL_TRY_ASSIGN(job.target, target_at(job.place, std::move(target), context));
    job.tpu = hold.record.tpu_type;
    return job;
}

}  // namespace

Result<PlannedJob> plan_held_test(Target target, const TestSelection& selection, const FoundHold& hold,
                                  Context& context) {
    GDNCTL_TRY_ASSIGN(PlannedJob job, begin_held_plan(std::move(target), hold, context));
    job.plan = {"test", job.target.name, {}, cluster_env(job.target), {}};
    job.plan.log_decides = needs_log(job.target);
    GDNCTL_TRY_ASSIGN(job.plan.command, test_command(job.target, selection, context.program));
    return job;
}

Result<PlannedJob> plan_held_profile(Target target, ProfileSettings settings,
                                     const std::optional<std::string>& marin_prefix, const FoundHold& hold, Via via,
                                     Context& context) {
    GDNCTL_TRY_ASSIGN(PlannedJob job, begin_held_plan(std::move(target), hold, context));
    if (settings.tpu == "auto") settings.tpu = hold.record.tpu_type;
    settings.on_dev_tpu = via == Via::ssh && hold.record.cluster != "local";
    job.plan = {"profile", job.target.name, {}, cluster_env(job.target), job.target.metric};
    GDNCTL_TRY_ASSIGN(job.plan.command, profile_command(job.target, settings, context.program));
    const std::string prefix = prefix_of(marin_prefix, hold.record, context);
    if (job.target.style == TargetStyle::levanter && !prefix.empty()) {
        job.plan.command.env.emplace_back("MARIN_PREFIX", prefix);
    }
    job.settings = std::move(settings);
    return job;
}

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
    GDNCTL_TRY_ASSIGN(const auto own, extra_env(options.run, context));
    HostRun command;
    GDNCTL_TRY_ASSIGN(command.env, host_environment(hold, {}, options.run.forward_all_env, context));
    command.env.insert(command.env.end(), extra.begin(), extra.end());
    command.env.insert(command.env.end(), own.begin(), own.end());
    for (const JobEnv& item : own) register_secret(item.value);
    command.line = plan.command.entrypoint;
    command.alone = true;
    command.wall_limit = limit_of(options.run.timeout_s);
    if (plan.command.timeout_s && command.wall_limit.count() == 0) {
        command.wall_limit = std::chrono::seconds(*plan.command.timeout_s);
    }
    command.idle_limit = limit_of(options.run.idle_timeout_s);
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
    run.subject = fmt::format("the {} of target '{}' on dev TPU {}", plan.kind, plan.target, hold.record.tpu_name);
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
    if (run.metric) run.metric->discard("the end of the output is missing");
    run.verdict = {code.error().kind == ErrorKind::timeout ? FailureClass::timeout : failure_of(code.error()),
                   exit_code_of(code.error().kind)};
    run.cut_short = code.error();
    return run;
}

}  // namespace

Result<JobRun> run_beside(const FoundHold& hold, const JobPlan& plan, const HeldRunOptions& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto backend, open_backend(hold.place, false, context));
    const std::string run_id = new_run_id(hold.record);
    const std::string& id = hold.record.submission_id;
    const auto heart =
        start_heart(hold.record, hold.place, context, devtpu::run_record(devtpu::lease_path(id), run_id));
    if (!heart) log::warning("the lease is not being renewed: {}", heart.error().text());
    GDNCTL_TRY_ASSIGN(const auto extra, extra_env(options.run, context));
    SubmitOptions submit;
    for (const JobEnv& item : extra) submit.env.push_back(item.name + "=" + item.value);
    submit.auto_stop = true;
    submit.timeout_s = options.run.timeout_s;
    if (options.sync.no_sync) submit.working_dir = "none";
    if (options.sync.sync_path) submit.working_dir = options.sync.sync_path;
    JobPlan beside = plan;
    beside.beside = id;
    beside.guard = devtpu::beside_guard(id, run_id, hold.record.terms.lease_s);
    beside.command.resources.clear();
    auto run = run_job(beside, submit, *backend, context);
    if (!run) return tl::unexpected(for_held_tree(std::move(run).error()));
    return run;
}

Result<JobRun> run_held(const FoundHold& hold, Via via, const JobPlan& plan, const HeldRunOptions& options,
                        Context& context) {
    if (via == Via::ray) return run_beside(hold, plan, options, context);
    report_busy_chips(hold, context);
    return run_by_road(hold, plan, options, context);
}

}  // namespace gdnctl
