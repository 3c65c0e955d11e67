// gdnctl loop-status: shows the state of a loop, once or continuously.
#include <algorithm>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/args.h"
#include "commands/log/common.h"
#include "commands/loop/loop_common.h"
#include "commands/loop/loop_status_text.h"
#include "commands/print.h"
#include "commands/rows.h"
#include "core/for_people.h"
#include "core/log.h"
#include "loop/evolve/status_index.h"
#include "loop/evolve/views.h"
#include "platform/clock.h"
#include "platform/context.h"
#include "platform/signals.h"
#include "platform/terminal.h"

namespace gdnctl::commands::loop_status {

struct Options {
    std::optional<std::string> log_dir;
    bool watch = false;
    bool rebuild_state = false;
};

using namespace loop;

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::seconds k_look_again{1};

std::uint64_t size_of(const fs::path& journal) {
    std::error_code problem;
    const auto size = fs::file_size(journal, problem);
    return problem ? 0 : size;
}

// Redraws the same lines.
class Screen {
public:
    explicit Screen(Terminal& terminal) : m_terminal(terminal) {}
    Status draw(const std::string& text) {
        if (m_lines > 0) m_terminal.move_out(fmt::format("\x1b[{}A\x1b[J", m_lines));
        m_terminal.out(text);
        m_lines = std::count(text.begin(), text.end(), '\n');
        return m_terminal.flush();
    }

private:
    Terminal& m_terminal;
    std::ptrdiff_t m_lines = 0;
};

Status print_events(const loop::LoadedRun& run, std::size_t from, Terminal& terminal) {
    for (const auto& event : loop::events(run, from)) {
        const auto place = event.iteration > 0 ? fmt::format("iteration {}: ", event.iteration) : std::string();
        terminal.out(fmt::format("{} {}{}\n", loop::shown(local_time_of(event.time), 40), place, event.text));
    }
    return terminal.flush();
}

// The state of a run does not depend on its measurements.
std::optional<loop::MeasuredRun> measured_by(const loop::LoadedRun& run) {
    auto measured = loop::read_measured(run);
    if (measured) return std::move(*measured);
    log::warning("gains are not shown: {}", measured.error().text());
    return std::nullopt;
}

Result<ExitCode> watch(loop::LoadedRun run, Context& context) {
    Terminal& terminal = context.terminal;
    const bool redraws = terminal.out_is_tty();
    Screen screen(terminal);
    auto measured = measured_by(run);
    const auto status = [&] {
        return status_text(run, measured ? &*measured : nullptr, context.clock.wall(), terminal.columns());
    };
    std::uint64_t size = size_of(run.log_dir / "journal.jsonl");
    std::size_t printed = run.view.records;
    GDNCTL_TRY(screen.draw(status()));
    while (run.holder && !terminal.out_closed()) {
        if (!context.clock.sleep_for(k_look_again, context.stop)) return tl::unexpected(stopped_error());
        const std::uint64_t now = size_of(run.log_dir / "journal.jsonl");
        if (now != size || !loop::running(run.log_dir)) {
            size = now;
            GDNCTL_TRY_ASSIGN(run, loop::load_run(run.log_dir));
            measured = measured_by(run);
        }
        if (redraws) {
            GDNCTL_TRY(screen.draw(status()));
            continue;
        }
        printed = std::min(printed, run.view.records);  // another run took over the directory
        GDNCTL_TRY(print_events(run, printed, terminal));
        printed = run.view.records;
    }
    return ExitCode::ok;
}

Result<ExitCode> evolve_status(const Options& options, const fs::path& log_dir, Context& context) {
    if (options.watch || options.rebuild_state) {
        return fail(ErrorKind::usage,
                    fmt::format("{} cannot be used with an evolve run", options.watch ? "--watch" : "--rebuild-state"));
    }
    const auto show = [&](const Json& status, const std::string& text) {
        if (context.global.json) {
            Json json = {{"schema", "gdnctl.loop-status/1"}};
            json.update(status);
            print_json(json, context);
        } else {
            context.terminal.out(text);
        }
        return ExitCode::ok;
    };
    if (const auto index = loop::evolve::read_index(log_dir, loop::running(log_dir).has_value())) {
        GDNCTL_TRY_ASSIGN(const Json status, parse_json(index->status, "state.json"));
        return show(status, index->text);
    }
    GDNCTL_TRY_ASSIGN(const auto view, loop::evolve::load_evolve(log_dir));
    return show(loop::evolve::status_json(view), loop::evolve::status_text(view));
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Shows the state of a loop: whether it is running and as which process, the current iteration, outcomes, cost, "
        "and the latest iterations with reasons. It only reads the journal in the log directory, and does not disturb "
        "a running loop.");
    args.about(
        "If state.json cannot be parsed, the exit code is 2. --rebuild-state rebuilds it from the journal and keeps "
        "the old file as state.json.bak.");
    describe_loop_dir(args, options.log_dir);
    args.flag(options.watch,
              {.names = "--watch",
               .help = "follow the loop until it ends: redraw on a terminal, otherwise print one line per event"});
    args.flag(options.rebuild_state,
              {.names = "--rebuild-state", .help = "rebuild state.json from the journal; no loop may be running"});
    args.check([&options]() -> Status {
        if (options.watch && options.rebuild_state)
            return fail(ErrorKind::usage, "--rebuild-state and --watch cannot be combined");
        return {};
    });
    args.example("gdnctl loop-status --watch");
    args.example("gdnctl loop-status --json | jq .outcomes");
    args.exit_code(static_cast<int>(ExitCode::usage),
                   "usage or configuration error; state.json or the journal's version cannot be read");
    args.exit_code(static_cast<int>(ExitCode::conflict), "the journal is damaged; --rebuild-state while a loop runs");
    args.see_also("docs/loop-reports.md");
}

Result<ExitCode> run(const Options& options, Context& context) {
    if (options.watch && context.global.json) {
        return fail(ErrorKind::usage, "--watch and --json cannot be combined");
    }
    GDNCTL_TRY_ASSIGN(const fs::path log_dir, loop_dir(options.log_dir, context));
    if (loop::evolve::is_evolve_run(log_dir)) return evolve_status(options, log_dir, context);
    GDNCTL_TRY_ASSIGN(loop::LoadedRun run, loop::load_run(log_dir));
    if (options.rebuild_state) {
        GDNCTL_TRY(loop::rebuild_state(run));
        log::info("rebuilt state.json from {} journal records; the old file is state.json.bak", run.view.records);
    }
    GDNCTL_TRY(loop::check_state(log_dir));
    if (options.watch) return watch(std::move(run), context);
    const auto measured = measured_by(run);
    const loop::MeasuredRun* gains = measured ? &*measured : nullptr;
    if (context.global.json) {
        print_json(status_json(run, gains), context);
    } else {
        context.terminal.out(status_text(run, gains, context.clock.wall(), context.terminal.columns()));
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::loop_status

namespace gdnctl::commands {

constinit const cli::Command k_loop_status_row =
    cli::make<&loop_status::describe, &loop_status::run>("loop-status", "Loop", "show the state of a loop", Tier::none);

}  // namespace gdnctl::commands
