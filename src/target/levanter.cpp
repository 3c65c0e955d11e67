// Commands and environment for a checkout that contains levanter: its pytest suites and a short profiled training run.
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/text.h"
#include "target/builtin.h"

namespace gdnctl::detail {

namespace {

// Parity with the reference implementation drifts with newer torch versions, so the version is pinned.
constexpr std::string_view k_torch = "torch==2.9.0+cpu";

constexpr std::string_view k_device_check =
    "import json, sys, jax; b = jax.default_backend(); "
    "print(\"GDNCTL_DEVICE \" + json.dumps({\"backend\": b, \"count\": jax.device_count()}, separators=(\",\", "
    "\":\")), "
    "flush=True); ";
// Without a TPU, the suites would pass on the CPU and prove nothing.
constexpr std::string_view k_require_tpu =
    "b == \"tpu\" or sys.exit(\"gdnctl: JAX runs on \" + b + \", not on a TPU (--allow-cpu accepts that)\")";

struct Step {
    std::string_view name;
    std::string command;
};

// A login shell's script that stops at the first failing step and names it in the last line of the log, which becomes
// part of the job's message. It avoids single quotes because it is quoted as a whole.
std::string script(const std::string& before, const std::vector<Step>& steps) {
    std::string remote =
        "set -e; step=start; "
        "ended() { rc=$?; [ $rc = 0 ] || echo \"gdnctl: failed step: $step (exit status $rc)\"; }; trap ended EXIT; " +
        std::string(find_uv()) +
        "command -v uv >/dev/null || { step=\"find uv\"; echo \"gdnctl: uv is not in the PATH of a login shell "
        "(bash -l) on $(uname -n), nor in ~/.local/bin\"; "
        "echo \"hint: install it there, for example with: pip install uv\"; exit 127; }; " +
        before;
    for (const Step& step : steps) remote += fmt::format("; step=\"{}\"; {}", step.name, step.command);
    return "bash -lc " + text::shell_quote(remote);
}

// After this, `uv run` in the script and its children leaves the environment unchanged: another sync would replace the
// pinned torch by the locked one.
constexpr std::string_view k_no_more_sync = "; export UV_NO_SYNC=1";

// The other indexes, links, backends and constraints that a machine has set for uv, in its environment or in a
// configuration file, outrank --index-url or exclude the pinned version.
constexpr std::string_view k_only_this_index =
    "env -u UV_INDEX -u UV_DEFAULT_INDEX -u UV_INDEX_URL -u UV_EXTRA_INDEX_URL -u UV_FIND_LINKS -u UV_NO_INDEX "
    "-u UV_TORCH_BACKEND -u UV_EXCLUDE -u UV_EXCLUDE_NEWER -u UV_CONSTRAINT -u UV_OVERRIDE -u UV_REQUIRE_HASHES "
    "-u UV_CONFIG_FILE UV_NO_CONFIG=1 ";

Step torch_install(const Target& target, std::string_view python) {
    return {"install torch", fmt::format("{}uv pip install --python {} --force-reinstall --index-url {} {}",
                                         k_only_this_index, python, text::shell_quote(target.torch_index), k_torch)};
}

// On this machine a login shell may activate the user's own environment, which a job must not change. Only what the job
// was submitted with counts: it is passed to the script as its arguments.
constexpr std::string_view k_given = " gdnctl \"${VIRTUAL_ENV:-}\" \"${UV_PROJECT_ENVIRONMENT:-}\"";
constexpr std::string_view k_use_given =
    "VIRTUAL_ENV=$1; [ -n \"$1\" ] || unset VIRTUAL_ENV; UV_PROJECT_ENVIRONMENT=$2; ";

std::string tests_of(TestSelection::Suite suite) {
    switch (suite) {
        case TestSelection::Suite::kernels: return "tests/test_gdn_kernels.py";
        case TestSelection::Suite::layer: return "tests/test_gdn_layer.py";
        case TestSelection::Suite::both: break;
    }
    return "tests/test_gdn_kernels.py tests/test_gdn_layer.py";
}

JobCommand with_defaults(const TargetJob& job) {
    JobCommand command;
    command.env = job.env;
    command.resources = job.resources;
    command.timeout_s = job.timeout_s;
    return command;
}

void put(EnvList& env, std::string_view name, const std::optional<std::int64_t>& value) {
    if (value) env.emplace_back(name, std::to_string(*value));
}

}  // namespace

Result<JobCommand> levanter_test(const Target& target, const TestSelection& selection) {
    const auto words = text::shell_split(selection.pytest_args);
    if (!words) {
        return fail(ErrorKind::usage, "--pytest-args has a quote that is not closed: " + selection.pytest_args);
    }
    std::string device(k_device_check);
    if (!selection.allow_cpu) device += k_require_tpu;

    // All steps use one environment: the active one, or the project's, which uv creates on a fresh worker.
    const std::string workdir = text::shell_quote(target.test->workdir);
    const std::string before =
        std::string(target.here ? k_use_given : "") +
        "venv=${VIRTUAL_ENV:-${UV_PROJECT_ENVIRONMENT:-.venv}}; case $venv in /*) ;; *) venv=$PWD/$venv ;; esac; "
        "export UV_PROJECT_ENVIRONMENT=$venv; cd " +
        workdir + " || { step=\"find \"" + workdir + "\", which is not there\"; exit 1; }";
    const std::string sync =
        "if [ -n \"${VIRTUAL_ENV:-}\" ]; then uv sync --active --extra=tpu --group test; "
        "else uv sync --extra=tpu --group test; fi" +
        std::string(k_no_more_sync);
    constexpr std::string_view k_python = "\"$venv/bin/python\"";
    std::string pytest = "uv run pytest " + tests_of(selection.suite) + " -v";
    if (!words->empty()) pytest += " " + text::shell_join(*words);

    JobCommand command = with_defaults(*target.test);
    command.workdir = target.test->workdir;
    command.entrypoint =
        script(before, {{"uv sync", sync},
                        torch_install(target, k_python),
                        {"install transformers", fmt::format("uv pip install --python {} transformers", k_python)},
                        {"JAX device check", fmt::format("{} -c {}", k_python, text::shell_quote(device))},
                        {"pytest", pytest}});
    if (target.here) command.entrypoint += k_given;
    return command;
}

Result<JobCommand> levanter_profile(const Target& target, const ProfileSettings& s) {
    JobCommand command = with_defaults(*target.profile);
    EnvList& env = command.env;
    env.emplace_back("WANDB_MODE", s.wandb_mode);
    env.emplace_back("GDN_PROFILE_SIZE", s.size);
    env.emplace_back("GDN_PROFILE_NUM_STEPS", std::to_string(s.num_steps));
    env.emplace_back("GDN_PROFILE_PROFILE_START_STEP", std::to_string(s.profile_start_step));
    env.emplace_back("GDN_PROFILE_PROFILE_NUM_STEPS", std::to_string(s.profile_num_steps));
    env.emplace_back("GDN_PROFILE_RUN_NAME_PREFIX", s.run_name_prefix);
    if (!s.tpu.empty()) env.emplace_back("GDN_PROFILE_TPU_VARIANT", s.tpu);
    put(env, "GDN_PROFILE_BATCH_SIZE", s.batch_size);
    put(env, "GDN_PROFILE_CHUNK_SIZE", s.chunk_size);
    put(env, "GDN_PROFILE_SEGMENT_SIZE", s.segment_size);
    put(env, "GDN_PROFILE_GDN_LAYERS_PER_BLOCK", s.gdn_layers_per_block);
    put(env, "GDN_PROFILE_GDN_BLOCK_SIZE", s.gdn_block_size);
    if (s.all_transformer) env.emplace_back("GDN_PROFILE_ALL_TRANSFORMER", "1");
    if (s.ce_implementation != "auto") env.emplace_back("LEVANTER_FUSED_CE_IMPLEMENTATION", s.ce_implementation);
    env.emplace_back("LEVANTER_PALLAS_TPU_BWD_USE_XLA_STREAMING_BENCH", s.ce_bwd_mode == "xla_streaming" ? "1" : "0");
    env.insert(env.end(), s.extra_env.begin(), s.extra_env.end());

    std::string run =
        ".venv/bin/python -m experiments.speedrun.hackable_transformer_gdn.tiny_profile --force_run_failed true";
    if (s.dry_run) run += " --dry_run true";
    command.entrypoint =
        script("unset VIRTUAL_ENV; export UV_PROJECT_ENVIRONMENT=.venv",
               {{"uv sync", std::string(s.on_dev_tpu ? "uv sync --all-packages --extra=tpu --python=3.11" : "uv sync") +
                                std::string(k_no_more_sync)},
                torch_install(target, ".venv/bin/python"),
                {"remove torchvision", "(uv pip uninstall --python .venv/bin/python torchvision || true)"},
                {"profiled run", run}});
    return command;
}

// Adds the packages of the checkout to the path, as its own launcher does.
EnvList levanter_cluster_env() {
    return {{"FRAY_CLUSTER_SPEC", "ray"},
            {"PYTHONPATH",
             "experiments:lib/fray/src:lib/haliax/src:lib/iris/src:lib/levanter/src:lib/marin/src:lib/zephyr/src"}};
}

}  // namespace gdnctl::detail

namespace gdnctl {

std::string_view find_uv() { return "command -v uv >/dev/null || PATH=$PATH:$HOME/.local/bin; "; }

}  // namespace gdnctl
