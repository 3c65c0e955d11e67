#include "commands/jobs/ray_stop.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "commands/jobs/job_options.h"
#include "commands/print.h"
#include "core/json.h"
#include "core/log.h"
#include "jobs/given_up.h"
#include "jobs/watch.h"
#include "platform/terminal.h"

namespace gdnctl::commands::ray_stop {

namespace {

// A job that waits is not stopped before it has started.
void remember_unless_over(const JobBackend& backend, const JobDetails& details, Context& context) {
    if (details.state != JobState::pending) return;
    log::info("job {} is still waiting; this machine's next gdnctl command on the cluster stops it when it starts",
              details.submission_id);
    remember_given_up(backend, details.submission_id, context);
}

Result<JobDetails> wait_for_end(JobBackend& backend, const std::string& id, Context& context) {
    WatchOptions watch;
    watch.poll = std::max(std::chrono::milliseconds(200), backend.pace().log);
    watch.whole_messages = false;
    watch.submitted = true;
    auto watched = wait_for_job(backend, id, watch, context);
    if (!watched) {
        if (watched.error().kind != ErrorKind::remote_missing) remember_given_up(backend, id, context);
        return tl::unexpected(std::move(watched).error());
    }
    return std::move(watched->details);
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Asks a job to stop: SIGTERM to all its processes, SIGKILL after 3 seconds (RAY_JOB_STOP_WAIT_TIME_S in the "
        "job's environment). A local job that is still waiting stops at once. A cluster starts it first; this and "
        "later commands then stop it.");
    args.positional(options.id,
                    {.name = "ID", .help = "submission id of the job", .complete = cli::Complete::local_job});
    args.flag(options.wait, {.names = "--wait", .help = "return when the job has ended"});
    describe_place(args, options.place);
    args.exit_code(0, "the job will stop, or had already ended");
    args.exit_code(6, "no such job");
    args.example("gdnctl ray-stop --cluster local ID --wait");
    args.see_also("ray-wait");
    args.see_also("ray-list");
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY(check_job_id(options.id));
    GDNCTL_TRY_ASSIGN(const auto backend, open_backend(options.place, !options.wait, context));
    GDNCTL_TRY_ASSIGN(const bool stopped, backend->stop(options.id));
    GDNCTL_TRY_ASSIGN(JobDetails details, backend->details(options.id));
    if (stopped) {
        log::info("Job {} stop requested", options.id);
    } else {
        log::info("Job {} had already ended ({})", options.id, status_of(details));
    }
    if (!is_terminal(details.state)) {
        if (!options.wait) {
            remember_unless_over(*backend, details, context);
        } else {
            GDNCTL_TRY_ASSIGN(details, wait_for_end(*backend, options.id, context));
        }
    }
    see_to_given_up(*backend, context);
    if (context.global.json) {
        Json out;
        out["schema"] = "gdnctl.ray-stop/1";
        put_job(out, place_of(*backend, options.id), details, classify(details));
        out["stopped"] = stopped;
        print_json(out, context, -1);
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::ray_stop
