#include "commands/loop/policy_common.h"

#include "jobs/place.h"

namespace gdnctl::commands {

Result<Target> target_in_use(const Context& context) { return select_target(context.config, project_root(context)); }

Result<loop::PerfPolicy> policy_in_force(const loop::PerfOptions& options, const Context& context) {
    GDNCTL_TRY_ASSIGN(const Target target, target_in_use(context));
    return loop::policy_of(options, target, context.cwd);
}

}  // namespace gdnctl::commands
