#include "target/target.h"

#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>
#include <unistd.h>

#include "platform/fs.h"

namespace gdnctl {

namespace {

ConfigValue value(auto v) {
    ConfigValue out;
    out.value = std::move(v);
    out.origin = {ConfigOrigin::Kind::project_file, "gdnctl.toml", 7};
    return out;
}
ConfigValue words(std::initializer_list<const char*> list) {
    ConfigArray array;
    for (const char* w : list) array.push_back(value(std::string(w)));
    return value(std::move(array));
}
Config with_target(const std::string& name, ConfigTable table) {
    ConfigTable targets;
    targets.emplace(name, value(std::move(table)));
    ConfigTable root;
    root.emplace("target", value(name));
    root.emplace("targets", value(std::move(targets)));
    Config config;
    config.overlay(root);
    return config;
}
Config named(const std::string& name) {
    ConfigTable root;
    root.emplace("target", value(name));
    Config config;
    config.overlay(root);
    return config;
}

std::string env_text(const EnvList& env) {
    std::string text;
    for (const auto& [name, v] : env) text += name + "=" + v + "\n";
    return text;
}

const std::string k_only_this_index =
    "env -u UV_INDEX -u UV_DEFAULT_INDEX -u UV_INDEX_URL -u UV_EXTRA_INDEX_URL -u UV_FIND_LINKS -u UV_NO_INDEX "
    "-u UV_TORCH_BACKEND -u UV_EXCLUDE -u UV_EXCLUDE_NEWER -u UV_CONSTRAINT -u UV_OVERRIDE -u UV_REQUIRE_HASHES "
    "-u UV_CONFIG_FILE UV_NO_CONFIG=1 ";

}  // namespace

TEST_CASE("target: ray-test on marin, golden command and environment") {
    const auto target = select_target(named("marin"), "/nowhere");
    REQUIRE(target);
    const auto command = test_command(*target, {}, "/bin/gdnctl");
    REQUIRE(command);
    CHECK(env_text(command->env) == "EQX_ON_ERROR=nan\nWANDB_MODE=offline\n");
    CHECK(command->resources.empty());
    CHECK(
        command->entrypoint ==
        R"x(bash -lc 'set -e; step=start; ended() { rc=$?; [ $rc = 0 ] || )x"
        R"x(echo "gdnctl: failed step: $step (exit status $rc)"; }; trap ended EXIT; )x"
        R"x(command -v uv >/dev/null || PATH=$PATH:$HOME/.local/bin; )x"
        R"x(command -v uv >/dev/null || { step="find uv"; )x"
        R"x(echo "gdnctl: uv is not in the PATH of a login shell (bash -l) on $(uname -n), nor in ~/.local/bin"; )x"
        R"x(echo "hint: install it there, for example with: pip install uv"; exit 127; }; )x"
        R"x(venv=${VIRTUAL_ENV:-${UV_PROJECT_ENVIRONMENT:-.venv}}; case $venv in /*) ;; *) venv=$PWD/$venv ;; esac; )x"
        R"x(export UV_PROJECT_ENVIRONMENT=$venv; )x"
        R"x(cd lib/levanter || { step="find the folder "lib/levanter""; exit 1; }; )x"
        R"x(step="uv sync"; if [ -n "${VIRTUAL_ENV:-}" ]; then uv sync --active --extra=tpu --group test; )x"
        R"x(else uv sync --extra=tpu --group test; fi; export UV_NO_SYNC=1; )x"
        R"x(step="install torch"; )x" +
            k_only_this_index +
            R"x(uv pip install --python "$venv/bin/python" --force-reinstall --index-url )x"
            R"x(https://download.pytorch.org/whl/cpu torch==2.9.0+cpu; )x"
            R"x(step="install transformers"; uv pip install --python "$venv/bin/python" transformers; )x"
            R"x(step="JAX device check"; )x"
            R"x(device=$("$venv/bin/python" -c '\''import json, sys, jax; b = jax.default_backend(); )x"
            R"x(print("GDNCTL_DEVICE " + json.dumps({"backend": b, "count": jax.device_count()}, separators=(",", ":")), )x"
            R"x(flush=True); b == "tpu" or sys.exit("gdnctl: JAX runs on " + b + ", not on a TPU )x"
            R"x((--allow-cpu accepts that)")'\'') || { echo "$device"; exit 1; }; echo "$device"; )x"
            R"x(step="pytest"; uv run pytest tests/test_gdn_kernels.py tests/test_gdn_layer.py -v; echo "$device"')x");
}

