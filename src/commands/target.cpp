#include "commands/target.h"

#include "jobs/place.h"
#include "loop/perf/policy_file.h"

namespace gdnctl::commands {

Result<Target> target_in_use(const Context& context) {
    GDNCTL_TRY_ASSIGN(Target target, select_target(context.config, project_root(context)));
    GDNCTL_TRY(loop::check_gates(target));
    return target;
}

}  // namespace gdnctl::commands
