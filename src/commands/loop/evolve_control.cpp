// gdnctl evolve pause, stop, fsck, lint, gc, import and export.
#include <array>
#include <set>

#include <fmt/format.h>

#include "commands/common.h"
#include "commands/log/common.h"
#include "commands/loop/codex_loop.h"
#include "commands/loop/loop_common.h"
#include "commands/table.h"
#include "core/json.h"
#include "core/log.h"
#include "core/result.h"
#include "loop/engine/log_dir.h"
#include "loop/evolve/contest.h"
#include "loop/evolve/state.h"
#include "loop/evolve/verify.h"
#include "loop/evolve/views.h"
#include "platform/clock.h"
#include "platform/fs.h"
#include "platform/terminal.h"
#include "target/target.h"

namespace gdnctl::commands {

namespace fs = std::filesystem;

namespace evolve {

using namespace loop::evolve;

namespace {

// Creates or removes a control file of the run.
Result<ExitCode> set_control(const RunChoice& choice, std::string_view name, bool there, Context& context) {
    GDNCTL_TRY_ASSIGN(const RunView view, load(choice, context));
    const fs::path file = view.log_dir / name;
    if (there) {
        GDNCTL_TRY(atomic_replace(file, "", 0600));
    } else {
        std::error_code problem;
        fs::remove(file, problem);
        if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "remove", file, problem.value()));
    }
    if (!view.running) log::info("run {} is not running now", view.state.run);
    if (context.global.json) {
        const std::string verb = name == "STOP" ? "stop" : "pause";
        print_json({{"schema", "gdnctl.evolve-" + verb + "/1"},
                    {"run", view.state.run},
                    {"file", file.string()},
                    {"set", there},
                    {"running", view.running}},
                   context);
    } else {
        context.terminal.out(fmt::format("{} {}\n", there ? "created" : "removed", file.string()));
    }
    return ExitCode::ok;
}

}  // namespace

}  // namespace evolve

namespace evolve_pause {

struct Options {
    evolve::RunChoice run;
    bool off = false;
};

void describe(cli::Args& args, Options& options) {
    args.about("Pauses a run after its current stage, or lets it continue.");
    args.flag(options.off, "--off", "let the run continue");
    evolve::describe_run(args, options.run);
    args.example("gdnctl evolve pause");
    args.example("gdnctl evolve pause --off");
}

Result<ExitCode> run(const Options& options, Context& context) {
    return evolve::set_control(options.run, "PAUSE", !options.off, context);
}

}  // namespace evolve_pause

namespace evolve_stop {

struct Options {
    evolve::RunChoice run;
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Ends a run once its current attempt has a verdict. Before you continue the run with --resume, remove the file "
        "STOP that this creates.");
    evolve::describe_run(args, options.run);
    args.example("gdnctl evolve stop");
}

Result<ExitCode> run(const Options& options, Context& context) {
    return evolve::set_control(options.run, "STOP", true, context);
}

}  // namespace evolve_stop

namespace evolve_fsck {

struct Options {
    evolve::RunChoice run;
};

using namespace loop::evolve;

void describe(cli::Args& args, Options& options) {
    args.about(
        "Checks a run: every line of its journal, and that the commit of every candidate is there. If a line is "
        "damaged, the command prints its number and exits with 7; the file is not changed. A missing commit is a "
        "warning.");
    evolve::describe_run(args, options.run);
    args.example("gdnctl evolve fsck");
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const RunView view, evolve::load(options.run, context));
    GDNCTL_TRY_ASSIGN(const GitCheckout repository, GitCheckout::open(context.cwd, context.process, context.clock));
    GDNCTL_TRY_ASSIGN(const StoreCheck found, check_store(repository, view.state));
    std::vector<std::string> missing;
    const auto who = [](int number) { return number == 0 ? std::string("base") : fmt::format("attempt {}", number); };
    for (const int number : found.gone) {
        missing.push_back(fmt::format("{}: commit {} is missing", who(number), view.state.at(number).commit));
    }
    for (const int number : found.unpinned) {
        missing.push_back(fmt::format("{}: {} is missing; git may delete {}", who(number),
                                      ref_of_attempt(view.state, number), view.state.at(number).commit));
    }
    for (const auto& line : missing) log::warning("{}", line);
    for (const auto& ref : found.unlisted) log::info("{} has no record: its attempt was interrupted", ref);
    if (context.global.json) {
        print_json({{"schema", "gdnctl.evolve-fsck/1"},
                    {"run", view.state.run},
                    {"records", view.state.records},
                    {"attempts", view.state.attempts.size() - 1},
                    {"missing", missing},
                    {"unlisted_refs", found.unlisted}},
                   context);
    } else {
        print_lines(fmt::format("{} records, {} attempts: the journal is intact\n", view.state.records,
                                view.state.attempts.size() - 1),
                    context);
    }
    return ExitCode::ok;
}

}  // namespace evolve_fsck

