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

    t.metric = TargetMetric{"throughput/mfu", "%", false, R"(regex:throughput/mfu[^0-9eE+\-]*([0-9.eE+\-]+))"};
    return t;
}

Target cpu_gdn() {
    Target t;
    t.name = "cpu-gdn";
    t.log = "gdn-log.md";
    t.protected_paths = {"gdnctl.toml"};
    // In other places, the kernels of this binary, which need no file and no compiler.
    TargetJob test;
    test.argv = {"gdnctl", "oracle", "verify", "gdn", "--kernel", "builtin:chunk"};
    test.argv_here = {"gdnctl", "oracle", "verify", "gdn", "--kernel", "src:{files}/kernel.c"};
    t.test = test;
    TargetJob profile;
    profile.argv = {"gdnctl", "oracle", "bench", "gdn", "--kernel", "builtin:fused", "--json"};
    profile.argv_here = {"gdnctl", "oracle", "bench", "gdn", "--kernel", "src:{files}/kernel.c", "--json"};
    profile.timeout_s = 600;
    t.profile = profile;
    t.files = {{"kernel.c", k_example_kernel}};
    t.metric = TargetMetric{"gdn/forward_ms", "ms", true, "json:/forward/median_ms"};
    t.floor = "json:/forward/floor_ms";
    return t;
}

Target cpu_ce() {
    Target t;
    t.name = "cpu-ce";
    t.log = "linear-ce-log.md";
    t.protected_paths = {"gdnctl.toml"};
    TargetJob test;
    test.argv = {"gdnctl", "oracle", "verify", "linear-ce", "--kernel", "builtin:fused"};
    test.argv_here = {"gdnctl", "oracle", "verify", "linear-ce", "--kernel", "src:{files}/kernel.c"};
    t.test = test;
    const auto bench = [](const char* kernel) {
        return std::vector<std::string>{"gdnctl", "oracle",   "bench", "linear-ce", "--kernel", kernel,  "--batch",
                                        "64",     "--hidden", "128",   "--vocab",   "4000",     "--json"};
    };
    TargetJob profile;
    profile.argv = bench("builtin:fused");
    profile.argv_here = bench("src:{files}/kernel.c");
    profile.timeout_s = 600;
    t.profile = profile;
    t.files = {{"kernel.c", k_linear_ce_example_kernel}};
    t.metric = TargetMetric{"linear-ce/gradients_ms", "ms", true, "json:/gradients/median_ms"};
    return t;
}

}  // namespace

const std::vector<Target>& builtin_targets() {
    static const std::vector<Target> targets = {marin(), cpu_ce(), cpu_gdn()};
    return targets;
}

}  // namespace gdnctl::detail