TEST_CASE("target: on this machine marin's tests use no environment that a login shell activates") {
    auto target = select_target(named("marin"), "/nowhere");
    REQUIRE(target);
    const std::string there = test_command(*target, {}, "g")->entrypoint;
    const std::string profile = profile_command(*target, {}, "g")->entrypoint;
    target->here = true;
    const std::string here = test_command(*target, {}, "g")->entrypoint;
    CHECK(there.find("$1") == std::string::npos);
    CHECK(here.find(
              "VIRTUAL_ENV=$1; [ -n \"$1\" ] || unset VIRTUAL_ENV; UV_PROJECT_ENVIRONMENT=$2; venv=${VIRTUAL_ENV") !=
          std::string::npos);
    CHECK(here.ends_with("-v; echo \"$device\"' gdnctl \"${VIRTUAL_ENV:-}\" \"${UV_PROJECT_ENVIRONMENT:-}\""));
    CHECK(profile_command(*target, {}, "g")->entrypoint == profile);
}

TEST_CASE("target: what marin's jobs need on a cluster") {
    const auto marin = select_target(named("marin"), "/nowhere");
    const std::string path =
        "PYTHONPATH=experiments:lib/fray/src:lib/haliax/src:lib/iris/src:lib/levanter/src:lib/marin/src:"
        "lib/zephyr/src\n";
    CHECK(env_text(cluster_env(*marin, PlaceKind::ray)) == "FRAY_CLUSTER_SPEC=ray\n" + path);
    CHECK(env_text(cluster_env(*marin, PlaceKind::iris)) == path);
    CHECK(cluster_env(*select_target(named("cpu-gdn"), "/nowhere"), PlaceKind::ray).empty());
}

TEST_CASE("target: the suites and pytest arguments of marin") {
    const auto target = select_target(named("marin"), "/nowhere");
    const auto entry = [&](TestSelection::Suite suite, const char* args, bool cpu) {
        return test_command(*target, {suite, args, cpu}, "g")->entrypoint;
    };
    using Suite = TestSelection::Suite;
    CHECK(entry(Suite::kernels, "", false).ends_with("uv run pytest tests/test_gdn_kernels.py -v; echo \"$device\"'"));
    CHECK(entry(Suite::layer, "", false).ends_with("uv run pytest tests/test_gdn_layer.py -v; echo \"$device\"'"));
    CHECK(entry(Suite::both, "-k 'a or b' --maxfail=1", false)
              .find("-v -k '\\''a or b'\\'' --maxfail=1; echo \"$device\"'") != std::string::npos);
    CHECK(entry(Suite::both, "", true).find("sys.exit") == std::string::npos);
    CHECK(entry(Suite::both, "", true).find("GDNCTL_DEVICE") != std::string::npos);
    CHECK(test_command(*target, {Suite::both, "-k 'open", false}, "g").error().kind == ErrorKind::usage);
}