namespace evolve_lint {

struct Options {
    evolve::RunChoice run;
    std::optional<std::string> file;
};

using namespace loop::evolve;

void describe(cli::Args& args, Options& options) {
    args.about(
        "Checks that every measured number in a log (with %, x or a unit of time) is followed on the same line by its "
        "evaluation, as in (eval 12), and that the run has that evaluation.");
    args.positional(options.file, "FILE", "the log; without it the run's own experiment-log.md",
                    {.complete = cli::Complete::file});
    evolve::describe_run(args, options.run);
    args.exit_code(1, "a number does not belong to any evaluation of the run");
    args.exit_code(static_cast<int>(ExitCode::local_io), "the file cannot be read");
    args.example("gdnctl evolve lint notes.md");
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const fs::path folder, evolve::folder_of(options.run, context));
    const fs::path file = options.file ? context.cwd / *options.file : folder / std::string(k_experiment_log);
    std::set<int> evals;
    GDNCTL_TRY(each_record(folder, [&](const Json& record, std::size_t) -> Status {
        if (const auto eval = json::integer(record, "eval_id")) evals.insert(static_cast<int>(*eval));
        return {};
    }));
    GDNCTL_TRY_ASSIGN(const std::string text, read_file(file));
    const LogCheck found = check_log(text, evals);
    if (context.global.json) {
        Json problems = Json::array();
        for (const LogProblem& one : found.problems) {
            problems.push_back({{"line", one.line}, {"number", one.number}, {"problem", one.problem}});
        }
        print_json({{"schema", "gdnctl.evolve-lint/1"},
                    {"file", file.string()},
                    {"numbers", found.numbers},
                    {"evaluations", evals.size()},
                    {"problems", problems}},
                   context);
    } else {
        for (const LogProblem& one : found.problems) {
            context.terminal.out(fmt::format("{}:{}: {} {}\n", file.string(), one.line, one.number, one.problem));
        }
        print_lines(fmt::format("{} number{} checked, {} wrong\n", found.numbers, found.numbers == 1 ? "" : "s",
                                found.problems.size()),
                    context);
    }
    return found.problems.empty() ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace evolve_lint

namespace evolve {

Result<std::vector<std::string>> remove_old_refs(const fs::path& run, std::chrono::seconds age, bool look_only,
                                                 Context& context) {
    GDNCTL_TRY_ASSIGN(const GitCheckout repository, GitCheckout::open(context.cwd, context.process, context.clock));
    GDNCTL_TRY_ASSIGN(const auto lock, loop::LoopLock::acquire(run, repository.common_dir(), context.clock.wall()));
    GDNCTL_TRY_ASSIGN(const RunView view, load_evolve(run));
    std::vector<GitRefUpdate> updates;
    std::vector<std::string> removed;
    for (const std::string& ref : old_refs(view.state, context.clock.wall() - age)) {
        GDNCTL_TRY_ASSIGN(const auto commit, repository.resolve(ref));
        if (!commit) continue;
        updates.push_back({ref, std::string(k_no_object), *commit});
        removed.push_back(ref);
    }
    if (!updates.empty() && !look_only) GDNCTL_TRY(repository.update_refs(updates));
    return removed;
}

}  // namespace evolve

namespace evolve_gc {

struct Options {
    evolve::RunChoice run;
    std::string older_than;
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Removes the refs of old candidates that were neither kept nor tied, so that git can collect their commits. "
        "The journal and the files of the attempts stay. Nothing else ever removes a candidate.");
    args.option(options.older_than, "--older-than TIME", "age of an attempt, such as 30d or 12h", {.required = true});
    evolve::describe_run(args, options.run);
    args.example("gdnctl evolve gc --older-than 30d");
    args.check([&options]() -> Status {
        if (!codex_loop::parse_span(options.older_than)) {
            return fail(ErrorKind::usage, "--older-than: expected a time such as 30d or 12h: " + options.older_than);
        }
        return {};
    });
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const fs::path folder, evolve::folder_of(options.run, context));
    const auto age = std::chrono::seconds(codex_loop::parse_span(options.older_than).value_or(0));
    GDNCTL_TRY_ASSIGN(const auto removed, evolve::remove_old_refs(folder, age, false, context));
    GDNCTL_TRY_ASSIGN(const loop::evolve::RunView view, loop::evolve::load_evolve(folder));
    if (context.global.json) {
        print_json({{"schema", "gdnctl.evolve-gc/1"}, {"run", view.state.run}, {"removed", removed}}, context);
    } else {
        print_lines(fmt::format("removed {} ref{}\n", removed.size(), removed.size() == 1 ? "" : "s"), context);
    }
    return ExitCode::ok;
}

}  // namespace evolve_gc

