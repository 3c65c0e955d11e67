#include "commands/loop_common.h"

#include <fmt/format.h>

#include "core/for_people.h"
#include "core/time.h"
#include "platform/fs.h"
#include "target/target.h"

namespace gdnctl::commands {

namespace fs = std::filesystem;

namespace {

bool is_folder(const fs::path& path) {
    std::error_code problem;
    return fs::is_directory(path, problem);
}

tl::unexpected<Error> no_run(const fs::path& where) {
    return fail(ErrorKind::remote_missing, fmt::format("no run of codex-loop in {}", where.string()),
                "`gdnctl codex-loop` starts one; --log-dir names another place");
}

}  // namespace

void describe_loop_dir(cli::Args& args, std::optional<std::string>& log_dir) {
    args.option(log_dir, {.names = "--log-dir",
                          .value = "PATH",
                          .help = "log directory of the loop",
                          .default_text = loop::k_usual_log_dir,
                          .complete = cli::Complete::directory});
    args.exit_code(static_cast<int>(ExitCode::remote_missing), "no loop has run there");
    args.exit_code(static_cast<int>(ExitCode::conflict), "the journal is damaged");
}

Result<fs::path> loop_dir(const std::optional<std::string>& given, const Context& context) {
    const fs::path root = find_repository_root(context.cwd).value_or(context.cwd);
    if (!given) {
        const fs::path usual = root / loop::k_usual_log_dir;
        if (!is_folder(usual)) return no_run(usual);
        return usual;
    }
    for (const fs::path& start : {context.cwd, root}) {
        if (is_folder(start / *given)) return (start / *given).lexically_normal();
    }
    return fail(ErrorKind::usage, fmt::format("--log-dir: no such directory: {}", (context.cwd / *given).string()));
}

std::string_view word_of(LoopStatus status) {
    switch (status) {
        case LoopStatus::running: return "running";
        case LoopStatus::stopping: return "stopping";
        case LoopStatus::ended: return "ended";
        case LoopStatus::interrupted: break;
    }
    return "interrupted";
}

LoopStatus status_of(const loop::LoadedRun& run) {
    if (run.holder) return run.stop_asked ? LoopStatus::stopping : LoopStatus::running;
    return run.view.stop_rc ? LoopStatus::ended : LoopStatus::interrupted;
}

std::string standing(const loop::LoadedRun& run) {
    const auto& view = run.view;
    switch (status_of(run)) {
        case LoopStatus::running:
        case LoopStatus::stopping:
            return fmt::format(
                "running, process {}{}{}", run.holder->pid,
                run.holder->since.empty() ? "" : " since " + loop::shown(local_time_of(run.holder->since), 40),
                run.stop_asked ? "; STOP is asked for" : "");
        case LoopStatus::ended:
            return fmt::format("ended: {} (exit code {}){}", or_dash(loop::shown(view.stop_reason, 80)), *view.stop_rc,
                               view.open > 0 ? fmt::format("; --resume finishes iteration {}", view.open) : "");
        case LoopStatus::interrupted: break;
    }
    if (view.open > 0) return fmt::format("interrupted in iteration {}; --resume goes on with it", view.open);
    return "interrupted between two iterations; --resume goes on";
}

std::string duration_text(std::int64_t ms) { return format_duration(std::chrono::milliseconds(ms)); }

std::string short_commit(std::string_view sha) { return loop::shown(sha.substr(0, 12)); }

std::string or_dash(std::string text) { return text.empty() ? "-" : std::move(text); }

}  // namespace gdnctl::commands
