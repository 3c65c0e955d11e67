#include "commands/table.h"

#include "loop/perf/gates.h"
#include "target/target.h"

namespace gdnctl::commands {

namespace {

constexpr Rows (*k_families[])() = {
    target_job_commands,  ray_job_commands,      sweep_commands,          cluster_commands,   dev_tpu_hold_commands,
    dev_tpu_job_commands, dev_tpu_host_commands, trace_commands,          hf_trace_commands,  wandb_trace_commands,
    oracle_commands,      block_size_commands,   loop_commands,           loop_view_commands, loop_clean_commands,
    evolve_view_commands, evolve_judge_commands, evolve_control_commands, lint_commands,      log_write_commands,
    log_read_commands,    policy_commands,       prompt_commands,         config_commands,    checkout_commands,
    doctor_commands,      completion_commands,   child_commands};

constexpr cli::Group k_groups[] = {
    {"",
     "test, time and optimise Gated DeltaNet kernels",
     "gdnctl ray-test --cluster local",
     "test the target on this machine",
     {"doctor", "docs/reference/cli-reference.md", "docs/jobs.md"}},
    {"job",
     "run the target's jobs, and follow, list and stop them",
     "gdnctl job test --cluster marin --tpu auto",
     "test the target on an Iris cluster; the commands are ray-test, ray-profile and so on under another name",
     {"cluster check", "docs/jobs.md", "docs/iris.md"}},
    {"loop",
     "run a coding agent again and again, and see what came of it",
     "gdnctl loop status --watch",
     "follow the loop; the commands are codex-loop, loop-status and so on under another name",
     {"evolve log", "docs/codex-loop.md", "docs/loop-reports.md"}},
    {"cluster",
     "list clusters and check whether they answer",
     "gdnctl cluster check marin",
     "cluster file, address and login, and what the cluster says",
     {"ray-test", "docs/ray.md", "docs/iris.md"}},
    {"sweep",
     "time a kernel at many block sizes and compare the results",
     "gdnctl sweep report tune.log --device-kind 'TPU v5'",
     "rates of one chip, failures and the best block sizes",
     {"ce-infer", "docs/sweeps.md"}},
    {"oracle",
     "judge and time kernels against the exact result",
     "gdnctl oracle verify gdn --kernel src:kernel.c",
     "judge your own kernel on every case",
     {"ray-test", "docs/oracle.md", "docs/writing-a-kernel.md"}},
    {"trace",
     "analyse profiler traces: hotspots, steps, kernels, comparisons",
     "gdnctl trace report profile/",
     "where the time of a step goes, and what to try",
     {"hf-download-trace", "wandb-download-trace", "docs/traces.md"}},
    {"log",
     "keep the running log of iterations and its records",
     "gdnctl log show last",
     "the entry of the last iteration",
     {"lint-log", "docs/running-log.md"}},
    {"evolve",
     "inspect a population of candidates, and promote the best",
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
     "install what a checkout needs",
     "gdnctl init marin --dry-run",
     "what would be written, as a diff",
     {"doctor", "docs/prompts.md"}},
    {"config",
     "show and create the configuration",
     "gdnctl config show",
     "which settings are in force here, and why",
     {"doctor", "docs/configuration.md"}},
};

// What comes to mind before the name of the command does. The second word of a single command ("verify") needs no row.
constexpr cli::Word k_words[] = {
    {"test", "ray-test"},
    {"submit", "ray-test"},
    {"run", "ray-test"},
    {"run", "codex-loop"},
    {"profile", "ray-profile"},
    {"list", "ray-list"},
    {"ls", "ray-list"},
    {"jobs", "ray-list"},
    {"ps", "ray-list"},
    {"logs", "ray-logs"},
    {"tail", "ray-logs"},
    {"wait", "ray-wait"},
    {"stop", "ray-stop"},
    {"stop", "evolve stop"},
    {"cancel", "ray-stop"},
    {"kill", "ray-stop"},
    {"tune", "sweep run"},
    {"autotune", "sweep run"},
    {"tpu", "dev-tpu-allocate"},
    {"allocate", "dev-tpu-allocate"},
    {"hold", "dev-tpu-allocate"},
    {"release", "dev-tpu-release"},
    {"connect", "dev-tpu-connect"},
    {"ssh", "dev-tpu-connect"},
    {"exec", "dev-tpu-execute"},
    {"execute", "dev-tpu-execute"},
    {"watch", "dev-tpu-watch"},
    {"watch", "loop-status"},
    {"analyze", "trace report"},
    {"analyse", "trace report"},
    {"download", "hf-download-trace"},
    {"download", "wandb-download-trace"},
    {"check", "oracle verify"},
    {"check", "lint-log"},
    {"judge", "oracle verify"},
    {"benchmark", "oracle bench"},
    {"time", "oracle bench"},
    {"diff", "trace diff"},
    {"diff", "evolve diff"},
    {"compare", "oracle compare"},
    {"compare", "trace diff"},
    {"climb", "codex-loop"},
    {"agent", "codex-loop"},
    {"optimize", "codex-loop"},
    {"optimise", "codex-loop"},
    {"loop start", "codex-loop"},
    {"loop resume", "codex-loop"},
    {"resume", "codex-loop"},
    {"status", "loop-status"},
    {"explain", "loop-explain"},
    {"why", "loop-explain"},
    {"report", "loop-report"},
    {"report", "trace report"},
    {"attempts", "evolve log"},
    {"lint", "lint-log"},
    {"log check", "lint-log"},
    {"history", "log summary"},
    {"setup", "doctor"},
    {"install", "init marin"},
    {"settings", "config show"},
    {"targets", "config show"},
    {"presets", "prompts list"},
    {"clusters", "cluster list"},
    {"version", "--version"},
};

}  // namespace

cli::Table table() {
    cli::Table all({}, k_groups);
    all.words = k_words;
    for (const auto& rows : k_families) {
        for (const cli::Command& row : rows()) all.commands.emplace_back(row);
    }
    all.check_target = [](const Config& config, const std::filesystem::path& root) -> Status {
        GDNCTL_TRY_ASSIGN(const Target target, select_target(config, root));
        return loop::check_gates(target);
    };
    return all;
}

}  // namespace gdnctl::commands
