#include "jobs/target.h"

#include <cerrno>

#include <fmt/format.h>

#include "core/log.h"
#include "jobs/tree.h"
#include "platform/c_compiler.h"
#include "platform/fs.h"

namespace gdnctl {

Status check_embedded_kernel(const Target& target, Context& context) {
    const ConfigValue* chosen = context.config.find("target");
    const bool is_chosen = chosen != nullptr && chosen->origin.kind != ConfigOrigin::Kind::builtin;
    const auto root = find_repository_root(context.cwd);
    if (is_chosen || !root || !uses_files(target)) return {};
    std::error_code ignored;
    std::string reason;
    for (auto at = context.cwd.lexically_normal(); reason.empty(); at = at.parent_path()) {
        if (std::filesystem::exists(at / "gdnctl.toml", ignored)) {
            reason = (at / "gdnctl.toml").string() + " names no target";
        }
        if (at == *root || !at.has_relative_path()) break;
    }
    if (reason.empty()) {
        if (const auto file = tracked_kernel(*root, context)) reason = *file + " is a kernel, but no target names it";
    }
    if (reason.empty()) return {};
    return fail(
        ErrorKind::usage, reason + ": the job would use gdnctl's example kernel, not yours",
        fmt::format(
            "add `target = \"NAME\"` and [targets.NAME] to gdnctl.toml, or pass `--target {}` to use the example",
            target.name));
}

Result<Target> target_at(const Place& place, Target target, const Context& context) {
    if (!place.local || !uses_files(target)) return target;
    if (!has_c_compiler(context.env)) {
        log::warning("no C compiler found: the job uses a built-in kernel instead of {}", target.files.front().first);
        return target;
    }
    const auto folder = context.state_dir / "targets" / target.name;
    std::error_code problem;
    std::filesystem::create_directories(folder, problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "create", folder, problem.value()));
    for (const auto& [name, content] : target.files) {
        const auto path = folder / name;
        if (!std::filesystem::exists(path, problem)) GDNCTL_TRY(atomic_replace(path, content));
        log::info("kernel: {} (edit it as you like)", path.string());
    }
    return with_files_in(std::move(target), folder);
}

}  // namespace gdnctl
