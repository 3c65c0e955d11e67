// gdnctl ray-stop: ask a job to stop.
#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "commands/jobs/job_options.h"
#include "commands/print.h"
#include "commands/rows.h"
#include "core/json.h"
#include "jobs/place.h"
#include "jobs/stop.h"
#include "platform/terminal.h"

namespace gdnctl::commands::ray_stop {

struct Options {
    PlaceOptions place;
    std::string id;
    bool wait = false;
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Asks a job to stop: SIGTERM to all its processes, SIGKILL after 3 seconds (RAY_JOB_STOP_WAIT_TIME_S in the "
        "job's environment). A local job that is still waiting stops at once. On a cluster, the job is started first "
        "and then stopped, by this or a later command.");
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
    GDNCTL_TRY_ASSIGN(const StoppedJob job, stop_job(*backend, options.id, {options.wait, {}}, context));
    if (context.global.json) {
        Json out;
        out["schema"] = "gdnctl.ray-stop/1";
        put_job(out, place_of(*backend, options.id), job.details, classify(job.details));
        out["stopped"] = job.stopped;
        print_json(out, context, -1);
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::ray_stop

namespace gdnctl::commands {

constinit const cli::Command k_ray_stop_row =
    cli::make<&ray_stop::describe, &ray_stop::run>("ray-stop", "Jobs", "ask a job to stop", Tier::http);

}  // namespace gdnctl::commands
