#include "commands/ray_stop.h"

#include <nlohmann/json.hpp>

#include "commands/job_watch.h"
#include "gdnctl/core/json.h"
#include "gdnctl/core/log.h"
#include "gdnctl/platform/terminal.h"

namespace gdnctl::commands::ray_stop {

void describe(cli::Args& args, Options& options) {
    args.about(
        "Asks a job to stop: SIGTERM to all its processes, SIGKILL after 3 seconds (RAY_JOB_STOP_WAIT_TIME_S in the "
        "job's environment). A job that still waits is stopped at once.");
    args.positional(options.id,
                    {.name = "ID", .help = "submission id of the job", .complete = cli::Complete::local_job});
    args.flag(options.wait, {.names = "--wait", .help = "return when the job has ended"});
    describe_place(args, options.place);
    args.exit_code(0, "the job will stop, or had ended already");
    args.exit_code(6, "no such job");
    args.example("gdnctl ray-stop --cluster local ID --wait");
    args.see_also("ray-wait");
    args.see_also("ray-list");
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY(check_submission_id(options.id));
    GDNCTL_TRY_ASSIGN(const auto backend, open_backend(options.place, context));
    GDNCTL_TRY_ASSIGN(const bool stopped, backend->stop(options.id));
    GDNCTL_TRY_ASSIGN(JobDetails details, backend->details(options.id));
    if (stopped) {
        log::info("Job {} stop requested", options.id);
    } else {
        log::info("Job {} had ended already ({})", options.id, to_text(details.state));
    }
    if (options.wait && !is_terminal(details.state)) {
        WatchOptions watch;
        watch.poll = std::chrono::milliseconds(200);
        watch.whole_messages = false;
        GDNCTL_TRY_ASSIGN(Watched watched, wait_for_job(*backend, options.id, watch, context));
        details = std::move(watched.details);
    }
    if (context.global.json) {
        Json out;
        out["schema"] = "gdnctl.ray-stop/1";
        put_job(out, place_of(*backend, options.id), details, classify(details));
        out["stopped"] = stopped;
        context.terminal.out(to_text(out) + "\n");
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::ray_stop