// gdnctl evolve import and export: candidates from and for other programs.

namespace evolve_import {

struct Options {
    std::string from;
    std::optional<std::string> map;
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Starts a run from the kernels that the contest's Python agent left: one candidate per file, in the order of "
        "their numbers. DIR is the folder of one task; import several tasks one by one, since a run has one target. "
        "Scores measured elsewhere are shown but not trusted: `codex-loop --mode evolve --resume` measures the "
        "candidates again before it tries anything new.");
    args.option(options.from, "--from DIR", "folder of one task, with proposal_*.py",
                {.complete = cli::Complete::directory, .required = true});
    args.option(options.map, "--map REGEX=PATH", "import files that match REGEX as the target's file PATH",
                {.default_text = "the target's only kernel file"});
    args.example("gdnctl evolve import --from outputs/evolve_run/gdn_decode");
    args.see_also("docs/evolve.md");
}

Result<ExitCode> run(const Options& options, Context& context) {
    loop::evolve::EvolveRequest request;
    GDNCTL_TRY_ASSIGN(request.target, target_in_use(context));
    GDNCTL_TRY_ASSIGN(const auto report,
                      loop::evolve::import_contest(context.cwd / options.from, options.map, request, context));
    if (context.global.json) {
        print_json({{"schema", "gdnctl.evolve-import/1"},
                    {"run", report.run},
                    {"log_dir", report.log_dir.string()},
                    {"imported", report.steps},
                    {"to_judge", report.to_judge},
                    {"best_there", report.best}},
                   context);
    } else {
        print_lines(fmt::format("run {}: {} candidates, {} to measure; the best one there was {}\n", report.run,
                                report.steps, report.to_judge, report.best),
                    context);
    }
    return ExitCode::ok;
}

}  // namespace evolve_import

namespace evolve_export {

struct Options {
    evolve::RunChoice run;
    std::optional<std::string> id;
    bool contest = true;
    std::string to;
};

constexpr std::array<cli::Choice<bool>, 1> k_layouts = {{{"contest", true, "those of the contest's Python agent"}}};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Writes a candidate and its ancestors as proposal_0_1 and tune_0_N, so that the contest's Python agent can "
        "resume from them. The directory must be new or empty.");
    args.positional(options.id, "ID", "as for `evolve show`; without it the best candidate",
                    {.complete = cli::Complete::attempt});
    args.option(options.contest, k_layouts, "--layout LAYOUT", "names and files to write");
    args.option(options.to, "--to DIR", "new or empty directory",
                {.complete = cli::Complete::directory, .required = true});
    evolve::describe_run(args, options.run);
    args.example("gdnctl evolve export --layout contest --to contest best");
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const loop::evolve::RunView view, evolve::load(options.run, context));
    GDNCTL_TRY_ASSIGN(const int attempt, loop::evolve::attempt_of(view.state, options.id.value_or("best")));
    GDNCTL_TRY_ASSIGN(const Target target, target_in_use(context));
    GDNCTL_TRY_ASSIGN(const int written,
                      loop::evolve::export_contest(view, attempt, context.cwd / options.to, target, context));
    if (context.global.json) {
        print_json({{"schema", "gdnctl.evolve-export/1"},
                    {"run", view.state.run},
                    {"attempt", attempt},
                    {"directory", (context.cwd / options.to).string()},
                    {"written", written}},
                   context);
    } else {
        print_lines(fmt::format("wrote {} step{} to {}\n", written, written == 1 ? "" : "s",
                                (context.cwd / options.to).string()),
                    context);
    }
    return ExitCode::ok;
}

}  // namespace evolve_export

Rows evolve_control_commands() {
    static constexpr cli::Command k_rows[] = {
        cli::make<&evolve_pause::describe, &evolve_pause::run>("evolve pause", "Loop",
                                                               "pause a run, or let it continue", Tier::none),
        cli::make<&evolve_stop::describe, &evolve_stop::run>("evolve stop", "Loop",
                                                             "end a run after the current attempt", Tier::none),
        cli::make<&evolve_fsck::describe, &evolve_fsck::run>("evolve fsck", "Loop",
                                                             "check a run's journal and candidates", Tier::git),
        cli::make<&evolve_lint::describe, &evolve_lint::run>("evolve lint", "Loop",
                                                             "check the numbers in a log against a run", Tier::none),
        cli::make<&evolve_gc::describe, &evolve_gc::run>("evolve gc", "Loop", "remove the refs of old candidates",
                                                         Tier::git),
        cli::make<&evolve_import::describe, &evolve_import::run>(
            "evolve import", "Loop", "start a run from another program's candidates", Tier::git),
        cli::make<&evolve_export::describe, &evolve_export::run>(
            "evolve export", "Loop", "write a candidate's ancestry for another program", Tier::git)};
    return k_rows;
}

}  // namespace gdnctl::commands
