#include "commands/table.h"

#include "commands/devtpu/allocate.h"
#include "commands/devtpu/connect.h"
#include "commands/devtpu/execute.h"
#include "commands/devtpu/holder.h"
#include "commands/devtpu/list.h"
#include "commands/devtpu/profile.h"
#include "commands/devtpu/release.h"
#include "commands/devtpu/setup.h"
#include "commands/devtpu/test.h"
#include "commands/devtpu/watch.h"
#include "commands/jobs/cluster_check.h"
#include "commands/jobs/cluster_list.h"
#include "commands/jobs/local_supervisor.h"
#include "commands/jobs/ray_list.h"
#include "commands/jobs/ray_logs.h"
#include "commands/jobs/ray_profile.h"
#include "commands/jobs/ray_stop.h"
#include "commands/jobs/ray_test.h"
#include "commands/jobs/ray_wait.h"
#include "commands/jobs/sweep_report.h"
#include "commands/jobs/sweep_run.h"
#include "commands/log/append.h"
#include "commands/log/context.h"
#include "commands/log/import.h"
#include "commands/log/init.h"
#include "commands/log/lint_log.h"
#include "commands/log/new.h"
#include "commands/log/render.h"
#include "commands/log/show.h"
#include "commands/log/stamp.h"
#include "commands/log/summary.h"
#include "commands/loop/codex_loop.h"
#include "commands/loop/evolve_control.h"
#include "commands/loop/evolve_exchange.h"
#include "commands/loop/evolve_judge.h"
#include "commands/loop/evolve_views.h"
#include "commands/loop/loop_explain.h"
#include "commands/loop/loop_report.h"
#include "commands/loop/loop_status.h"
#include "commands/loop/policy_show.h"
#include "commands/loop/policy_simulate.h"
#include "commands/loop/policy_test.h"
#include "commands/loop/prompts_list.h"
#include "commands/loop/prompts_render.h"
#include "commands/loop/prompts_show.h"
#include "commands/oracle/bench.h"
#include "commands/oracle/cases.h"
#include "commands/oracle/ce_infer.h"
#include "commands/oracle/compare.h"
#include "commands/oracle/kernel_host.h"
#include "commands/oracle/run.h"
#include "commands/oracle/selftest.h"
#include "commands/oracle/verify.h"
#include "commands/setup/complete_values.h"
#include "commands/setup/completion.h"
#include "commands/setup/config_init.h"
#include "commands/setup/config_show.h"
#include "commands/setup/docs.h"
#include "commands/setup/doctor.h"
#include "commands/setup/init_marin.h"
#include "commands/traces/hf_download_trace.h"
#include "commands/traces/wandb_download_trace.h"
#include "target/target.h"

