// Every command of gdnctl, in the order of the overview page.
#pragma once

#include <span>

#include "cli/command.h"

namespace gdnctl::commands {

cli::Table table();

// The rows of each family, defined in the source of its commands. A row with an empty heading is hidden. Headings in
// use: "Running log", "Jobs", "Dev TPUs", "Traces", "Oracle", "Loop", "Setup".
using Rows = std::span<const cli::Command>;

Rows target_job_commands();
Rows ray_job_commands();
Rows sweep_commands();
Rows cluster_commands();
Rows dev_tpu_hold_commands();
Rows dev_tpu_job_commands();
Rows dev_tpu_host_commands();
Rows trace_commands();
Rows hf_trace_commands();
Rows wandb_trace_commands();
Rows oracle_commands();
Rows block_size_commands();
Rows loop_commands();
Rows loop_view_commands();
Rows loop_clean_commands();
Rows evolve_view_commands();
Rows evolve_judge_commands();
Rows evolve_control_commands();
Rows lint_commands();
Rows log_write_commands();
Rows log_read_commands();
Rows policy_commands();
Rows prompt_commands();
Rows config_commands();
Rows checkout_commands();
Rows doctor_commands();
Rows completion_commands();
Rows child_commands();

}  // namespace gdnctl::commands
