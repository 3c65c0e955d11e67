// gdnctl loop-clean: removes what loops leave behind.
#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/args.h"
#include "commands/common.h"
#include "commands/loop/codex_loop.h"
#include "commands/loop/loop_common.h"
#include "commands/table.h"
#include "core/json.h"
#include "core/log.h"
#include "loop/clean.h"
#include "loop/engine/log_dir.h"
#include "loop/evolve/run.h"
#include "loop/evolve/views.h"
#include "platform/clock.h"
#include "platform/terminal.h"
#include "services/git/checkout.h"

namespace gdnctl::commands::loop_clean {

struct Options {
    std::optional<std::string> log_dir;
    std::string older_than = "30d";
    bool dry_run = false;
};

namespace fs = std::filesystem;

namespace {

// The folders of this repository's evolve runs, oldest first.
std::vector<fs::path> evolve_runs(const fs::path& root) {
    std::vector<fs::path> runs;
    std::error_code problem;
    for (const auto& entry : fs::directory_iterator(root / loop::evolve::k_usual_root, problem)) {
        if (loop::evolve::is_evolve_run(entry.path())) runs.push_back(entry.path());
    }
    std::sort(runs.begin(), runs.end());
    return runs;
}

std::string many(std::size_t count, std::string_view what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

struct Removed {
    loop::Remains remains;
    std::vector<std::string> refs;  // all names, those of evolve runs too
};

Result<Removed> clean(const Options& options, Context& context) {
    const auto age = std::chrono::seconds(codex_loop::parse_span(options.older_than).value_or(0));
    GDNCTL_TRY_ASSIGN(const GitCheckout repository, GitCheckout::open(context.cwd, context.process, context.clock));
    const fs::path& root = repository.root();
    const fs::path log_dir = (root / options.log_dir.value_or(std::string(loop::k_usual_log_dir))).lexically_normal();
    Removed removed;
    for (const fs::path& run : evolve_runs(root)) {  // each takes the repository's lock
        GDNCTL_TRY_ASSIGN(auto refs, evolve::remove_old_refs(run, age, options.dry_run, context));
        removed.refs.insert(removed.refs.end(), refs.begin(), refs.end());
    }
    std::error_code problem;
    const fs::path& common = repository.common_dir();
    GDNCTL_TRY_ASSIGN(const auto lock, loop::LoopLock::acquire(fs::exists(log_dir, problem) ? log_dir : common, common,
                                                               context.clock.wall()));
    GDNCTL_TRY_ASSIGN(removed.remains,
                      loop::find_remains(repository, log_dir, context.state_dir, context.clock.wall() - age));
    for (const GitRefUpdate& ref : removed.remains.refs) removed.refs.push_back(ref.name);
    if (!options.dry_run) {
        GDNCTL_TRY(loop::remove_remains(repository, removed.remains, context.process, context.clock));
    }
    return removed;
}

Json json_of(const Removed& removed, bool dry_run) {
    const auto names = [](const std::vector<fs::path>& paths) {
        Json list = Json::array();
        for (const fs::path& path : paths) list.push_back(path.string());
        return list;
    };
    return {{"schema", "gdnctl.loop-clean/1"},
            {"dry_run", dry_run},
            {"worktrees", names(removed.remains.worktrees)},
            {"refs", removed.refs},
            {"caches", names(removed.remains.caches)},
            {"kept", json::or_null(removed.remains.kept)}};
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Removes what loops of this repository leave behind: their worktrees, the refs of rejected and accepted work "
        "of old runs, and old caches in the state directory. For evolve runs it calls `evolve gc`. Branches, logs and "
        "journals stay.");
    args.about(
        "While a loop is running in the repository, nothing is removed (exit code 7). An interrupted run keeps its "
        "worktree and its refs.");
    args.option(options.older_than, "--older-than TIME", "age of runs and caches to remove, such as 30d or 12h");
    args.flag(options.dry_run, "--dry-run", "list what would be removed; remove nothing");
    args.option(options.log_dir, "--log-dir PATH", "log directory of the loop",
                {.default_text = loop::k_usual_log_dir, .complete = cli::Complete::directory});
    args.example("gdnctl loop-clean --dry-run");
    args.example("gdnctl loop-clean --older-than 7d");
    args.exit_code(static_cast<int>(ExitCode::conflict), "a loop is running, or a journal is damaged");
    args.see_also({"loop-status", "evolve gc", "docs/loop-reports.md"});
    args.check([&options]() -> Status {
        if (codex_loop::parse_span(options.older_than)) return {};
        return fail(ErrorKind::usage, "--older-than: expected a time such as 30d or 12h: " + options.older_than);
    });
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const Removed removed, clean(options, context));
    const loop::Remains& remains = removed.remains;
    if (!remains.kept.empty()) log::info("{}: its worktree and refs are kept", remains.kept);
    if (context.global.json) {
        print_json(json_of(removed, options.dry_run), context);
        return ExitCode::ok;
    }
    if (options.dry_run) {
        for (const fs::path& folder : remains.worktrees) {
            print_lines(fmt::format("worktree  {}\n", folder.string()), context);
        }
        for (const std::string& ref : removed.refs) context.terminal.out(fmt::format("ref       {}\n", ref));
        for (const fs::path& folder : remains.caches) {
            print_lines(fmt::format("cache     {}\n", folder.string()), context);
        }
    }
    print_lines(fmt::format("{} {}, {}, {}\n", options.dry_run ? "would remove" : "removed",
                            many(remains.worktrees.size(), "worktree"), many(removed.refs.size(), "ref"),
                            many(remains.caches.size(), "cache")),
                context);
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::loop_clean

namespace gdnctl::commands {

Rows loop_clean_commands() {
    static constexpr cli::Command k_rows[] = {cli::make<&loop_clean::describe, &loop_clean::run>(
                                                  "loop-clean", "Loop", "remove what loops leave behind", Tier::git)
                                                  .also("loop clean")};
    return k_rows;
}

}  // namespace gdnctl::commands
