#include "commands/loop/policy_common.h"

#include "commands/target.h"

namespace gdnctl::commands {

Result<loop::PerfPolicy> policy_in_force(const loop::PerfOptions& options, const Context& context) {
    GDNCTL_TRY_ASSIGN(const Target target, target_in_use(context));
    return loop::policy_of(options, target, context.cwd);
}

}  // namespace gdnctl::commands
