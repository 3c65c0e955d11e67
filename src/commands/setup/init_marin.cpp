// gdnctl init marin
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "cli/args.h"
#include "commands/common.h"
#include "commands/log/common.h"
#include "commands/table.h"
#include "core/config.h"
#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "loop/engine/prompt.h"
#include "platform/context.h"
#include "platform/fs.h"
#include "platform/terminal.h"
#include "runlog/lint/lint.h"
#include "target/target.h"

namespace gdnctl::commands::init_marin {

struct Options {
    bool dry_run = false;
    bool force = false;
};

namespace fs = std::filesystem;

extern const std::string_view k_marin_shim, k_agent_skill;  // marin_shim.cpp.in

void describe(cli::Args& args, Options& options) {
    args.about(
        "Installs what the recipe and a coding agent need into a Marin checkout: in scripts/gdn gdnctl.py, a short "
        "script that runs gdnctl (so that `uv run python scripts/gdn/gdnctl.py ...` works as written), the iteration "
        "prompt and the directive presets, and .agents/skills/gdnctl/SKILL.md, which tells an agent when to run which "
        "command. Lists the files that it creates, keeps or replaces.");
    args.about(
        "Identical files are left alone. A file that differs is kept, with exit code 7, unless you pass --force; a "
        "diff shows how it differs. Missing files are always written. Nothing is committed.");
    args.flag(options.dry_run, "--dry-run", "write nothing, show all changes as a diff");
    args.flag(options.force, "--force", "replace files that differ");
    args.example("gdnctl init marin --dry-run", "what would be written, as a diff");
    args.example("gdnctl -C ~/marin init marin");
    args.exit_code(static_cast<int>(ExitCode::usage), "not inside a git repository, or not a Marin checkout");
    args.exit_code(static_cast<int>(ExitCode::conflict), "a file that differs was kept");
    args.exit_code(static_cast<int>(ExitCode::local_io),
                   "a file cannot be read or written, or leads out of the checkout");
    args.see_also({"prompts list", "doctor", "docs/prompts.md"});
}

namespace {

struct InstalledFile {
    std::string path;  // relative to the root
    std::string_view bytes;
    mode_t mode = 0666;
};

enum class Action { created, unchanged, kept, replaced };

std::string_view to_text(Action action) {
    switch (action) {
        case Action::created: return "created";
        case Action::unchanged: return "unchanged";
        case Action::kept: return "kept";
        case Action::replaced: break;
    }
    return "replaced";
}

std::vector<InstalledFile> pieces() {
    std::vector<InstalledFile> all = {{"scripts/gdn/gdnctl.py", k_marin_shim, 0777}};
    for (auto& [path, bytes] : loop::recipe_files("marin")) all.push_back({std::move(path), bytes});
    all.push_back({".agents/skills/gdnctl/SKILL.md", k_agent_skill});
    return all;
}

Result<fs::path> marin_root(const Context& context) {
    const auto root = find_repository_root(context.cwd);
    if (!root) {
        return fail(ErrorKind::usage, fmt::format("not inside a git repository: {}", context.cwd.string()),
                    "change to a Marin checkout, or pass -C DIR");
    }
    Config config;
    config.overlay({{"target", ConfigValue{std::string("marin"), {}}}});
    GDNCTL_TRY_ASSIGN(const Target target, select_target(config, *root));
    std::error_code problem;
    if (!fs::exists(*root / target.root_marker, problem)) {
        return fail(ErrorKind::usage,
                    fmt::format("{} is not a Marin checkout: it has no {}", root->string(), target.root_marker),
                    "change to a Marin checkout, or pass -C DIR");
    }
    return *root;
}

struct Outcome {
    Action action = Action::unchanged;
    std::string diff;
};

Result<Outcome> place(const fs::path& root, const InstalledFile& piece, const Options& options) {
    GDNCTL_TRY_ASSIGN(const fs::path path, join_inside(root, piece.path));
    GDNCTL_TRY_ASSIGN(const auto there, read_file_if_exists(path));
    if (there == piece.bytes) return Outcome{};
    Outcome outcome;
    outcome.diff = runlog::unified_diff(there.value_or(""), piece.bytes, piece.path);
    outcome.action = !there ? Action::created : options.force ? Action::replaced : Action::kept;
    if (options.dry_run || outcome.action == Action::kept) return outcome;
    std::error_code problem;
    fs::create_directories(path.parent_path(), problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "create", path.parent_path(), problem.value()));
    GDNCTL_TRY(atomic_replace(path, piece.bytes, piece.mode));
    return outcome;
}

void tell(const InstalledFile& piece, Action action, bool dry_run) {
    const std::string_view would = dry_run ? "would be " : "";
    switch (action) {
        case Action::created: log::info("{}: {}created", piece.path, would); break;
        case Action::replaced: log::info("{}: {}replaced", piece.path, would); break;
        case Action::kept: log::warning("{}: {}kept, it differs", piece.path, would); break;
        case Action::unchanged: log::debug("{}: unchanged", piece.path); break;
    }
}

}  // namespace

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const fs::path root, marin_root(context));
    Json files = Json::array();
    std::vector<std::string> kept;
    std::size_t changed = 0;
    for (const InstalledFile& piece : pieces()) {
        GDNCTL_TRY_ASSIGN(const Outcome outcome, place(root, piece, options));
        const bool differs = outcome.action == Action::kept || outcome.action == Action::replaced;
        if (!context.global.json && (differs || options.dry_run)) context.terminal.out(outcome.diff);
        tell(piece, outcome.action, options.dry_run);
        files.push_back({{"path", piece.path}, {"action", to_text(outcome.action)}});
        if (outcome.action == Action::kept) kept.push_back(piece.path);
        if (outcome.action != Action::unchanged) ++changed;
    }
    if (context.global.json) {
        print_json({{"schema", "gdnctl.init-marin/1"},
                    {"root", root.string()},
                    {"dry_run", options.dry_run},
                    {"files", std::move(files)}},
                   context);
    }
    if (!kept.empty()) {
        return fail(
            ErrorKind::conflict,
            fmt::format("{}kept, because they differ: {}", options.dry_run ? "would be " : "", text::join(kept, ", ")),
            "commit what you want to keep, then pass --force; the diff shows the changes");
    }
    if (changed == 0) log::info("everything is in place in {}", root.string());
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::init_marin

namespace gdnctl::commands {

Rows checkout_commands() {
    static constexpr cli::Command k_rows[] = {
        cli::make<&init_marin::describe, &init_marin::run>(
            "init marin", "Setup", "install prompt, presets and script into a Marin checkout", Tier::none)
            .without_config()};
    return k_rows;
}

}  // namespace gdnctl::commands
