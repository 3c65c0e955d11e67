#include "jobs/target.h"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "core/log.h"
#include "platform/c_compiler.h"
#include "platform/fs.h"

namespace gdnctl {

namespace {

// Why the example would stand in for the user's own target; "": it may be judged.
std::string lack_of_target(bool here, const Context& context) {
    if (const auto root = find_repository_root(context.cwd)) {
        std::error_code ignored;
        for (auto at = context.cwd.lexically_normal();; at = at.parent_path()) {
            if (std::filesystem::exists(at / "gdnctl.toml", ignored)) {
                return (at / "gdnctl.toml").string() + " names no target";
            }
            if (at == *root || !at.has_relative_path()) return "no target is named for " + root->string();
        }
    }
    if (const ConfigValue* own = context.config.find("targets"); own != nullptr && own->as_table() != nullptr) {
        const auto known = target_names(Config());
        for (const auto& [name, value] : *own->as_table()) {
            if (std::find(known.begin(), known.end(), name) != known.end()) continue;
            return fmt::format("{} defines the target {}, but no target is named", value.origin.text(), name);
        }
    }
    return here ? "" : "no target is named for a job on a cluster";
}

}  // namespace

Status check_target_is_named(const Target& target, bool here, const Context& context) {
    if (target_is_named(context.config) || !uses_files(target)) return {};
    const std::string reason = lack_of_target(here, context);
    if (reason.empty()) return {};
    return fail(ErrorKind::usage, reason + ": gdnctl's example kernel would be judged, not yours",
                fmt::format("add `target = \"NAME\"` and [targets.NAME] to gdnctl.toml (`gdnctl config init` writes "
                            "one), or pass `--target {}` to judge the example",
                            target.name));
}

Status check_target_is_named(const Target& target, const PlaceOptions& options, Context& context) {
    GDNCTL_TRY(check_target_is_named(target, true, context));
    if (target_is_named(context.config) || !uses_files(target)) return {};
    GDNCTL_TRY_ASSIGN(const Place place, choose_place(options, context));
    return check_target_is_named(target, place.local, context);
}

Result<Target> target_at(const Place& place, Target target, const Context& context) {
    target.here = place.local;
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
