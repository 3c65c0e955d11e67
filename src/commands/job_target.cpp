#include "commands/job_target.h"

#include <cerrno>

#include <fmt/format.h>

#include "commands/oracle_compile.h"
#include "gdnctl/core/log.h"
#include "gdnctl/platform/fs.h"

namespace gdnctl::commands {

Result<Target> target_at(const Place& place, Target target, const Context& context) {
    if (!place.local || !uses_files(target)) return target;
    if (!oracle_kernel::has_compiler(context)) {
        log::warning("no C compiler here: the job takes a kernel of this binary instead of {}",
                     target.files.front().first);
        return target;
    }
    const auto folder = context.state_dir / "targets" / target.name;
    std::error_code problem;
    std::filesystem::create_directories(folder, problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "create", folder, problem.value()));
    for (const auto& [name, content] : target.files) {
        const auto path = folder / name;
        if (!std::filesystem::exists(path, problem)) GDNCTL_TRY(atomic_replace(path, content));
        log::info("kernel: {} (change it as you like)", path.string());
    }
    return with_files_in(std::move(target), folder);
}

}  // namespace gdnctl::commands
