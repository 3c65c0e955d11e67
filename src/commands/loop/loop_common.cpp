#include "commands/loop/loop_common.h"

#include <fmt/format.h>

#include "cli/config.h"
#include "core/for_people.h"
#include "core/log.h"
#include "core/time.h"
#include "jobs/job_destination.h"
#include "loop/evolve/run.h"
#include "platform/fs.h"
#include "target/target.h"

namespace gdnctl::commands {

namespace fs = std::filesystem;

namespace {

bool is_folder(const fs::path& path) {
    std::error_code problem;
    return fs::is_directory(path, problem);
}

// When its journal was last written; the minimum if there is none.
fs::file_time_type written(const fs::path& log_dir) {
    std::error_code problem;
    const auto time = fs::last_write_time(log_dir / "journal.jsonl", problem);
    return problem ? fs::file_time_type::min() : time;
}

tl::unexpected<Error> no_run(const fs::path& where) {
    return fail(ErrorKind::remote_missing, fmt::format("no run of codex-loop in {}", where.string()),
                "start one with `gdnctl codex-loop`, or name another directory with --log-dir");
}

}  // namespace

void describe_loop_dir(cli::Args& args, std::optional<std::string>& log_dir) {
    args.option(log_dir, "--log-dir PATH", "log directory of the loop",
                {.default_text = loop::k_usual_log_dir, .complete = cli::Complete::directory});
    args.exit_code(static_cast<int>(ExitCode::remote_missing), "the directory contains no run");
    args.exit_code(static_cast<int>(ExitCode::conflict), "the journal is damaged");
}

Result<fs::path> loop_dir(const std::optional<std::string>& given, const Context& context) {
    const fs::path root = project_root(context);
    if (!given) {
        const fs::path usual = root / loop::k_usual_log_dir;
        const auto evolved = loop::evolve::find_run(std::nullopt, std::nullopt, context);
        if (evolved && written(*evolved) > written(usual)) return *evolved;
        if (!is_folder(usual)) return no_run(usual);
        return usual;
    }
    for (const fs::path& start : {context.cwd, root}) {
        if (is_folder(start / *given)) return (start / *given).lexically_normal();
    }
    return fail(ErrorKind::usage, fmt::format("--log-dir: no such directory: {}", (context.cwd / *given).string()));
}

loop::ConfigAt config_at(const Context& context) {
    return [&context](const fs::path& folder) -> Result<Config> {
        GDNCTL_TRY_ASSIGN(cli::LoadedConfig loaded,
                          cli::load_config(context.env, {folder, context.global.config_file, context.global.target}));
        for (const std::string& warning : loaded.warnings) log::warning("warning: {}", warning);
        return std::move(loaded.config);
    };
}

}  // namespace gdnctl::commands
