// gdnctl evolve log, show, lineage, diff and best.
#include <map>

#include <fmt/format.h>

#include "commands/common.h"
#include "commands/log/common.h"
#include "commands/loop/loop_common.h"
#include "commands/table.h"
#include "core/json.h"
#include "core/log.h"
#include "core/result.h"
#include "core/tone.h"
#include "loop/evolve/agent_dialogue.h"
#include "loop/evolve/run.h"
#include "loop/evolve/state.h"
#include "loop/evolve/verify.h"
#include "loop/measure/pairs.h"
#include "platform/fs.h"
#include "platform/terminal.h"
#include "services/git/checkout.h"

namespace gdnctl::commands {

namespace fs = std::filesystem;

namespace evolve {

using namespace loop::evolve;

void describe_run(cli::Args& args, RunChoice& choice) {
    args.option(choice.run, "--run ID", "run to use, or `last`",
                {.default_text = "last", .complete = cli::Complete::evolve_run});
    args.option(choice.log_dir, "--log-dir PATH", "log directory of the run",
                {.default_text = ".gdnctl/evolve/RUN", .complete = cli::Complete::directory});
    args.check([&choice]() -> Status {
        if (choice.run && choice.log_dir) return fail(ErrorKind::usage, "--run and --log-dir cannot be combined");
        return {};
    });
    args.exit_code(static_cast<int>(ExitCode::remote_missing), "no such run or attempt");
    args.exit_code(static_cast<int>(ExitCode::conflict), "the journal is damaged");
    args.see_also("docs/evolve.md");
}

void describe_id(cli::Args& args, std::string& id, std::string_view name) {
    args.positional(id, {.name = name,
                         .help = "number of an attempt, `last`, `best`, `base`, or the first digits of a commit",
                         .complete = cli::Complete::attempt});
}

Result<fs::path> folder_of(const RunChoice& choice, const Context& context) {
    return find_run(choice.run, choice.log_dir, context);
}

Result<RunView> load(const RunChoice& choice, const Context& context) {
    GDNCTL_TRY_ASSIGN(const fs::path folder, folder_of(choice, context));
    return load_evolve(folder);
}

// Of a terminal; elsewhere lines are not cut to the terminal of whoever started the command.
static std::size_t columns_of(const Context& context) {
    constexpr std::size_t k_usual = 100;
    return context.terminal.out_is_tty() ? static_cast<std::size_t>(context.terminal.columns()) : k_usual;
}

}  // namespace evolve

namespace evolve_show {

struct Options {
    evolve::RunChoice run;
    std::string id;
};

using namespace loop::evolve;

void describe(cli::Args& args, Options& options) {
    args.about("Shows one attempt of an evolve run: its operator and parents, its result, and every evaluation.");
    evolve::describe_id(args, options.id, "ID");
    evolve::describe_run(args, options.run);
    args.example("gdnctl evolve show best");
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const RunView view, evolve::load(options.run, context));
    GDNCTL_TRY_ASSIGN(const int attempt, attempt_of(view.state, options.id));
    if (context.global.json) {
        GDNCTL_TRY_ASSIGN(const Json facts, attempt_json(view, attempt));
        Json json = {{"schema", "gdnctl.evolve-show/1"}, {"run", view.state.run}};
        json.update(facts);
        print_json(json, context);
        return ExitCode::ok;
    }
    GDNCTL_TRY_ASSIGN(const std::string text, attempt_text(view, attempt));
    print_lines(toned_rows(text, context.terminal.color_out()), context);
    return ExitCode::ok;
}

}  // namespace evolve_show

namespace evolve_log {

struct Options {
    evolve::RunChoice run;
};

using namespace loop::evolve;

void describe(cli::Args& args, Options& options) {
    args.about("Lists the attempts of an evolve run, one line each.");
    evolve::describe_run(args, options.run);
    args.example("gdnctl evolve log");
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const RunView view, evolve::load(options.run, context));
    if (context.global.json) {
        print_json({{"schema", "gdnctl.evolve-log/1"}, {"run", view.state.run}, {"attempts", log_json(view.state)}},
                   context);
    } else {
        print_lines(toned_rows(log_text(view.state, evolve::columns_of(context)), context.terminal.color_out()),
                    context);
    }
    return ExitCode::ok;
}

}  // namespace evolve_log

namespace evolve_lineage {

struct Options {
    evolve::RunChoice run;
    std::optional<std::string> id;
};

using namespace loop::evolve;

void describe(cli::Args& args, Options& options) {
    args.about("Shows where a candidate comes from: its first parents, back to the base.");
    args.positional(options.id, "ID", "as for `evolve show`; without it the best candidate",
                    {.complete = cli::Complete::attempt});
    evolve::describe_run(args, options.run);
    args.example("gdnctl evolve lineage", "the ancestry of the best candidate");
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const RunView view, evolve::load(options.run, context));
    GDNCTL_TRY_ASSIGN(const int attempt, attempt_of(view.state, options.id.value_or("best")));
    const auto numbers = ancestry(view.state, attempt);
    if (context.global.json) {
        print_json({{"schema", "gdnctl.evolve-lineage/1"},
                    {"run", view.state.run},
                    {"attempts", lineage_json(view.state, numbers)}},
                   context);
    } else {
        print_lines(
            toned_rows(lineage_text(view.state, numbers, evolve::columns_of(context)), context.terminal.color_out()),
            context);
    }
    return ExitCode::ok;
}

}  // namespace evolve_lineage

