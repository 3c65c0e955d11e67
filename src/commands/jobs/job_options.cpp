#include "commands/jobs/job_options.h"

namespace gdnctl::commands {

namespace {

constexpr double k_longest_s = 1e9;  // for --timeout; keeps the conversion in range

}  // namespace

void describe_place(cli::Args& args, PlaceOptions& options) {
    args.option(options.cluster, {.names = "--cluster",
                                  .value = "NAME",
                                  .help = "cluster to use; `local` is this machine",
                                  .group = "Cluster",
                                  .default_text = "us-central1 if its file exists, otherwise local",
                                  .complete = cli::Complete::cluster});
    args.option(options.cluster_config, {.names = "--cluster-config",
                                         .value = "FILE",
                                         .help = "cluster file (YAML) to use instead of a name",
                                         .group = "Cluster",
                                         .complete = cli::Complete::file});
    args.option(options.ray_address,
                {.names = "--ray-address", .value = "URL", .help = "dashboard to use directly", .group = "Cluster"});
    args.flag(options.allow_plaintext_token, {.names = "--allow-plaintext-token",
                                              .help = "allow sending the token to another machine over plain http",
                                              .group = "Cluster"});
    args.flag(options.no_local, {.names = "--no-local",
                                 .help = "fail instead of running on this machine (also GDNCTL_NO_LOCAL=1)",
                                 .group = "Cluster"});
    args.exit_code(4, "the cluster cannot be reached, or the job's supervisor died or never started");
    args.exit_code(5, "the cluster refused the token, or no token was found");
    args.exit_code(8, "the state directory, a job's record or a file cannot be used");
    args.check([&options]() -> Status {
        if (options.cluster && options.cluster_config) {
            return fail(ErrorKind::usage, "--cluster and --cluster-config both select a cluster: drop one of them");
        }
        if (options.cluster == "local" && options.ray_address) {
            return fail(ErrorKind::usage, "--cluster local is this machine: drop --ray-address");
        }
        return {};
    });
}

void describe_submit(cli::Args& args, SubmitOptions& options) {
    args.flag(options.no_wait, {.names = "--no-wait", .help = "print the job's id and return without waiting"});
    args.option(options.submission_id, {.names = "--submission-id",
                                        .value = "ID",
                                        .help = "id of the job; must be new",
                                        .group = "Submission",
                                        .default_text = "gdnctl-<kind>-<user>-<UTC>-<8 hex>"});
    args.option(
        options.env,
        {.names = "-e,--env", .value = "KEY=VALUE", .help = "environment variable of the job", .group = "Submission"});
    args.option(options.working_dir, {.names = "--working-dir",
                                      .value = "PATH|URI|none",
                                      .help = "folder to copy for the job",
                                      .group = "Submission",
                                      .default_text = "the repository",
                                      .complete = cli::Complete::directory});
    args.flag(
        options.keep_workdir,
        {.names = "--keep-workdir", .help = "keep the job's copy of the working directory", .group = "Submission"});
    args.option(options.pip_requirements, {.names = "--pip-requirements",
                                           .value = "FILE",
                                           .help = "packages for the job; not on the local backend",
                                           .group = "Submission",
                                           .complete = cli::Complete::file});
    args.flag(options.no_secrets, {.names = "--no-secrets",
                                   .help = "keep HF_TOKEN, WANDB_API_KEY and other secrets off the cluster",
                                   .group = "Submission"});
    args.option(options.resubmit, {.names = "--resubmit",
                                   .value = "N",
                                   .help = "resubmit up to N times if the job fails because of the cluster",
                                   .group = "Submission"});
    args.option(options.timeout_s, {.names = "--timeout",
                                    .value = "SECONDS",
                                    .help = "give up after this time; the job keeps running, unless --auto-stop",
                                    .group = "Submission"});
    args.flag(options.auto_stop, {.names = "--auto-stop",
                                  .help = "stop the job if this command is interrupted or times out",
                                  .group = "Submission"});
    args.exit_code(1, "the job failed");
    args.exit_code(3, "the job was stopped");
    args.exit_code(124, "--timeout (the job keeps running), or the target's time limit (the job is stopped)");
    args.exit_code(130, "interrupted by SIGINT / SIGTERM; the job keeps running, unless --auto-stop");
    args.check([&options]() -> Status {
        if (options.resubmit < 0) return fail(ErrorKind::usage, "--resubmit: expected 0 or more");
        if (options.timeout_s && !(*options.timeout_s >= 0 && *options.timeout_s <= k_longest_s)) {
            return fail(ErrorKind::usage, "--timeout: expected 0 to 1e9 seconds");
        }
        if (options.no_wait && (options.resubmit > 0 || options.timeout_s)) {
            return fail(ErrorKind::usage, "--resubmit and --timeout wait for the job's end: drop --no-wait");
        }
        return {};
    });
}

}  // namespace gdnctl::commands