TEST_CASE("target: ray-profile on marin, golden command and environment") {
    const auto target = select_target(named("marin"), "/nowhere");
    ProfileSettings s;
    const auto command = profile_command(*target, s, "g");
    REQUIRE(command);
    CHECK(env_text(command->env) ==
          "EQX_ON_ERROR=nan\nWANDB_MODE=online\nGDN_PROFILE_SIZE=130m\nGDN_PROFILE_NUM_STEPS=20\n"
          "GDN_PROFILE_PROFILE_START_STEP=2\nGDN_PROFILE_PROFILE_NUM_STEPS=6\n"
          "GDN_PROFILE_RUN_NAME_PREFIX=gdn_tinyprof\nGDN_PROFILE_TPU_VARIANT=v5p-8\nGDN_PROFILE_BATCH_SIZE=8\n"
          "LEVANTER_PALLAS_TPU_BWD_USE_XLA_STREAMING_BENCH=0\n");
    CHECK(
        command->entrypoint ==
        R"x(bash -lc 'set -e; step=start; ended() { rc=$?; [ $rc = 0 ] || )x"
        R"x(echo "gdnctl: failed step: $step (exit status $rc)"; }; trap ended EXIT; )x"
        R"x(command -v uv >/dev/null || PATH=$PATH:$HOME/.local/bin; )x"
        R"x(command -v uv >/dev/null || { step="find uv"; )x"
        R"x(echo "gdnctl: uv is not in the PATH of a login shell (bash -l) on $(uname -n), nor in ~/.local/bin"; )x"
        R"x(echo "hint: install it there, for example with: pip install uv"; exit 127; }; )x"
        R"x(unset VIRTUAL_ENV; export UV_PROJECT_ENVIRONMENT=.venv; began=$(mktemp); step="uv sync"; uv sync; export UV_NO_SYNC=1; )x"
        R"x(step="install torch"; )x" +
            k_only_this_index +
            R"x(uv pip install --python .venv/bin/python --force-reinstall --index-url )x"
            R"x(https://download.pytorch.org/whl/cpu torch==2.9.0+cpu; )x"
            R"x(step="remove torchvision"; (uv pip uninstall --python .venv/bin/python torchvision || true); )x"
            R"x(step="profiled run"; .venv/bin/python -m experiments.speedrun.hackable_transformer_gdn.tiny_profile )x"
            R"x(--force_run_failed true; step="store the trace"; [ -z "${GDNCTL_OUTPUT_DIR:-}" ] || )x"
            R"x(find . -path "*/plugins/profile/*" -type f -newer "$began" )x"
            R"x(-exec cp --parents -t "$GDNCTL_OUTPUT_DIR" {} + || echo "gdnctl: the trace could not be stored"')x");
}

TEST_CASE("target: every profile setting of marin reaches its variable") {
    const auto target = select_target(named("marin"), "/nowhere");
    ProfileSettings s;
    s.tpu = "v6e-4";
    s.size = "1_2b";
    s.batch_size.reset();
    s.chunk_size = 64;
    s.segment_size = 16;
    s.gdn_layers_per_block = 3;
    s.gdn_block_size = 4;
    s.all_transformer = true;
    s.ce_implementation = "pallas_tpu";
    s.ce_bwd_mode = "xla_streaming";
    s.wandb_mode = "disabled";
    s.extra_env = {{"WANDB_GROUP", "g"}};
    s.dry_run = true;
    const auto command = profile_command(*target, s, "g");
    CHECK(env_text(command->env) ==
          "EQX_ON_ERROR=nan\nWANDB_MODE=disabled\nGDN_PROFILE_SIZE=1_2b\nGDN_PROFILE_NUM_STEPS=20\n"
          "GDN_PROFILE_PROFILE_START_STEP=2\nGDN_PROFILE_PROFILE_NUM_STEPS=6\n"
          "GDN_PROFILE_RUN_NAME_PREFIX=gdn_tinyprof\nGDN_PROFILE_TPU_VARIANT=v6e-4\nGDN_PROFILE_CHUNK_SIZE=64\n"
          "GDN_PROFILE_SEGMENT_SIZE=16\nGDN_PROFILE_GDN_LAYERS_PER_BLOCK=3\nGDN_PROFILE_GDN_BLOCK_SIZE=4\n"
          "GDN_PROFILE_ALL_TRANSFORMER=1\nLEVANTER_FUSED_CE_IMPLEMENTATION=pallas_tpu\n"
          "LEVANTER_PALLAS_TPU_BWD_USE_XLA_STREAMING_BENCH=1\nWANDB_GROUP=g\n");
    CHECK(command->entrypoint.find("--force_run_failed true --dry_run true; step=") != std::string::npos);
}

TEST_CASE("target: the embedded default runs kernels of this binary") {
    const Config none;
    const auto target = select_target(none, "/nowhere");
    REQUIRE(target);
    CHECK(target->name == "cpu-gdn");
    CHECK(test_command(*target, {}, "/opt/my tools/gdnctl")->entrypoint ==
          "'/opt/my tools/gdnctl' oracle verify gdn --kernel builtin:chunk");
    const auto profile = profile_command(*target, {}, "g");
    REQUIRE(profile);
    CHECK(profile->entrypoint == "g oracle bench gdn --kernel builtin:fused --json");
    CHECK(profile->timeout_s == 600);
    REQUIRE(target->metric);
    CHECK(target->metric->name == "gdn/forward_ms");
    CHECK(target->metric->lower_is_better);
    CHECK(target->metric->from == "json:/forward/median_ms");
    CHECK(test_command(*target, {TestSelection::Suite::both, "-x", false}, "g").error().kind == ErrorKind::usage);
}

TEST_CASE("target: the embedded default is about a file of its own where the job stays here") {
    const auto target = select_target(Config{}, "/nowhere");
    REQUIRE(target);
    REQUIRE(uses_files(*target));
    REQUIRE(target->files.size() == 1);
    CHECK(target->files[0].first == "kernel.c");
    CHECK(target->files[0].second.find("GDN_EXPORT const gdn_kernel_info gdn_kernel") != std::string_view::npos);
    const Target here = with_files_in(*target, "/state/my files");
    CHECK(test_command(here, {}, "g")->entrypoint == "g oracle verify gdn --kernel 'src:/state/my files/kernel.c'");
    CHECK(profile_command(here, {}, "g")->entrypoint ==
          "g oracle bench gdn --kernel 'src:/state/my files/kernel.c' --json");
    CHECK_FALSE(uses_files(*select_target(named("marin"), "/nowhere")));
}

TEST_CASE("target: a checkout is recognised by its root marker") {
    std::string pattern = (std::filesystem::temp_directory_path() / "gdnctl-target.XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    const std::filesystem::path root = pattern;
    const auto marker = root / "lib/levanter/src/levanter/layers/gated_deltanet.py";
    std::filesystem::create_directories(marker.parent_path());
    std::ofstream(marker) << "x";
    std::filesystem::create_directories(root / ".git");
    CHECK(select_target(Config{}, root)->name == "marin");
    CHECK(select_target(named("cpu-gdn"), root)->name == "cpu-gdn");
    CHECK(find_repository_root(root / "lib/levanter/src") == root);
    std::filesystem::remove_all(root);
    CHECK_FALSE(find_repository_root("/"));
}

TEST_CASE("target: a working directory outside the repository is refused") {
    for (const char* place : {"../..", "/tmp", "a/../../b"}) {
        ConfigTable job;
        job.emplace("argv", words({"true"}));
        job.emplace("workdir", value(std::string(place)));
        ConfigTable table;
        table.emplace("test", value(job));
        const auto target = select_target(with_target("mine", table), "/nowhere");
        REQUIRE_FALSE(target);
        CHECK(target.error().message.find("a folder of the repository") != std::string::npos);
    }
}

TEST_CASE("target: a table of one's own") {
    ConfigTable env;
    env.emplace("A", value(std::string("1")));
    ConfigTable resources;
    resources.emplace("CPU", value(std::int64_t{1}));
    resources.emplace("TPU", value(0.5));
    ConfigTable evidence;
    evidence.emplace("passed_min", value(std::int64_t{5}));
    ConfigTable profile;
    profile.emplace("argv", words({"gdnctl", "oracle", "bench"}));
    profile.emplace("env", value(env));
    profile.emplace("resources", value(resources));
    profile.emplace("timeout_s", value(std::int64_t{600}));
    profile.emplace("workdir", value(std::string("sub dir")));
    profile.emplace("evidence", value(evidence));
    ConfigTable metric;
    metric.emplace("name", value(std::string("m")));
    metric.emplace("better", value(std::string("lower")));
    metric.emplace("from", value(std::string("json:/a/b")));
    ConfigTable table;
    table.emplace("test", words({"sh", "-c", "exit 0"}));
    table.emplace("profile", value(profile));
    table.emplace("metric", value(metric));
    table.emplace("kernel", words({"k.c"}));
    table.emplace("protected", value(std::string("tests/**")));
    table.emplace("log", value(std::string("log.md")));
    const auto target = select_target(with_target("mine", table), "/nowhere");
    REQUIRE_MESSAGE(target, target.error().text());
    CHECK(target->style == TargetStyle::argv);
    CHECK(target->protected_paths == std::vector<std::string>{"tests/**"});
    CHECK(target->metric->lower_is_better);
    const auto command = profile_command(*target, {}, "/x/gdnctl");
    CHECK(command->entrypoint == "cd 'sub dir' && /x/gdnctl oracle bench");
    CHECK(env_text(command->env) == "A=1\n");
    CHECK(command->resources == std::map<std::string, double>{{"CPU", 1}, {"TPU", 0.5}});
    CHECK(command->timeout_s == 600);
    CHECK(target->profile->evidence.passed_min == 5);
    CHECK(test_command(*target, {}, "g")->entrypoint == "sh -c 'exit 0'");
}

TEST_CASE("target: a table over a built-in one keeps the rest, a test of its own ends the assembly") {
    ConfigTable table;
    table.emplace("log", value(std::string("other.md")));
    auto target = select_target(with_target("marin", table), "/nowhere");
    CHECK(target->log == "other.md");
    CHECK(target->style == TargetStyle::levanter);
    CHECK(target->test->evidence.passed_min == 87);
    CHECK(target->test->evidence.skipped_max == 2);
    table.emplace("test", words({"make", "check"}));
    target = select_target(with_target("marin", table), "/nowhere");
    CHECK(target->style == TargetStyle::argv);
    CHECK_FALSE(target->profile);
    CHECK(test_command(*target, {}, "g")->entrypoint == "make check");
}

TEST_CASE("target: mistakes name the place and suggest") {
    const auto error = [](ConfigTable table) {
        const auto target = select_target(with_target("mine", std::move(table)), "/nowhere");
        REQUIRE_FALSE(target);
        CHECK(exit_code_of(target.error().kind) == ExitCode::usage);
        return target.error().message + " | " + target.error().hint;
    };
    ConfigTable t;
    CHECK(error(t).find("targets.mine has no test") != std::string::npos);
    t.emplace("tset", words({"x"}));
    const std::string unknown = error(t);
    CHECK(unknown.find("gdnctl.toml:7") != std::string::npos);
    CHECK(unknown.find("targets.mine.tset") != std::string::npos);
    CHECK(unknown.find("did you mean `test`?") != std::string::npos);
    t.clear();
    t.emplace("test", value(std::int64_t{3}));
    CHECK(error(t).find("targets.mine.test must be") != std::string::npos);
    t.clear();
    t.emplace("test", words({}));
    CHECK(error(t).find("a command with its arguments") != std::string::npos);
    ConfigTable job;
    job.emplace("argv", words({"x"}));
    job.emplace("timeout_s", value(std::int64_t{-1}));
    t.clear();
    t.emplace("test", value(job));
    CHECK(error(t).find("targets.mine.test.timeout_s must be") != std::string::npos);
    ConfigTable metric;
    metric.emplace("name", value(std::string("m")));
    metric.emplace("from", value(std::string("xml:/")));
    t.clear();
    t.emplace("test", words({"x"}));
    t.emplace("metric", value(metric));
    CHECK(error(t).find("targets.mine.metric.from") != std::string::npos);

    const auto nobody = select_target(named("cpu-gnd"), "/nowhere");
    CHECK(nobody.error().message == "gdnctl.toml:7: unknown target 'cpu-gnd'");
    CHECK(nobody.error().hint == "did you mean `cpu-gdn`?");
    CHECK(target_names(named("x")) == std::vector<std::string>{"cpu-ce", "cpu-gdn", "marin"});
}

TEST_CASE("target: a metric of the trace, and where the trace is") {
    const auto parse = [](ConfigTable t) { return select_target(with_target("mine", std::move(t)), "/nowhere"); };
    const auto error = [&](const ConfigTable& t) {
        const auto target = parse(t);
        REQUIRE_FALSE(target);
        CHECK(target.error().kind == ErrorKind::config);
        return target.error().message;
    };
    const auto with = [](const std::string& from, ConfigTable profile) {
        ConfigTable metric, t;
        metric.emplace("name", value(std::string("m")));
        metric.emplace("from", value(from));
        profile.emplace("argv", words({"x"}));
        t.emplace("test", words({"x"}));
        t.emplace("metric", value(metric));
        t.emplace("profile", value(profile));
        return t;
    };
    ConfigTable profile;
    profile.emplace("trace", value(std::string("out//prof/")));
    profile.emplace("trace_device", value(std::string("cpu")));
    profile.emplace("workdir", value(std::string("sub")));
    const auto step = parse(with("trace:step", profile));
    REQUIRE(step);
    CHECK(step->metric->from_trace());
    CHECK(step->metric->unit == "ms");
    CHECK(step->metric->lower_is_better);
    CHECK(step->profile->trace_is_file());
    CHECK(step->profile->trace_path() == "sub/out/prof");
    CHECK(step->profile->trace_device == "cpu");
    CHECK(parse(with("trace:kernel:gdn*", profile))->metric->unit == "us");
    CHECK(error(with("trace:step", {})).find("but its profile has no trace") != std::string::npos);
    CHECK(error(with("trace:kernel:", profile)).find("targets.mine.metric.from must be") != std::string::npos);
    for (const char* elsewhere : {"wandb", "hf:ns/name/run1"}) {
        profile["trace"] = value(std::string(elsewhere));
        CHECK_FALSE(parse(with("trace:step", profile))->profile->trace_is_file());
    }
    for (const char* bad : {"", ".", "/x", "../x", "a/../../x", "hf:ns/name"}) {
        profile["trace"] = value(std::string(bad));
        CHECK_MESSAGE(error(with("json:/a", profile)).find("targets.mine.profile.trace must be") != std::string::npos,
                      bad);
    }
    ConfigTable test, t;
    test.emplace("argv", words({"x"}));
    test.emplace("trace", value(std::string("out")));
    t.emplace("test", value(test));
    CHECK(error(t).find("unknown key targets.mine.test.trace") != std::string::npos);
}

TEST_CASE("target: the oracle's table, and where its command line runs") {
    ConfigTable oracle, set, table;
    set.emplace("head_map", value(std::string("interleaved")));
    set.emplace("eps", value(1e-6));
    oracle.emplace("kernel", value(std::string("py:kernel.py")));
    oracle.emplace("python", words({"uv", "run", "my python"}));
    oracle.emplace("cases", value(std::string("full")));
    oracle.emplace("dtype", value(std::string("bf16")));
    oracle.emplace("set", value(set));
    table.emplace("test", words({"make", "check"}));
    table.emplace("oracle", value(oracle));
    const auto target = select_target(with_target("mine", table), "/nowhere");
    REQUIRE(target);
    using Oracle = TestSelection::Oracle;
    TestSelection selection;
    selection.oracle = Oracle::alone;
    const std::string alone =
        "GDNCTL_VERDICT_LINE=1 /bin/gdnctl oracle verify gdn --kernel py:kernel.py --cases full --dtype bf16 "
        "--set eps=1e-06 --set head_map=interleaved --python 'uv run '\\''my python'\\'''";
    CHECK(test_command(*target, selection, "g", "/bin/gdnctl")->entrypoint == alone);
    selection.oracle = Oracle::first;
    CHECK(test_command(*target, selection, "g", "/bin/gdnctl")->entrypoint == alone + " && make check");
    CHECK(
        test_command(*target, selection, "g", ".gdnctl/gdnctl")->entrypoint.starts_with("chmod +x .gdnctl/gdnctl && "));
    const auto none = select_target(named("cpu-gdn"), "/nowhere");
    CHECK(test_command(*none, selection, "g", "g").error().kind == ErrorKind::usage);
}

TEST_CASE("target: marin's oracle uses the environment of its tests, and is gone with them") {
    const auto marin = select_target(named("marin"), "/nowhere");
    TestSelection selection;
    selection.oracle = TestSelection::Oracle::first;
    const std::string line = test_command(*marin, selection, "g", ".gdnctl/gdnctl")->entrypoint;
    const auto at = [&](std::string_view words) { return line.find(words); };
    CHECK(at("root=$PWD; ") < at("step=\"uv sync\""));
    CHECK(at("step=\"uv sync\"") < at("step=\"oracle\"; (cd \"$root\"; chmod +x .gdnctl/gdnctl && "));
    CHECK(at("--kernel py:levanter --python \"\\\"$venv\\\"/bin/python\")") < at("step=\"install torch\""));
    ConfigTable table;
    table.emplace("test", words({"make", "check"}));
    CHECK_FALSE(select_target(with_target("marin", table), "/nowhere")->oracle);
}

}  // namespace gdnctl