namespace evolve_diff {

struct Options {
    evolve::RunChoice run;
    std::string from, to;
};

using namespace loop::evolve;

void describe(cli::Args& args, Options& options) {
    args.about("Prints the difference between two candidates as a patch.");
    evolve::describe_id(args, options.from, "A");
    evolve::describe_id(args, options.to, "B");
    evolve::describe_run(args, options.run);
    args.example("gdnctl evolve diff base best");
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const RunView view, evolve::load(options.run, context));
    std::vector<std::string> commits;
    for (const std::string& id : {options.from, options.to}) {
        GDNCTL_TRY_ASSIGN(const int attempt, attempt_of(view.state, id));
        commits.push_back(view.state.at(attempt).commit);
        if (commits.back().empty()) {
            return fail(ErrorKind::remote_missing, fmt::format("attempt {} left no candidate", attempt));
        }
    }
    GDNCTL_TRY_ASSIGN(const GitCheckout repository, repository_of(view.state, commits, context));
    GDNCTL_TRY_ASSIGN(const std::string patch, repository.patch(commits[0], commits[1], {}));
    if (context.global.json) {
        print_json({{"schema", "gdnctl.evolve-diff/1"}, {"from", commits[0]}, {"to", commits[1]}, {"patch", patch}},
                   context);
    } else {
        context.terminal.out(patch);
    }
    return ExitCode::ok;
}

}  // namespace evolve_diff

namespace evolve_best {

struct Options {};

using namespace loop::evolve;

void describe(cli::Args& args, Options&) {
    args.about(
        "Shows the best candidate of all runs of the target in this repository. Gains accumulate if a run started from "
        "another run's candidate; a weaker run never displaces the best.");
    args.exit_code(static_cast<int>(ExitCode::remote_missing), "there is no run");
    args.exit_code(static_cast<int>(ExitCode::conflict), "a journal is damaged");
    args.example("gdnctl evolve best");
    args.see_also("docs/evolve.md");
}

Result<ExitCode> run(const Options&, Context& context) {
    GDNCTL_TRY_ASSIGN(const fs::path newest, find_run(std::nullopt, std::nullopt, context));
    std::map<std::string, RunView> runs;  // by name, oldest first
    std::error_code problem;
    for (const auto& entry : fs::directory_iterator(newest.parent_path(), problem)) {
        if (!is_evolve_run(entry.path())) continue;
        GDNCTL_TRY_ASSIGN(RunView view, load_evolve(entry.path()));
        runs.emplace(view.state.run, std::move(view));
    }
    std::map<std::string, double> gains;        // of commits, against the first base
    std::map<std::string, double> shown_gains;  // the same by what decided
    const RunView* of = nullptr;
    double most = 0, shown_before = 0;
    for (const auto& [name, view] : runs) {
        const double from = gains.contains(view.state.base) ? gains[view.state.base] : 0;
        const double shown_from = shown_gains.contains(view.state.base) ? shown_gains[view.state.base] : 0;
        for (const Attempt& one : view.state.attempts) {
            if (one.verdict != Verdict::kept) continue;
            gains[one.commit] = from + one.gain;
            shown_gains[one.commit] = shown_from + one.gate_gain;
        }
        const double best = from + view.state.at(view.state.best).gain;
        if (of != nullptr && best <= most) continue;
        of = &view;
        most = best;
        shown_before = shown_from;
    }
    if (of == nullptr) return fail(ErrorKind::remote_missing, "no evolve run in this repository");
    const Attempt& best = of->state.at(of->state.best);
    if (context.global.json) {
        print_json({{"schema", "gdnctl.evolve-best/1"},
                    {"run", of->state.run},
                    {"attempt", best.number},
                    {"commit", best.commit},
                    {"gain_against_base", most}},
                   context);
    } else {
        print_lines(fmt::format("run {}, attempt {}, commit {}: {}\n", of->state.run, best.number,
                                best.commit.substr(0, 7), against_base_text(best, shown_before)),
                    context);
    }
    return ExitCode::ok;
}

}  // namespace evolve_best

Rows evolve_view_commands() {
    static constexpr cli::Command k_rows[] = {
        cli::make<&evolve_log::describe, &evolve_log::run>("evolve log", "Loop", "list the attempts of an evolve run",
                                                           Tier::none)
            .prints_report(),
        cli::make<&evolve_show::describe, &evolve_show::run>("evolve show", "Loop", "show one attempt", Tier::none)
            .prints_report(),
        cli::make<&evolve_lineage::describe, &evolve_lineage::run>("evolve lineage", "Loop",
                                                                   "show where a candidate comes from", Tier::none),
        cli::make<&evolve_diff::describe, &evolve_diff::run>("evolve diff", "Loop", "compare two candidates",
                                                             Tier::git),
        cli::make<&evolve_best::describe, &evolve_best::run>("evolve best", "Loop",
                                                             "show the best candidate of all runs", Tier::none)};
    return k_rows;
}

}  // namespace gdnctl::commands
