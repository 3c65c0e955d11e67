#include "cli/config.h"

namespace gdnctl::cli {

std::string config_template() {
    return R"(# gdnctl.toml: settings of this project. gdnctl reads the first file of this name that it finds from the working
# directory upward. An option given on the command line wins over a variable of the environment, a variable over this
# file, and this file over ~/.config/gdnctl/config.toml. `gdnctl config show` says where each value comes from.

# Which table below is meant when --target is not given (GDNCTL_TARGET). Without it the target is detected.
# target = "my-kernel"

# Where jobs run when --cluster is not given (GDNCTL_CLUSTER). `local` is this machine.
# cluster = "local"

# What allocates the development TPU of `codex-loop --hold-dev-tpu` (GDNCTL_DEV_TPU_ALLOCATOR).
# dev_tpu_allocator = "./allocate-tpu.sh"

# What is being optimised. Only `test` is required.
# [targets.my-kernel]
# root_marker = "src/kernel.c"           # a file that tells a checkout of this target
# kernel      = ["src/kernel.c"]         # what an iteration is about (globs)
# protected   = ["gdnctl.toml", "tests/**"]  # what an iteration may not change (globs)
# log         = "docs/log.md"            # the running log
# prompt      = "prompts/kernel.md"      # the iteration prompt
# presets     = ["vectorise"]            # directives that every session gets
# test        = ["make", "check"]        # a command, or a table as below
# metric      = { name = "kernel/forward_ms", unit = "ms", better = "lower", from = "json:/forward/median_ms" }
# validate    = ["make"]                 # must succeed before a candidate is measured
#
# [targets.my-kernel.profile]
# argv      = ["make", "bench"]
# env       = { OMP_NUM_THREADS = "4" }
# workdir   = "."
# resources = { CPU = 4 }
# timeout_s = 600
# evidence  = { passed_min = 10, skipped_max = 2 }
)";
}

}  // namespace gdnctl::cli
