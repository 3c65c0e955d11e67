#include "commands/table.h"

#include "commands/rows.h"
#include "target/target.h"

namespace gdnctl::commands {

namespace {

// The order is that of the overview page; a row with an empty heading is hidden. Headings in use: "Running log",
// "Jobs", "Dev TPUs", "Traces", "Oracle", "Loop", "Setup".
constexpr cli::TableRow k_table[] = {
    k_ray_test_row,        k_ray_profile_row,       k_ray_wait_row,
    k_ray_logs_row,        k_ray_stop_row,          k_ray_list_row,
    k_sweep_run_row,       k_sweep_report_row,      k_cluster_list_row,
    k_cluster_check_row,   k_dev_tpu_allocate_row,  k_dev_tpu_test_row,
    k_dev_tpu_profile_row, k_dev_tpu_execute_row,   k_dev_tpu_watch_row,
    k_dev_tpu_connect_row, k_dev_tpu_setup_row,     k_dev_tpu_list_row,
    k_dev_tpu_release_row, k_hf_download_trace_row, k_wandb_download_trace_row,
    k_oracle_verify_row,   k_oracle_compare_row,    k_oracle_run_row,
    k_oracle_bench_row,    k_oracle_cases_row,      k_oracle_selftest_row,
    k_ce_infer_row,        k_codex_loop_row,        k_loop_status_row,
    k_loop_explain_row,    k_loop_report_row,       k_evolve_log_row,
    k_evolve_show_row,     k_evolve_lineage_row,    k_evolve_diff_row,
    k_evolve_best_row,     k_evolve_promote_row,    k_evolve_replay_row,
    k_evolve_noise_row,    k_evolve_pause_row,      k_evolve_stop_row,
    k_evolve_fsck_row,     k_evolve_gc_row,         k_evolve_import_row,
    k_evolve_export_row,   k_lint_log_row,          k_log_init_row,
    k_log_append_row,      k_log_new_row,           k_log_render_row,
    k_log_stamp_row,       k_log_import_row,        k_log_show_row,
    k_log_summary_row,     k_log_context_row,       k_policy_show_row,
    k_policy_test_row,     k_policy_simulate_row,   k_prompts_list_row,
    k_prompts_show_row,    k_prompts_render_row,    k_config_show_row,
    k_config_init_row,     k_init_marin_row,        k_doctor_row,
    k_completion_row,      k_complete_values_row,   k_docs_row,
    k_kernel_host_row,     k_dev_tpu_holder_row,    k_local_supervisor_row,
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
