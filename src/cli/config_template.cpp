#include "cli/config.h"

namespace gdnctl::cli {

std::string config_template() {
    return R"(# gdnctl.toml: settings of this project. gdnctl reads the first file of this name that it finds from the working
# directory upward. An option on the command line wins over an environment variable, a variable over this
# file, and this file over ~/.config/gdnctl/config.toml. `gdnctl config show` shows where each value comes from.

# The target to use if --target is not given (GDNCTL_TARGET). Without it, the target is detected.
# target = "my-kernel"

# Where jobs run if --cluster is not given (GDNCTL_CLUSTER). `local` is this machine.
# cluster = "local"

# Command that allocates the development TPU of `codex-loop --hold-dev-tpu` (GDNCTL_DEV_TPU_ALLOCATOR).
# dev_tpu_allocator = "./allocate-tpu.sh"

# Options of `gdnctl codex-loop`, by their names without the dashes. An option on the command line wins.
# [codex-loop]
# iterations = 20
# max-wall   = "8h"
# post-check = ["gdnctl lint-log"]
# resilient  = true

# A target is what you optimise. Only `test` is required.
# [targets.my-kernel]
# root_marker = "src/kernel.c"           # a file that identifies a checkout of this target
# kernel      = ["src/kernel.c"]         # what an iteration is about (globs)
# protected   = ["gdnctl.toml", "tests/**"]  # files that iterations must not change (globs)
# log         = "docs/log.md"            # the running log
# prompt      = "prompts/kernel.md"      # the iteration prompt
# presets     = ["vectorise"]            # directives for every session
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
