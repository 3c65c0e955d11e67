#include "target/builtin.h"

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

const std::vector<Target>& builtin_targets() {
    static const std::vector<Target> targets = {marin(), cpu_ce(), cpu_gdn()};
    return targets;
}

}  // namespace gdnctl::detail