namespace gdnctl::commands {

namespace {

// The order is that of the overview page; a row with an empty heading is hidden. Headings in use: "Running log",
// "Jobs", "Dev TPUs", "Traces", "Oracle", "Loop", "Setup".
constexpr cli::Command k_table[] = {
    cli::make<&ray_test::describe, &ray_test::run>("ray-test", "Jobs", "run the target's correctness test as a job",
                                                   Tier::http),
    cli::make<&ray_profile::describe, &ray_profile::run>("ray-profile", "Jobs", "run the target's profile as a job",
                                                         Tier::http),
    cli::make<&ray_wait::describe, &ray_wait::run>("ray-wait", "Jobs", "wait for a job and return its verdict",
                                                   Tier::http),
    cli::make<&ray_logs::describe, &ray_logs::run>("ray-logs", "Jobs", "print or follow a job's log", Tier::http),
    cli::make<&ray_stop::describe, &ray_stop::run>("ray-stop", "Jobs", "ask a job to stop", Tier::http),
    cli::make<&ray_list::describe, &ray_list::run>("ray-list", "Jobs", "list jobs", Tier::http),
    cli::make<&sweep_run::describe, &sweep_run::run>("sweep run", "Jobs", "time a kernel at every block size of a plan",
                                                     Tier::http),
    cli::make<&sweep_report::describe, &sweep_report::run>("sweep report", "Jobs",
                                                           "compare block sizes from the logs of sweeps", Tier::none)
        .without_config(),
    cli::make<&cluster_list::describe, &cluster_list::run>("cluster list", "Jobs", "list the available clusters",
                                                           Tier::none),
    cli::make<&cluster_check::describe, &cluster_check::run>(
        "cluster check", "Jobs", "show how a cluster is reached, and whether it answers", Tier::http),
    cli::make<&dev_tpu_allocate::describe, &dev_tpu_allocate::run>("dev-tpu-allocate", "Dev TPUs",
                                                                   "hold a TPU for development", Tier::http),
    cli::make<&dev_tpu_test::describe, &dev_tpu_test::run>("dev-tpu-test", "Dev TPUs",
                                                           "run the target's test on a held TPU", Tier::http),
    cli::make<&dev_tpu_profile::describe, &dev_tpu_profile::run>("dev-tpu-profile", "Dev TPUs",
                                                                 "run the target's profile on a held TPU", Tier::http),
    cli::make<&dev_tpu_execute::describe, &dev_tpu_execute::run>("dev-tpu-execute", "Dev TPUs",
                                                                 "run a command on a held TPU's host", Tier::http),
    cli::make<&dev_tpu_watch::describe, &dev_tpu_watch::run>(
        "dev-tpu-watch", "Dev TPUs", "run a command on a held TPU's host at every change", Tier::http),
    cli::make<&dev_tpu_connect::describe, &dev_tpu_connect::run>("dev-tpu-connect", "Dev TPUs",
                                                                 "open a shell on a held TPU's host", Tier::http),
    cli::make<&dev_tpu_setup::describe, &dev_tpu_setup::run>("dev-tpu-setup", "Dev TPUs",
                                                             "set up a held TPU's host again", Tier::http),
    cli::make<&dev_tpu_list::describe, &dev_tpu_list::run>("dev-tpu-list", "Dev TPUs", "list held TPUs", Tier::http),
    cli::make<&dev_tpu_release::describe, &dev_tpu_release::run>("dev-tpu-release", "Dev TPUs", "give a held TPU back",
                                                                 Tier::http),
    cli::make<&hf_download_trace::describe, &hf_download_trace::run>(
        "hf-download-trace", "Traces", "download traces from the Hugging Face Hub", Tier::http)
        .without_config(),
    cli::make<&wandb_download_trace::describe, &wandb_download_trace::run>(
        "wandb-download-trace", "Traces", "download a run's profile from Weights & Biases", Tier::http)
        .without_config(),
    cli::make<&oracle_verify::describe, &oracle_verify::run>("oracle verify", "Oracle",
                                                             "judge a kernel on generated cases", Tier::process),
    cli::make<&oracle_compare::describe, &oracle_compare::run>("oracle compare", "Oracle",
                                                               "judge tensors dumped from a run", Tier::process),
    cli::make<&oracle_run::describe, &oracle_run::run>("oracle run", "Oracle", "write inputs and the exact result",
                                                       Tier::none),
    cli::make<&oracle_bench::describe, &oracle_bench::run>("oracle bench", "Oracle", "time the kernels beside sgemm",
                                                           Tier::process),
    cli::make<&oracle_cases::describe, &oracle_cases::run>("oracle cases", "Oracle", "list the generated cases",
                                                           Tier::none),
    cli::make<&oracle_selftest::describe, &oracle_selftest::run>(
        "oracle selftest", "Oracle", "check that the oracle finds planted faults on this machine", Tier::none),
    cli::make<&ce_infer::describe, &ce_infer::run>(
        "ce-infer", "Oracle", "show the block sizes of upstream's fused cross-entropy", Tier::none),
    cli::make<&codex_loop::describe, &codex_loop::run>("codex-loop", "Loop",
                                                       "run unattended iterations of a coding agent", Tier::http)
        .with_options_in_config()
        .with_last_word(&codex_loop::never_ran),
    cli::make<&loop_status::describe, &loop_status::run>("loop-status", "Loop", "show the state of a loop", Tier::none),
    cli::make<&loop_explain::describe, &loop_explain::run>("loop-explain", "Loop",
                                                           "explain why an iteration was kept or rejected", Tier::none),
    cli::make<&loop_report::describe, &loop_report::run>("loop-report", "Loop", "write a report of a run", Tier::none),
    cli::make<&evolve_log::describe, &evolve_log::run>("evolve log", "Loop", "list the attempts of an evolve run",
                                                       Tier::none),
    cli::make<&evolve_show::describe, &evolve_show::run>("evolve show", "Loop", "show one attempt", Tier::none),
    cli::make<&evolve_lineage::describe, &evolve_lineage::run>("evolve lineage", "Loop",
                                                               "show where a candidate comes from", Tier::none),
    cli::make<&evolve_diff::describe, &evolve_diff::run>("evolve diff", "Loop", "compare two candidates", Tier::git),
    cli::make<&evolve_best::describe, &evolve_best::run>("evolve best", "Loop", "show the best candidate of all runs",
                                                         Tier::none),
    cli::make<&evolve_promote::describe, &evolve_promote::run>(
        "evolve promote", "Loop", "verify a candidate and move the branch to it", Tier::http),
    cli::make<&evolve_replay::describe, &evolve_replay::run>("evolve replay", "Loop", "judge a candidate again",
                                                             Tier::http),
    cli::make<&evolve_noise::describe, &evolve_noise::run>("evolve noise", "Loop", "measure the noise of the profile",
                                                           Tier::http),
    cli::make<&evolve_pause::describe, &evolve_pause::run>("evolve pause", "Loop", "hold a run, or let it continue",
                                                           Tier::none),
    cli::make<&evolve_stop::describe, &evolve_stop::run>("evolve stop", "Loop", "end a run after the current attempt",
                                                         Tier::none),
    cli::make<&evolve_fsck::describe, &evolve_fsck::run>("evolve fsck", "Loop", "check a run's journal and candidates",
                                                         Tier::git),
    cli::make<&evolve_lint::describe, &evolve_lint::run>("evolve lint", "Loop",
                                                         "check the numbers of a log against a run", Tier::none),
    cli::make<&evolve_gc::describe, &evolve_gc::run>("evolve gc", "Loop", "remove the refs of old candidates",
                                                     Tier::git),
    cli::make<&evolve_import::describe, &evolve_import::run>(
        "evolve import", "Loop", "start a run from another program's candidates", Tier::git),
    cli::make<&evolve_export::describe, &evolve_export::run>(
        "evolve export", "Loop", "write a candidate's ancestry for another program", Tier::git),
    cli::make<&lint_log::describe, &lint_log::run>("lint-log", "Running log", "check the running log", Tier::git),
    cli::make<&log_init::describe, &log_init::run>("log init", "Running log", "start a running log", Tier::none),
    cli::make<&log_append::describe, &log_append::run>("log append", "Running log", "add an iteration to the log",
                                                       Tier::git),
    cli::make<&log_new::describe, &log_new::run>("log new", "Running log", "start a record and print an entry skeleton",
                                                 Tier::git),
    cli::make<&log_render::describe, &log_render::run>("log render", "Running log",
                                                       "write log entries from the records", Tier::none),
    cli::make<&log_stamp::describe, &log_stamp::run>("log stamp", "Running log", "put the commit into the last entry",
                                                     Tier::git),
    cli::make<&log_import::describe, &log_import::run>("log import", "Running log",
                                                       "read hand-written entries into records", Tier::none),
    cli::make<&log_show::describe, &log_show::run>("log show", "Running log", "print one iteration", Tier::none),
    cli::make<&log_summary::describe, &log_summary::run>("log summary", "Running log",
                                                         "summarise champions, slots and failures", Tier::none),
    cli::make<&log_context::describe, &log_context::run>("log context", "Running log",
                                                         "print a short summary of the log for a prompt", Tier::none),
    cli::make<&policy_show::describe, &policy_show::run>("policy show", "Loop",
                                                         "print the policy that judges candidates", Tier::none),
    cli::make<&policy_test::describe, &policy_test::run>("policy test", "Loop",
                                                         "apply another policy to recorded measurements", Tier::none),
    cli::make<&policy_simulate::describe, &policy_simulate::run>(
        "policy simulate", "Loop", "show how often the policy decides correctly at your noise", Tier::none),
    cli::make<&prompts_list::describe, &prompts_list::run>("prompts list", "Loop",
                                                           "list iteration prompts and directive presets", Tier::none),
    cli::make<&prompts_show::describe, &prompts_show::run>("prompts show", "Loop", "print a prompt or a directive",
                                                           Tier::none),
    cli::make<&prompts_render::describe, &prompts_render::run>("prompts render", "Loop",
                                                               "print the prompt of an iteration", Tier::git),
    cli::make<&config_show::describe, &config_show::run>("config show", "Setup",
                                                         "print each setting and where it comes from", Tier::none),
    cli::make<&config_init::describe, &config_init::run>("config init", "Setup", "write a commented gdnctl.toml",
                                                         Tier::none)
        .without_config(),
    cli::make<&init_marin::describe, &init_marin::run>(
        "init marin", "Setup", "install prompt, presets and script into a Marin checkout", Tier::none)
        .without_config(),
    cli::make<&doctor::describe, &doctor::run>(
        "doctor", "Setup", "check your setup and show how to install what is missing", Tier::process)
        .without_config(),
    cli::make<&completion::describe, &completion::run>("completion", "Setup", "print a completion script for a shell",
                                                       Tier::none)
        .without_config(),
    cli::make<&complete_values::describe, &complete_values::run>("__complete", "", "print values for completion",
                                                                 Tier::none),
    cli::make<&docs::describe, &docs::run>("__docs", "", "write the generated pages", Tier::none).without_config(),
    cli::make<&kernel_host::describe, &kernel_host::run>("__kernel-host", "", "run a kernel under test", Tier::none)
        .without_config(),
    cli::make<&dev_tpu_holder::describe, &dev_tpu_holder::run>("__dev-tpu-holder", "", "hold a TPU of this machine",
                                                               Tier::http)
        .without_config(),
    cli::make<&local_supervisor::describe, &local_supervisor::run>("__local-supervisor", "", "look after one local job",
                                                                   Tier::none)
        .without_config(),
};

constexpr cli::Group k_groups[] = {
    {"",
     "test, time and optimise Gated DeltaNet kernels",
     "gdnctl ray-test --cluster local",
     "test the target on this machine",
     {"doctor", "docs/reference/cli-reference.md", "docs/jobs.md"}},
    {"cluster",
     "list clusters and check whether they answer",
     "gdnctl cluster check us-central1",
     "cluster file, dashboard and token, and what the dashboard says",
     {"ray-test", "ray-list", "docs/ray.md"}},
    {"sweep",
     "time a kernel at many block sizes and compare the results",
     "gdnctl sweep report tune.log --device-kind 'TPU v5'",
     "rates of one chip, failures and the best block sizes",
     {"ce-infer", "docs/sweeps.md"}},
    {"oracle",
     "judge and time kernels against the exact result",
     "gdnctl oracle verify gdn --kernel src:kernel.c",
     "a kernel of your own on every case",
     {"ray-test", "docs/oracle.md", "docs/writing-a-kernel.md"}},
    {"log",
     "keep the running log of iterations and its records",
     "gdnctl log show last",
     "the entry of the last iteration",
     {"lint-log", "docs/running-log.md"}},
    {"evolve",
     "look at a population of candidates, and promote the best",
     "gdnctl evolve log",
     "every attempt of the newest run",
     {"codex-loop", "loop-status", "docs/evolve.md"}},
    {"policy",
     "show and try the policy that judges candidates",
     "gdnctl policy simulate --noise-pct 0.8 --gain-pct 1",
     "can a gain of 1 % be found on this device?",
     {"policy test", "docs/performance-policy.md"}},
    {"prompts",
     "list and print iteration prompts and directive presets",
     "gdnctl prompts render --iteration 2 --total 5",
     "the prompt of the second of five iterations",
     {"docs/prompts.md"}},
    {"init",
     "installs what a checkout needs",
     "gdnctl init marin --dry-run",
     "what would be written, as a diff",
     {"doctor", "docs/prompts.md"}},
    {"config",
     "shows and creates the configuration",
     "gdnctl config show",
     "which settings are in force here, and why",
     {"doctor", "docs/configuration.md"}},
};

}  // namespace

cli::Table table() {
    cli::Table all{k_table, k_groups};
    all.check_target = [](const Config& config, const std::filesystem::path& root) -> Status {
        GDNCTL_TRY(select_target(config, root));
        return {};
    };
    return all;
}

}  // namespace gdnctl::commands
