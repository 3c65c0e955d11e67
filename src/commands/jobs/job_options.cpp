#include "commands/jobs/job_options.h"

#include <array>

#include <fmt/format.h>

#include "services/devtpu/holds.h"

namespace gdnctl::commands {

namespace {

constexpr double k_longest_s = 1e9;  // for --timeout; keeps the conversion in range

}  // namespace

Status check_addresses(const DestinationOptions& options) {
    if (options.ray_address && options.iris_url) {
        return fail(ErrorKind::usage, "--ray-address and --iris-url both select a cluster: drop one of them");
    }
    if (options.cluster == "local" && (options.ray_address || options.iris_url)) {
        return fail(ErrorKind::usage, fmt::format("--cluster local is this machine: drop {}",
                                                  options.ray_address ? "--ray-address" : "--iris-url"));
    }
    return {};
}

void describe_place(cli::Args& args, DestinationOptions& options) {
    args.option(options.cluster, "--cluster NAME", "cluster to use; `local` is this machine",
                {.group = "Cluster",
                 .default_text = "us-central1 or marin if its file exists, otherwise local",
                 .complete = cli::Complete::cluster});
    args.option(options.cluster_config, "--cluster-config FILE", "cluster file (YAML) to use instead of a name",
                {.group = "Cluster", .complete = cli::Complete::file});
    args.option(options.ray_address, "--ray-address URL", "Ray dashboard to use directly", {.group = "Cluster"});
    args.option(options.iris_url, "--iris-url URL", "Iris controller to use directly, or a tunnel to one",
                {.group = "Cluster"});
    args.flag(options.allow_plaintext_token, "--allow-plaintext-token",
              "allow sending the token to another machine over plain http", {.group = "Cluster"});
    args.flag(options.no_local, "--no-local", "fail instead of running on this machine (also GDNCTL_NO_LOCAL=1)",
              {.group = "Cluster"});
    args.exit_code(4, "the cluster cannot be reached, or the job's supervisor died or never started");
    args.exit_code(5, "the cluster refused the token or login, or none was found");
    args.exit_code(8, "the state directory, a job's record or a file cannot be used");
    args.check([&options]() -> Status {
        if (options.cluster && options.cluster_config) {
            return fail(ErrorKind::usage, "--cluster and --cluster-config both select a cluster: drop one of them");
        }
        return check_addresses(options);
    });
}

void describe_submit(cli::Args& args, SubmitOptions& options) {
    args.flag(options.no_wait, "--no-wait", "print the job's id and return without waiting");
    args.option(options.submission_id, "--submission-id ID", "id of the job; must be new",
                {.group = "Submission", .default_text = "gdnctl-<kind>-<user>-<UTC>-<8 hex>"});
    args.option(options.env, "-e,--env KEY=VALUE", "environment variable of the job", {.group = "Submission"});
    args.option(options.working_dir, "--working-dir PATH|URI|none", "folder to copy for the job",
                {.group = "Submission", .default_text = "the repository", .complete = cli::Complete::directory});
    args.flag(options.keep_workdir, "--keep-workdir", "keep the job's copy of the working directory",
              {.group = "Submission"});
    args.option(options.pip_requirements, "--pip-requirements FILE", "packages for the job; not on the local backend",
                {.group = "Submission", .complete = cli::Complete::file});
    args.flag(options.no_secrets, "--no-secrets", "keep HF_TOKEN, WANDB_API_KEY and other secrets off the cluster",
              {.group = "Submission"});
    args.option(options.resubmit, "--resubmit N", "resubmit up to N times if the job fails because of the cluster",
                {.group = "Submission"});
    args.option(options.timeout_s, "--timeout SECONDS",
                "give up after this time; the job keeps running, unless --auto-stop", {.group = "Submission"});
    args.flag(options.auto_stop, "--auto-stop", "stop the job if this command is interrupted or times out",
              {.group = "Submission"});
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

const std::array<WordChoice, 5> k_ce_implementations = {{{"auto", "auto"},
                                                         {"xla", "xla"},
                                                         {"reference", "reference"},
                                                         {"pallas_tpu", "pallas_tpu"},
                                                         {"pallas_gpu", "pallas_gpu"}}};

namespace {

const std::array<WordChoice, 4> k_sizes = {{{"130m", "130m"}, {"300m", "300m"}, {"520m", "520m"}, {"1_2b", "1_2b"}}};
const std::array<WordChoice, 3> k_wandb_modes = {
    {{"online", "online"}, {"offline", "offline"}, {"disabled", "disabled"}}};
const std::array<WordChoice, 2> k_backward_modes = {{{"pallas", "pallas"}, {"xla_streaming", "xla_streaming"}}};

// Describes the settings one after the other, with a common prefix for their names.
class Describer {
public:
    Describer(cli::Args& args, const ProfileNames& names) : m_args(args), m_names(names) {}

    template <class T>
    void number(T& value, std::string_view name, std::string_view help, std::string_view usual = {}) {
        const std::string full = spelled(name);
        m_args.option(value,
                      {.names = full, .value = "N", .help = help, .group = m_names.group, .default_text = usual});
    }
    template <class Choices>
    void choice(std::string& value, const Choices& choices, std::string_view name, std::string_view word,
                std::string_view help) {
        const std::string full = spelled(name);
        m_args.option(value, choices, {.names = full, .value = word, .help = help, .group = m_names.group});
    }
    std::string spelled(std::string_view name) const { return fmt::format("{}{}", m_names.prefix, name); }

private:
    cli::Args& m_args;
    const ProfileNames& m_names;
};

}  // namespace

void describe_model(cli::Args& args, ProfileSettings& s, const ProfileNames& names) {
    Describer describer(args, names);
    describer.choice(s.size, k_sizes, "size", "SIZE", "model size");
    describer.number(s.num_steps, "num-steps", "training steps");
    describer.number(s.profile_start_step, names.first_step, "first step in the trace");
    describer.number(s.profile_num_steps, names.traced_steps, "steps in the trace");
    describer.number(s.batch_size, "batch-size", "sequences per step", "8");
    describer.number(s.chunk_size, "chunk-size", "chunk length of the kernel");
    describer.number(s.segment_size, "segment-size", "segment length of the kernel");
    describer.number(s.gdn_layers_per_block, "gdn-layers-per-block", "GDN layers per block");
    describer.number(s.gdn_block_size, "gdn-block-size", "layers per block");
    args.flag(s.all_transformer, {.names = describer.spelled("all-transformer"),
                                  .help = "control run with attention layers only",
                                  .group = names.group});
}

void describe_cross_entropy(cli::Args& args, ProfileSettings& s, const ProfileNames& names) {
    Describer describer(args, names);
    describer.choice(s.ce_implementation, k_ce_implementations, "ce-implementation", "NAME",
                     "fused cross-entropy to use");
    describer.choice(s.ce_bwd_mode, k_backward_modes, "ce-bwd-mode", "MODE", "backward pass of the cross-entropy");
}

void describe_run_name(cli::Args& args, ProfileSettings& s, const ProfileNames& names) {
    Describer describer(args, names);
    args.option(s.run_name_prefix, {.names = describer.spelled("run-name-prefix"),
                                    .value = "TEXT",
                                    .help = names.run_name_help,
                                    .group = names.group});
    describer.choice(s.wandb_mode, k_wandb_modes, "wandb-mode", "MODE", "W&B mode of the run");
}

}  // namespace gdnctl::commands

namespace gdnctl::commands::devtpu_options {

namespace {

constexpr std::array<cli::Choice<Via>, 3> k_vias = {{{"auto", Via::automatic, "ssh if the host answers, otherwise ray"},
                                                     {"ssh", Via::ssh, "over ssh"},
                                                     {"ray", Via::ray, "as a job on the holder's host; needs no ssh"}}};
constexpr double k_longest_s = 1e9;

}  // namespace

void describe_name(cli::Args& args, Name& options) {
    args.option(options.tpu_name, "--tpu-name NAME", "name of the held TPU", {.required = true});
    describe_place(args, options.place);
    args.check([&options]() -> Status { return devtpu::check_tpu_name(options.tpu_name); });
}

void describe_sync(cli::Args& args, Sync& options) {
    args.option(options.sync_path, "--sync-path PATH", "folder to sync: all files that git does not ignore",
                {.group = "Sync", .default_text = "the repository", .complete = cli::Complete::directory});
    args.flag(options.no_sync, "--no-sync", "leave the files on the host as they are", {.group = "Sync"});
    args.exit_code(7, "another command has used the TPU's tree for half an hour");
}

void describe_run(cli::Args& args, Run& options) {
    args.option(options.env, "-e,--env KEY[=VALUE]",
                "environment variable for the command; without =VALUE, its local value", {.group = "Command"});
    args.flag(options.forward_all_env, "--forward-all-env", "forward the whole environment", {.group = "Command"});
    args.option(options.via, k_vias, "--via WAY", "how the command reaches the host", {.group = "Command"});
    args.option(options.timeout_s, "--timeout SECONDS", "stop the command after this time", {.group = "Command"});
    args.option(options.idle_timeout_s, "--idle-timeout SECONDS", "stop the command after this long without output",
                {.group = "Command"});
    args.exit_code(124, "--timeout or --idle-timeout: the command was ended");
    args.check([&options]() -> Status {
        for (const auto& [name, value] :
             {std::pair{"--timeout", options.timeout_s}, std::pair{"--idle-timeout", options.idle_timeout_s}}) {
            if (value && !(*value > 0 && *value <= k_longest_s)) {
                return fail(ErrorKind::usage, std::string(name) + ": expected a number of seconds above 0");
            }
        }
        return {};
    });
}

}  // namespace gdnctl::commands::devtpu_options
