// Private to target/: the targets that need no configuration, and how a table overrides one.
#include "target/target.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "core/redact.h"
#include "core/text.h"

namespace gdnctl::detail {

Result<JobCommand> levanter_profile(const Target& target, const ProfileSettings& settings);
JobCommand levanter_oracle(const Target& target, const std::string& line);
Result<JobCommand> levanter_test(const Target& target, const TestSelection& selection, const std::string& oracle);

}  // namespace gdnctl::detail

// Commands and environment for a checkout that contains levanter: its pytest suites and a short profiled training run.
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

// All steps use one environment: the active one, or the project's, which uv creates on a fresh worker.
std::string enter_project(const Target& target) {
    const std::string workdir = text::shell_quote(target.test->workdir);
    return std::string(target.here ? k_use_given : "") +
           "venv=${VIRTUAL_ENV:-${UV_PROJECT_ENVIRONMENT:-.venv}}; "
           "case $venv in /*) ;; *) venv=$PWD/$venv ;; esac; export UV_PROJECT_ENVIRONMENT=$venv; cd " +
           workdir + " || { step=\"find the folder \"" + workdir + "\"\"; exit 1; }";
}

std::string sync_step() {
    return "if [ -n \"${VIRTUAL_ENV:-}\" ]; then uv sync --active --extra=tpu --group test; "
           "else uv sync --extra=tpu --group test; fi" +
           std::string(k_no_more_sync);
}

}  // namespace

JobCommand levanter_oracle(const Target& target, const std::string& line) {
    JobCommand command = with_defaults(*target.test);
    command.workdir = target.test->workdir;
    command.entrypoint =
        script("root=$PWD; " + enter_project(target), {{"uv sync", sync_step()}, {"oracle", "cd \"$root\"; " + line}});
    if (target.here) command.entrypoint += k_given;
    return command;
}

Result<JobCommand> levanter_test(const Target& target, const TestSelection& selection, const std::string& oracle) {
    const auto words = text::shell_split(selection.pytest_args);
    if (!words) {
        return fail(ErrorKind::usage, "--pytest-args has a quote that is not closed: " + selection.pytest_args);
    }
    std::string device(k_device_check);
    if (!selection.allow_cpu) device += k_require_tpu;

    const std::string before = (oracle.empty() ? "" : "root=$PWD; ") + enter_project(target);
    constexpr std::string_view k_python = "\"$venv/bin/python\"";
    std::string pytest = "uv run pytest " + tests_of(selection.suite) + " -v";
    if (!words->empty()) pytest += " " + text::shell_join(*words);

    JobCommand command = with_defaults(*target.test);
    command.workdir = target.test->workdir;
    std::vector<Step> steps = {{"uv sync", sync_step()}};
    // It needs nothing else, and a kernel that is wrong is known a minute earlier.
    if (!oracle.empty()) steps.push_back({"oracle", "(cd \"$root\"; " + oracle + ")"});
    steps.push_back(torch_install(target, k_python));
    steps.push_back({"install transformers", fmt::format("uv pip install --python {} transformers", k_python)});
    steps.push_back({"JAX device check", fmt::format("device=$({} -c {}) || {{ echo \"$device\"; exit 1; }}; "
                                                     "echo \"$device\"",
                                                     k_python, text::shell_quote(device))});
    // A scheduler may lose lines in a flood of output, but not the last one.
    steps.push_back({"pytest", pytest + "; echo \"$device\""});
    command.entrypoint = script(before, steps);
    if (target.here) command.entrypoint += k_given;
    return command;
}

// The trace of this run goes to the job's output folder, if it has one.
constexpr std::string_view k_store_trace =
    "[ -z \"${GDNCTL_OUTPUT_DIR:-}\" ] || find . -path \"*/plugins/profile/*\" -type f -newer \"$began\" "
    "-exec cp --parents -t \"$GDNCTL_OUTPUT_DIR\" {} + || echo \"gdnctl: the trace could not be stored\"";

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
        script("unset VIRTUAL_ENV; export UV_PROJECT_ENVIRONMENT=.venv; began=$(mktemp)",
               {{"uv sync", std::string(s.on_dev_tpu ? "uv sync --all-packages --extra=tpu --python=3.11" : "uv sync") +
                                std::string(k_no_more_sync)},
                torch_install(target, ".venv/bin/python"),
                {"remove torchvision", "(uv pip uninstall --python .venv/bin/python torchvision || true)"},
                {"profiled run", run},
                {"store the trace", std::string(k_store_trace)}});
    return command;
}

