#include "commands/common.h"

#include "core/json.h"
#include "core/text.h"
#include "jobs/job_destination.h"
#include "loop/perf/gates.h"
#include "platform/terminal.h"

namespace gdnctl::commands {

void print_json(const Json& value, Context& context) {
    context.terminal.out(to_text(value, context.terminal.out_is_tty() ? 2 : -1) + "\n");
}

void print_lines(std::string_view lines, Context& context, std::optional<int> hang) {
    if (context.terminal.out_is_tty()) {
        context.terminal.out(text::folded(lines, context.terminal.columns(), hang));
    } else {
        context.terminal.out(lines);
    }
}

Result<Target> target_in_use(const Context& context) {
    GDNCTL_TRY_ASSIGN(Target target, select_target(context.config, project_root(context)));
    GDNCTL_TRY(loop::check_gates(target));
    return target;
}

}  // namespace gdnctl::commands
