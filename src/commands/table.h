// Every command of gdnctl, in the order of the overview page.
#pragma once

#include "cli/command.h"

namespace gdnctl::commands {

cli::Table table();

// The row of each command, defined in the command's source.

extern const cli::Command k_ray_test_row;
extern const cli::Command k_ray_profile_row;
extern const cli::Command k_ray_wait_row;
extern const cli::Command k_ray_logs_row;
extern const cli::Command k_ray_stop_row;
extern const cli::Command k_ray_list_row;
extern const cli::Command k_sweep_run_row;
extern const cli::Command k_sweep_report_row;
extern const cli::Command k_cluster_list_row;
extern const cli::Command k_cluster_check_row;
extern const cli::Command k_dev_tpu_allocate_row;
extern const cli::Command k_dev_tpu_test_row;
extern const cli::Command k_dev_tpu_profile_row;
extern const cli::Command k_dev_tpu_execute_row;
extern const cli::Command k_dev_tpu_watch_row;
extern const cli::Command k_dev_tpu_connect_row;
extern const cli::Command k_dev_tpu_setup_row;
extern const cli::Command k_dev_tpu_list_row;
extern const cli::Command k_dev_tpu_release_row;
extern const cli::Command k_hf_download_trace_row;
extern const cli::Command k_wandb_download_trace_row;
extern const cli::Command k_oracle_verify_row;
extern const cli::Command k_oracle_compare_row;
extern const cli::Command k_oracle_run_row;
extern const cli::Command k_oracle_bench_row;
extern const cli::Command k_oracle_cases_row;
extern const cli::Command k_oracle_selftest_row;
extern const cli::Command k_ce_infer_row;
extern const cli::Command k_codex_loop_row;
extern const cli::Command k_loop_status_row;
extern const cli::Command k_loop_explain_row;
extern const cli::Command k_loop_report_row;
extern const cli::Command k_evolve_log_row;
extern const cli::Command k_evolve_show_row;
extern const cli::Command k_evolve_lineage_row;
extern const cli::Command k_evolve_diff_row;
extern const cli::Command k_evolve_best_row;
extern const cli::Command k_evolve_promote_row;
extern const cli::Command k_evolve_replay_row;
extern const cli::Command k_evolve_noise_row;
extern const cli::Command k_evolve_pause_row;
extern const cli::Command k_evolve_stop_row;
extern const cli::Command k_evolve_fsck_row;
extern const cli::Command k_evolve_lint_row;
extern const cli::Command k_evolve_gc_row;
extern const cli::Command k_evolve_import_row;
extern const cli::Command k_evolve_export_row;
extern const cli::Command k_lint_log_row;
extern const cli::Command k_log_init_row;
extern const cli::Command k_log_append_row;
extern const cli::Command k_log_new_row;
extern const cli::Command k_log_render_row;
extern const cli::Command k_log_stamp_row;
extern const cli::Command k_log_import_row;
extern const cli::Command k_log_show_row;
extern const cli::Command k_log_summary_row;
extern const cli::Command k_log_context_row;
extern const cli::Command k_policy_show_row;
extern const cli::Command k_policy_test_row;
extern const cli::Command k_policy_simulate_row;
extern const cli::Command k_prompts_list_row;
extern const cli::Command k_prompts_show_row;
extern const cli::Command k_prompts_render_row;
extern const cli::Command k_config_show_row;
extern const cli::Command k_config_init_row;
extern const cli::Command k_init_marin_row;
extern const cli::Command k_doctor_row;
extern const cli::Command k_completion_row;
extern const cli::Command k_complete_values_row;
extern const cli::Command k_docs_row;
extern const cli::Command k_kernel_host_row;
extern const cli::Command k_dev_tpu_holder_row;
extern const cli::Command k_local_supervisor_row;

}  // namespace gdnctl::commands