// Adds the packages of the checkout to the path, as its own launcher does.
EnvList levanter_cluster_env(PlaceKind kind) {
    EnvList env;
    if (kind == PlaceKind::ray) env.emplace_back("FRAY_CLUSTER_SPEC", "ray");
    env.emplace_back("PYTHONPATH",
                     "experiments:lib/fray/src:lib/haliax/src:lib/iris/src:lib/levanter/src:lib/marin/src:"
                     "lib/zephyr/src");
    return env;
}

}  // namespace gdnctl::detail

namespace gdnctl {

std::string_view find_uv() { return "command -v uv >/dev/null || PATH=$PATH:$HOME/.local/bin; "; }

}  // namespace gdnctl

namespace gdnctl::detail {

extern const std::string_view k_example_kernel, k_linear_ce_example_kernel;  // example_kernel.cpp.in

namespace {

Target marin() {
    Target t;
    t.name = "marin";
    t.style = TargetStyle::levanter;
    t.root_marker = "lib/levanter/src/levanter/layers/gated_deltanet.py";
    t.kernel = {t.root_marker};
    t.protected_paths = {"lib/levanter/tests/test_gdn_kernels.py", "lib/levanter/tests/test_gdn_layer.py",
                         "experiments/speedrun/hackable_transformer_gdn/tiny_profile.py", "scripts/gdn/**",
                         "gdnctl.toml"};
    t.log = "lib/levanter/.agents/projects/gdn_pallas_tpu_hillclimb.md";
    t.prompt = "scripts/gdn/codex_iteration_prompt.md";
    t.torch_index = "https://download.pytorch.org/whl/cpu";

    TargetJob test;
    test.env = {{"EQX_ON_ERROR", "nan"}, {"WANDB_MODE", "offline"}};
    test.workdir = "lib/levanter";
    test.evidence = {87, 2};
    t.test = test;

    TargetOracle oracle;
    oracle.kernel = "py:levanter";
    oracle.python = {"uv", "run", "--directory", "lib/levanter", "python"};
    t.oracle = oracle;

    TargetJob profile;
    profile.env = {{"EQX_ON_ERROR", "nan"}};
    t.profile = profile;

    // nan and inf match as well, so that the value of an earlier step does not stand in for them.
    t.metric = TargetMetric{"throughput/mfu", "%", false,
                            R"(regex:throughput/mfu[^0-9eE+\-]*?([0-9eE+\-][0-9.eE+\-]*|(?i:nan|inf(?:inity)?)\b))"};
    return t;
}

// A kernel in C on this machine, judged and timed by our own oracle. `kernel` is the one of this binary that stands in
// for it in other places, where it needs no file and no compiler.
Target on_cpu(std::string name, std::string log, const char* op, const char* kernel, const char* timed_kernel,
              const std::vector<std::string>& sizes, std::string_view file) {
    const auto command = [op](const char* verb, std::string chosen, const std::vector<std::string>& more) {
        std::vector<std::string> words = {"gdnctl", "oracle", verb, op, "--kernel", std::move(chosen)};
        words.insert(words.end(), more.begin(), more.end());
        return words;
    };
    Target t;
    t.name = std::move(name);
    t.log = std::move(log);
    t.protected_paths = {"gdnctl.toml"};
    TargetJob test;
    test.argv = command("verify", kernel, {});
    test.argv_here = command("verify", "src:{files}/kernel.c", {});
    t.test = test;
    TargetJob profile;
    profile.argv = command("bench", timed_kernel, sizes);
    profile.argv_here = command("bench", "src:{files}/kernel.c", sizes);
    profile.timeout_s = 600;
    t.profile = profile;
    t.files = {{"kernel.c", file}};
    return t;
}

Target cpu_gdn() {
    Target t = on_cpu("cpu-gdn", "gdn-log.md", "gdn", "builtin:chunk", "builtin:fused", {"--json"}, k_example_kernel);
    t.metric = TargetMetric{"gdn/forward_ms", "ms", true, "json:/forward/median_ms"};
    t.floor = "json:/forward/floor_ms";
    return t;
}

Target cpu_ce() {
    Target t = on_cpu("cpu-ce", "linear-ce-log.md", "linear-ce", "builtin:fused", "builtin:fused",
                      {"--batch", "64", "--hidden", "128", "--vocab", "4000", "--json"}, k_linear_ce_example_kernel);
    t.metric = TargetMetric{"linear-ce/gradients_ms", "ms", true, "json:/gradients/median_ms"};
    return t;
}

}  // namespace

// In the order in which a checkout is compared with their root markers; the last one is the embedded default.
const std::vector<Target>& builtin_targets() {
    static const std::vector<Target> targets = {marin(), cpu_ce(), cpu_gdn()};
    return targets;
}

namespace {

// "targets.NAME.key" and where it was set, for messages.
struct Place {
    std::string path;
    Place at(std::string_view key) const { return {path + "." + std::string(key)}; }
};

tl::unexpected<Error> wrong(const Place& place, const ConfigValue& value, std::string_view wanted) {
    return fail(ErrorKind::config, value.origin.text() + ": " + place.path + " must be " + std::string(wanted));
}

Status check_keys(const Place& place, const ConfigTable& table, std::span<const std::string_view> known) {
    for (const auto& [key, value] : table) {
        if (std::find(known.begin(), known.end(), key) != known.end()) continue;
        const std::vector<std::string> names(known.begin(), known.end());
        const auto near = text::nearest(key, names);
        return fail(ErrorKind::config, value.origin.text() + ": unknown key " + place.at(key).path,
                    near ? "did you mean `" + *near + "`?" : "known keys: " + text::join(names, ", "));
    }
    return {};
}

const ConfigValue* find(const ConfigTable& table, std::string_view key) {
    const auto it = table.find(key);
    return it == table.end() ? nullptr : &it->second;
}

Status read_string(const Place& place, const ConfigTable& table, std::string_view key, std::string& into) {
    const ConfigValue* value = find(table, key);
    if (value == nullptr) return {};
    const std::string* s = value->as_string();
    if (s == nullptr) return wrong(place.at(key), *value, "a string");
    into = *s;
    return {};
}

Result<std::vector<std::string>> strings_of(const Place& place, const ConfigValue& value) {
    std::vector<std::string> out;
    if (const std::string* one = value.as_string()) {
        out.push_back(*one);
        return out;
    }
    const ConfigArray* array = value.as_array();
    if (array == nullptr) return wrong(place, value, "a string or a list of strings");
    for (const ConfigValue& item : *array) {
        const std::string* s = item.as_string();
        if (s == nullptr) return wrong(place, item, "a list of strings");
        out.push_back(*s);
    }
    return out;
}

Status read_strings(const Place& place, const ConfigTable& table, std::string_view key,
                    std::vector<std::string>& into) {
    const ConfigValue* value = find(table, key);
    if (value == nullptr) return {};
    GDNCTL_TRY_ASSIGN(into, strings_of(place.at(key), *value));
    return {};
}

Status read_count(const Place& place, const ConfigTable& table, std::string_view key,
                  std::optional<std::int64_t>& into) {
    const ConfigValue* value = find(table, key);
    if (value == nullptr) return {};
    const auto* number = std::get_if<std::int64_t>(&value->value);
    if (number == nullptr || *number < 0) return wrong(place.at(key), *value, "a whole number, 0 or more");
    into = *number;
    return {};
}

Result<const ConfigTable*> table_at(const Place& place, const ConfigTable& table, std::string_view key) {
    const ConfigValue* value = find(table, key);
    if (value == nullptr) return nullptr;
    const ConfigTable* inner = value->as_table();
    if (inner == nullptr) return wrong(place.at(key), *value, "a table");
    return inner;
}

Status read_env(const Place& place, const ConfigTable& table, EnvList& into) {
    GDNCTL_TRY_ASSIGN(const ConfigTable* env, table_at(place, table, "env"));
    if (env == nullptr) return {};
    into.clear();
    for (const auto& [name, value] : *env) {
        const std::string* s = value.as_string();
        if (s == nullptr) return wrong(place.at("env").at(name), value, "a string");
        into.emplace_back(name, *s);
    }
    return {};
}

Status read_resources(const Place& place, const ConfigTable& table, std::map<std::string, double>& into) {
    GDNCTL_TRY_ASSIGN(const ConfigTable* resources, table_at(place, table, "resources"));
    if (resources == nullptr) return {};
    into.clear();
    for (const auto& [name, value] : *resources) {
        const auto* whole = std::get_if<std::int64_t>(&value.value);
        const auto* real = std::get_if<double>(&value.value);
        const double amount = whole != nullptr ? static_cast<double>(*whole) : real != nullptr ? *real : -1.0;
        if (!(amount >= 0)) return wrong(place.at("resources").at(name), value, "a number, 0 or more");
        into.emplace(name, amount);
    }
    return {};
}

// A job runs in a copy of the repository, so a folder outside of it does not exist there.
Status read_workdir(const Place& place, const ConfigTable& table, std::string& into) {
    GDNCTL_TRY(read_string(place, table, "workdir", into));
    const auto path = std::filesystem::path(into).lexically_normal();
    const bool leads_out = path.is_absolute() || (!path.empty() && *path.begin() == "..");
    if (!leads_out) return {};
    return wrong(place.at("workdir"), *find(table, "workdir"), "a folder of the repository, relative to its root");
}

constexpr std::array<std::string_view, 8> k_job_keys = {"argv",      "env",      "workdir", "resources",
                                                        "timeout_s", "evidence", "trace",   "trace_device"};
constexpr std::size_t k_trace_keys = 2;  // the last ones, which only a profile has
constexpr std::string_view k_trace_devices[] = {"cpu", "v4", "v5e", "v5p", "v6e", "tpu7x"};
constexpr std::array<std::string_view, 2> k_evidence_keys = {"passed_min", "skipped_max"};

Status read_trace_keys(const Place& place, const ConfigTable& table, TargetJob& job) {
    GDNCTL_TRY(read_string(place, table, "trace", job.trace));
    GDNCTL_TRY(read_string(place, table, "trace_device", job.trace_device));
    if (const ConfigValue* trace = find(table, "trace")) {
        const auto path = std::filesystem::path(job.trace).lexically_normal();
        const bool leads_out = path.is_absolute() || path.empty() || path == "." || *path.begin() == "..";
        const bool no_prefix = job.trace.starts_with("hf:") && std::count(job.trace.begin(), job.trace.end(), '/') < 2;
        if (leads_out || no_prefix) {
            return wrong(place.at("trace"), *trace,
                         "a path below the profile's workdir, \"wandb\" or \"hf:NAMESPACE/NAME/PREFIX\"");
        }
        if (job.trace_is_file()) job.trace = (path.has_filename() ? path : path.parent_path()).string();
    }
    const ConfigValue* device = find(table, "trace_device");
    const auto known = std::find(std::begin(k_trace_devices), std::end(k_trace_devices), job.trace_device);
    if (device == nullptr || known != std::end(k_trace_devices)) return {};
    const std::vector<std::string> names(std::begin(k_trace_devices), std::end(k_trace_devices));
    return wrong(place.at("trace_device"), *device, "one of " + text::join(names, ", "));
}

Status read_job(const Place& outer, const ConfigTable& target, std::string_view key, std::optional<TargetJob>& into,
                bool& own_argv) {
    const ConfigValue* value = find(target, key);
    if (value == nullptr) return {};
    const Place place = outer.at(key);
    const ConfigTable* table = value->as_table();
    // A command of its own replaces the built-in job completely.
    const bool replaced = table == nullptr || find(*table, "argv") != nullptr;
    TargetJob job = replaced ? TargetJob{} : into.value_or(TargetJob{});
    if (table == nullptr) {
        GDNCTL_TRY_ASSIGN(job.argv, strings_of(place, *value));
    } else {
        const std::span<const std::string_view> keys = k_job_keys;
        GDNCTL_TRY(check_keys(place, *table, key == "profile" ? keys : keys.first(keys.size() - k_trace_keys)));
        GDNCTL_TRY(read_strings(place, *table, "argv", job.argv));
        GDNCTL_TRY(read_env(place, *table, job.env));
        GDNCTL_TRY(read_workdir(place, *table, job.workdir));
        GDNCTL_TRY(read_resources(place, *table, job.resources));
        GDNCTL_TRY(read_count(place, *table, "timeout_s", job.timeout_s));
        GDNCTL_TRY(read_trace_keys(place, *table, job));
        GDNCTL_TRY_ASSIGN(const ConfigTable* evidence, table_at(place, *table, "evidence"));
        if (evidence != nullptr) {
            const Place at = place.at("evidence");
            GDNCTL_TRY(check_keys(at, *evidence, k_evidence_keys));
            job.evidence = {};
            GDNCTL_TRY(read_count(at, *evidence, "passed_min", job.evidence.passed_min));
            GDNCTL_TRY(read_count(at, *evidence, "skipped_max", job.evidence.skipped_max));
        }
    }
    if (replaced) {
        if (job.argv.empty() || job.argv.front().empty()) return wrong(place, *value, "a command with its arguments");
        if (value->as_string() != nullptr && job.argv.front().find_first_of(" \t\n") != std::string::npos) {
            return wrong(place, *value, R"(a list of words, as ["sh", "-c", "COMMAND LINE"])");
        }
        own_argv = true;
    }
    into = std::move(job);
    return {};
}

constexpr std::string_view k_trace_step = "trace:step", k_trace_kernel = "trace:kernel:";
constexpr std::array<std::string_view, 4> k_metric_keys = {"name", "better", "unit", "from"};

Status read_metric(const Place& outer, const ConfigTable& target, std::optional<TargetMetric>& into) {
    GDNCTL_TRY_ASSIGN(const ConfigTable* table, table_at(outer, target, "metric"));
    if (table == nullptr) return {};
    const Place place = outer.at("metric");
    GDNCTL_TRY(check_keys(place, *table, k_metric_keys));
    TargetMetric metric = into.value_or(TargetMetric{});
    std::string better = metric.lower_is_better ? "lower" : "higher";
    GDNCTL_TRY(read_string(place, *table, "name", metric.name));
    GDNCTL_TRY(read_string(place, *table, "from", metric.from));
    if (metric.from_trace() && find(*table, "from") != nullptr) {
        metric.unit = metric.from == k_trace_step ? "ms" : "us";
        better = "lower";
    }
    GDNCTL_TRY(read_string(place, *table, "unit", metric.unit));
    GDNCTL_TRY(read_string(place, *table, "better", better));
    const ConfigValue& whole = *find(target, "metric");
    if (better != "lower" && better != "higher") return wrong(place.at("better"), whole, "\"lower\" or \"higher\"");
    if (metric.name.empty()) return wrong(place.at("name"), whole, "given");
    const bool of_kernel = metric.from.starts_with(k_trace_kernel) && metric.from.size() > k_trace_kernel.size();
    if (!metric.from.starts_with("json:/") && !metric.from.starts_with("regex:") && metric.from != k_trace_step &&
        !of_kernel) {
        return wrong(place.at("from"), whole,
                     "\"json:/pointer\", \"regex:expression\", \"trace:step\" or \"trace:kernel:GLOB\"");
    }
    metric.lower_is_better = better == "lower";
    into = std::move(metric);
    return {};
}

constexpr std::array<std::string_view, 7> k_oracle_keys = {"op", "kernel", "python", "cases", "dtype", "set", "env"};

// "interleaved", 0.25 or true, as --set takes it.
std::optional<std::string> word_of(const ConfigValue& value) {
    if (const std::string* s = value.as_string()) return *s;
    if (const auto* whole = std::get_if<std::int64_t>(&value.value)) return std::to_string(*whole);
    if (const auto* real = std::get_if<double>(&value.value)) return fmt::format("{}", *real);
    if (const auto* flag = std::get_if<bool>(&value.value)) return std::string(*flag ? "true" : "false");
    return std::nullopt;
}

Status read_oracle(const Place& outer, const ConfigTable& target, std::optional<TargetOracle>& into) {
    GDNCTL_TRY_ASSIGN(const ConfigTable* table, table_at(outer, target, "oracle"));
    if (table == nullptr) return {};
    const Place place = outer.at("oracle");
    GDNCTL_TRY(check_keys(place, *table, k_oracle_keys));
    // Another kernel has nothing in common with the built-in one.
    TargetOracle oracle = find(*table, "kernel") != nullptr ? TargetOracle{} : into.value_or(TargetOracle{});
    GDNCTL_TRY(read_string(place, *table, "op", oracle.op));
    GDNCTL_TRY(read_string(place, *table, "kernel", oracle.kernel));
    GDNCTL_TRY(read_strings(place, *table, "python", oracle.python));
    GDNCTL_TRY(read_string(place, *table, "cases", oracle.cases));
    GDNCTL_TRY(read_string(place, *table, "dtype", oracle.dtype));
    GDNCTL_TRY(read_env(place, *table, oracle.env));
    GDNCTL_TRY_ASSIGN(const ConfigTable* sets, table_at(place, *table, "set"));
    if (sets != nullptr) oracle.sets.clear();
    for (const auto& [name, value] : sets != nullptr ? *sets : ConfigTable()) {
        const auto word = word_of(value);
        if (!word) return wrong(place.at("set").at(name), value, "a string or a number");
        oracle.sets.emplace(name, *word);
    }
    const ConfigValue& whole = *find(target, "oracle");
    if (oracle.kernel.empty()) return wrong(place.at("kernel"), whole, "given, for example \"py:levanter\"");
    if (!oracle.cases.empty() && oracle.cases != "device" && oracle.cases != "full") {
        return wrong(place.at("cases"), *find(*table, "cases"), "\"device\" or \"full\"");
    }
    for (const auto& [name, variable] : oracle.env) {
        if (!names_a_secret(name)) continue;
        return wrong(place.at("env").at(name), whole, "no secret: it would be readable on a command line");
    }
    into = std::move(oracle);
    return {};
}

constexpr std::array<std::string_view, 15> k_target_keys = {
    "root_marker", "kernel", "protected", "log",         "prompt", "presets",   "test", "profile",
    "oracle",      "metric", "validate",  "torch_index", "floor",  "kernel_op", "gates"};

Status read_floor(const Place& place, const ConfigTable& table, std::string& into) {
    GDNCTL_TRY(read_string(place, table, "floor", into));
    if (into.empty() || into.starts_with("json:/")) return {};
    return wrong(place.at("floor"), *find(table, "floor"), "\"json:/pointer\"");
}

}  // namespace

// Reads [targets.NAME] over `base`. Errors: config.
Result<Target> parse_target(Target base, const ConfigTable& table) {
    const Place place{"targets." + base.name};
    GDNCTL_TRY(check_keys(place, table, k_target_keys));
    GDNCTL_TRY(read_string(place, table, "root_marker", base.root_marker));
    GDNCTL_TRY(read_strings(place, table, "kernel", base.kernel));
    GDNCTL_TRY(read_strings(place, table, "protected", base.protected_paths));
    GDNCTL_TRY(read_string(place, table, "log", base.log));
    GDNCTL_TRY(read_string(place, table, "prompt", base.prompt));
    GDNCTL_TRY(read_strings(place, table, "presets", base.presets));
    GDNCTL_TRY(read_strings(place, table, "validate", base.validate));
    GDNCTL_TRY(read_string(place, table, "torch_index", base.torch_index));
    GDNCTL_TRY(read_floor(place, table, base.floor));
    GDNCTL_TRY(read_string(place, table, "kernel_op", base.kernel_op));
    GDNCTL_TRY(read_metric(place, table, base.metric));
    GDNCTL_TRY_ASSIGN(const ConfigTable* gates, table_at(place, table, "gates"));
    if (gates != nullptr) base.gates = *gates;

    // A command of its own replaces the generated ones; all jobs of the target then run as written.
    bool own_argv = false;
    GDNCTL_TRY(read_job(place, table, "test", base.test, own_argv));
    GDNCTL_TRY(read_job(place, table, "profile", base.profile, own_argv));
    if (own_argv) base.style = TargetStyle::argv;
    // What judges the built-in kernel says nothing of what other commands test.
    if (own_argv) base.oracle.reset();
    GDNCTL_TRY(read_oracle(place, table, base.oracle));
    if (base.profile && base.style == TargetStyle::argv && base.profile->argv.empty()) base.profile.reset();
    if (base.metric && base.metric->from_trace() && (!base.profile || base.profile->trace.empty())) {
        return fail(ErrorKind::config,
                    fmt::format("{}.metric reads {}, but its profile has no trace", place.path, base.metric->from),
                    fmt::format("add `trace = \"PATH\"` to [{}.profile]", place.path));
    }
    if (!base.test || (base.style == TargetStyle::argv && base.test->argv.empty())) {
        return fail(ErrorKind::config, place.path + " has no test",
                    "add a line such as: test = [\"gdnctl\", \"oracle\", \"verify\", \"gdn\"]");
    }
    return base;
}

}  // namespace gdnctl::detail

namespace gdnctl {

namespace {

constexpr std::string_view k_files = "{files}";

const ConfigTable* configured(const Config& config, std::string_view name) {
    const auto targets = config.root().find("targets");
    if (targets == config.root().end()) return nullptr;
    const ConfigTable* table = targets->second.as_table();
    if (table == nullptr) return nullptr;
    const auto it = table->find(name);
    return it == table->end() ? nullptr : it->second.as_table();
}

const Target* builtin(std::string_view name) {
    for (const Target& t : detail::builtin_targets()) {
        if (t.name == name) return &t;
    }
    return nullptr;
}

Result<Target> load(const Config& config, const std::string& name) {
    Target base;
    base.name = name;
    if (const Target* t = builtin(name)) base = *t;
    const ConfigTable* table = configured(config, name);
    if (table == nullptr) return base;
    return detail::parse_target(std::move(base), *table);
}

bool is_root(const Target& target, const std::filesystem::path& root) {
    std::error_code ignored;
    return !target.root_marker.empty() && std::filesystem::exists(root / target.root_marker, ignored);
}

JobCommand as_written(const TargetJob& job, std::string_view self) {
    std::vector<std::string> argv = job.argv;
    if (argv.front() == "gdnctl") argv.front() = self;
    JobCommand command = detail::with_defaults(job);
    if (!job.workdir.empty()) command.entrypoint = "cd " + text::shell_quote(job.workdir) + " && ";
    command.entrypoint += text::shell_join(argv);
    command.workdir = job.workdir;
    return command;
}

}  // namespace

std::vector<std::string> target_names(const Config& config) {
    std::vector<std::string> names;
    for (const Target& t : detail::builtin_targets()) names.push_back(t.name);
    if (const auto it = config.root().find("targets"); it != config.root().end()) {
        if (const ConfigTable* table = it->second.as_table()) {
            for (const auto& [name, value] : *table) names.push_back(name);
        }
    }
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
}

Result<Target> select_target(const Config& config, const std::filesystem::path& root) {
    GDNCTL_TRY_ASSIGN(const std::optional<std::string> wanted, config.string("target"));
    if (wanted) {
        const auto names = target_names(config);
        if (std::find(names.begin(), names.end(), *wanted) != names.end()) return load(config, *wanted);
        const auto near = text::nearest(*wanted, names);
        return fail(ErrorKind::config, config.find("target")->origin.text() + ": unknown target '" + *wanted + "'",
                    near ? "did you mean `" + *near + "`?" : "known targets: " + text::join(names, ", "));
    }
    for (const Target& t : detail::builtin_targets()) {
        if (is_root(t, root)) return load(config, t.name);
    }
    return load(config, detail::builtin_targets().back().name);
}

bool target_is_named(const Config& config) {
    const ConfigValue* named = config.find("target");
    return named != nullptr && named->origin.kind != ConfigOrigin::Kind::builtin;
}

Status check_configured_targets(const Config& config, Status (*check)(const Target&)) {
    const ConfigValue* targets = config.find("targets");
    const ConfigTable* table = targets == nullptr ? nullptr : targets->as_table();
    if (table == nullptr) return {};
    for (const auto& [name, value] : *table) {
        GDNCTL_TRY_ASSIGN(const Target target, load(config, name));
        GDNCTL_TRY(check(target));
    }
    return {};
}

std::vector<std::string> oracle_words(const TargetOracle& oracle) {
    std::vector<std::string> words = {"oracle", "verify", oracle.op, "--kernel", oracle.kernel};
    if (!oracle.cases.empty()) words.insert(words.end(), {"--cases", oracle.cases});
    if (!oracle.dtype.empty()) words.insert(words.end(), {"--dtype", oracle.dtype});
    for (const auto& [name, value] : oracle.sets) words.insert(words.end(), {"--set", name + "=" + value});
    for (const auto& [name, value] : oracle.env) words.insert(words.end(), {"--env", name + "=" + value});
    return words;
}

namespace {

std::string oracle_line(const Target& target, std::string_view there, const std::vector<std::string>& words,
                        bool python) {
    std::string line = fmt::format("{}=1 {} {}", k_verdict_line, there, text::shell_join(words));
    const std::vector<std::string> own = target.oracle ? target.oracle->python : std::vector<std::string>();
    if (!python) return line;
    if (target.style == TargetStyle::levanter && (own.empty() || own.front() == "uv")) {
        // What `uv run` would find after the sync.
        return line + " --python \"\\\"$venv\\\"/bin/python\"";
    }
    if (!own.empty()) line += " --python " + text::shell_quote(text::shell_join(own));
    return line;
}

bool in_python(const std::string& kernel) { return kernel.starts_with("py:"); }

// The program may lack the right to run, where packages are unpacked.
std::string sent_along(const std::string& line, std::string_view there) {
    return there.starts_with('.') ? fmt::format("chmod +x {} && {}", there, line) : line;
}

}  // namespace

JobCommand oracle_command(const Target& target, std::string_view there, const std::vector<std::string>& words,
                          bool python) {
    const std::string line = sent_along(oracle_line(target, there, words, python), there);
    if (target.style == TargetStyle::levanter && target.test) return detail::levanter_oracle(target, line);
    JobCommand command;
    if (target.test) command = detail::with_defaults(*target.test);
    command.entrypoint = line;
    return command;
}

Result<JobCommand> test_command(const Target& target, const TestSelection& selection, std::string_view self,
                                std::string_view there) {
    using Oracle = TestSelection::Oracle;
    if (!target.test) return fail(ErrorKind::usage, "target '" + target.name + "' has no test");
    std::string oracle;
    if (selection.oracle != Oracle::off) {
        if (!target.oracle) {
            return fail(ErrorKind::usage, "target '" + target.name + "' has no oracle",
                        "add [targets." + target.name + ".oracle] with a kernel to gdnctl.toml");
        }
        const auto words = oracle_words(*target.oracle);
        const bool python = in_python(target.oracle->kernel);
        if (selection.oracle == Oracle::alone) return oracle_command(target, there, words, python);
        oracle = sent_along(oracle_line(target, there, words, python), there);
    }
    if (target.style == TargetStyle::levanter) return detail::levanter_test(target, selection, oracle);
    if (!text::trim(selection.pytest_args).empty()) {
        return fail(ErrorKind::usage, "target '" + target.name + "' does not accept --pytest-args",
                    "its test is run as written: " + text::shell_join(target.test->argv));
    }
    if (selection.suite != TestSelection().suite) {
        return fail(ErrorKind::usage, "target '" + target.name + "' has no suites to choose from with --tests",
                    "its test is run as written: " + text::shell_join(target.test->argv));
    }
    JobCommand command = as_written(*target.test, self);
    if (!oracle.empty()) command.entrypoint = oracle + " && " + command.entrypoint;
    return command;
}

Result<JobCommand> profile_command(const Target& target, const ProfileSettings& settings, std::string_view self) {
    if (!target.profile) {
        return fail(ErrorKind::usage, "target '" + target.name + "' has no profile",
                    "add [targets." + target.name + ".profile] with an argv to gdnctl.toml");
    }
    if (target.style == TargetStyle::levanter) return detail::levanter_profile(target, settings);
    ProfileSettings recipe = settings;
    recipe.tpu = ProfileSettings().tpu;
    recipe.dry_run = recipe.on_dev_tpu = false;
    if (recipe != ProfileSettings()) {
        return fail(ErrorKind::usage, "target '" + target.name + "' does not accept options for the model and its run",
                    "its profile runs as it is written: " + text::shell_join(target.profile->argv));
    }
    return as_written(*target.profile, self);
}

bool uses_files(const Target& target) {
    const auto here = [](const std::optional<TargetJob>& job) { return job && !job->argv_here.empty(); };
    return here(target.test) || here(target.profile);
}

Target with_files_in(Target target, const std::filesystem::path& folder) {
    for (auto* job : {&target.test, &target.profile}) {
        if (!*job || (*job)->argv_here.empty()) continue;
        (*job)->argv = (*job)->argv_here;
        for (std::string& word : (*job)->argv) {
            if (const auto at = word.find(k_files); at != std::string::npos) {
                word.replace(at, k_files.size(), folder.string());
            }
        }
    }
    return target;
}

EnvList cluster_env(const Target& target, PlaceKind kind) {
    return target.style == TargetStyle::levanter ? detail::levanter_cluster_env(kind) : EnvList();
}

}  // namespace gdnctl
