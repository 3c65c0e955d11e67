// gdnctl evolve promote, replay and noise.
#include <array>
#include <cstdint>

#include <fmt/format.h>

#include "commands/common.h"
#include "commands/log/common.h"
#include "commands/loop/loop_common.h"
#include "commands/table.h"
#include "core/json.h"
#include "core/log.h"
#include "core/result.h"
#include "core/tone.h"
#include "jobs/target_job.h"
#include "loop/engine/log_dir.h"
#include "loop/evolve/agent_dialogue.h"
#include "loop/evolve/run.h"
#include "loop/evolve/verify.h"
#include "platform/clock.h"
#include "platform/env.h"
#include "platform/fs.h"
#include "platform/progress.h"
#include "platform/terminal.h"
#include "target/target.h"

namespace gdnctl::commands {

namespace fs = std::filesystem;

namespace evolve {

using namespace loop::evolve;

namespace {

// A repository, a target and what judges its candidates.
class Bench {
public:
    Bench(GitCheckout repository, Target target, std::vector<std::string> clusters, const std::string& name,
          Context& context)
        : m_repository(std::move(repository)),
          m_target(std::move(target)),
          m_config(config_at(context)),
          m_worktrees(worktrees_of(context, name)),
          m_store(m_repository, name, path_rules(m_target), m_worktrees, context.process, context.clock) {
        m_options.clusters = std::move(clusters);
        m_evaluator.emplace(m_store, m_target, JobSettings{m_options, m_config, name, m_worktrees}, context);
    }
    const GitCheckout& repository() const { return m_repository; }
    const Target& target() const { return m_target; }
    Store& store() { return m_store; }
    Evaluator& evaluator() { return *m_evaluator; }

private:
    GitCheckout m_repository;
    Target m_target;
    loop::ValidationOptions m_options;
    loop::ConfigAt m_config;
    fs::path m_worktrees;
    Store m_store;
    std::optional<JobEvaluator> m_evaluator;
};

Result<std::unique_ptr<Bench>> make_bench(std::vector<std::string> clusters, const std::string& name,
                                          Context& context) {
    GDNCTL_TRY_ASSIGN(Target target, target_in_use(context));
    GDNCTL_TRY(check_target_is_named(target, true, context));
    GDNCTL_TRY_ASSIGN(GitCheckout repository, GitCheckout::open(context.cwd, context.process, context.clock));
    return std::make_unique<Bench>(std::move(repository), std::move(target), std::move(clusters), name, context);
}

std::vector<std::string> clusters_of(const State& state) {
    const Json config = Json::parse(state.config, nullptr, false);
    return config.is_object() ? config.value("clusters", std::vector<std::string>()) : std::vector<std::string>();
}

loop::PairRule rule_of(const State& state) {
    const Json config = Json::parse(state.config, nullptr, false);
    loop::PairRule rule;
    if (config.is_object()) {
        rule.min_gain = config.value("min_gain_pct", 0.5) / 100;
        rule.cap = config.value("pairs", 9);
    }
    return rule;
}

double shape_regression_of(const State& state) {
    const Json config = Json::parse(state.config, nullptr, false);
    return config.is_object() ? config.value("max_shape_regression_pct", 1.0) / 100 : .01;
}

// Shows the steps of the evaluator while it lives.
class ShownSteps {
public:
    ShownSteps(Evaluator& evaluator, std::string label, const Context& context)
        : m_evaluator(evaluator),
          m_progress(context.terminal, context.clock, {.label = std::move(label), .quiet = context.global.quiet}) {
        m_evaluator.on_step = [this](const std::string& step) {
            m_progress.note(step);
            m_progress.tick();
        };
    }
    ~ShownSteps() { m_evaluator.on_step = nullptr; }
    ShownSteps(const ShownSteps&) = delete;
    ShownSteps& operator=(const ShownSteps&) = delete;

private:
    Evaluator& m_evaluator;
    Progress m_progress;
};

std::string report_text(const GateReport& report) {
    std::string out;
    for (const GateRow& row : report.rows) out += fmt::format("{:<10} {:<6} {}\n", row.stage, row.verdict, row.reason);
    if (report.gain.n > 0) out += fmt::format("gain       {}\n", gain_text(report.gain));
    for (const Quadrant& one : report.quadrants) {
        out += fmt::format("{:<6} shapes, {:<6} seeds  {:<12} {}\n", one.unseen_shapes ? "unseen" : "seen",
                           one.unseen_seeds ? "unseen" : "seen", one.verdict,
                           one.gain ? gain_text(*one.gain) : std::string("not measured"));
    }
    return out;
}

Result<int> candidate_of(const State& state, const std::string& id) {
    GDNCTL_TRY_ASSIGN(const int attempt, attempt_of(state, id));
    if (state.at(attempt).commit.empty()) {
        return fail(ErrorKind::remote_missing, fmt::format("attempt {} left no candidate", attempt));
    }
    return attempt;
}

// The champion that an attempt was measured against.
Result<std::string> champion_of(const RunView& view, int attempt) {
    GDNCTL_TRY_ASSIGN(const Json json, attempt_json(view, attempt));
    int champion = 0;
    for (const auto& stage : json["stages"]) {
        if (stage.contains("metrics") && stage["metrics"].contains("champion")) {
            champion = stage["metrics"].value("champion", 0);
        }
    }
    return view.state.at(champion).commit;
}

Status check_evaluator(const Bench& bench, const State& state) {
    EvolvePlan plan;
    plan.base = state.base;
    EvolveRequest request;
    request.target = bench.target();
    GDNCTL_TRY(complete_config(plan, request, bench.target(), bench.repository()));
    if (plan.evaluator == state.evaluator) return {};
    return fail(ErrorKind::conflict,
                fmt::format("target {} is not the one that judged run {}", bench.target().name, state.run),
                "restore [targets." + bench.target().name + "] in gdnctl.toml, or start a new run");
}

}  // namespace

}  // namespace evolve

namespace evolve_noise {

struct Options {
    std::int64_t pairs = 9;
    double target_gain_pct = 2, min_gain_pct = 0.5;
    std::optional<std::string> cluster;
};

using namespace loop::evolve;

void describe(cli::Args& args, Options& options) {
    args.about(
        "Measures HEAD against itself: how far two profiles of the same code differ, the smallest gain that an attempt "
        "can be kept for, and how many pairs a smaller one would need.");
    args.option(options.pairs, "--pairs N", "pairs to measure: 3, 5 or 9");
    args.option(options.target_gain_pct, "--target-gain-pct P", "gain that must be detectable, in percent");
    args.option(options.min_gain_pct, "--perf-min-improvement-pct P",
                "gain that an attempt must exceed to be kept, in percent");
    args.option(options.cluster, "--cluster NAME", "cluster to run the profiles on");
    args.exit_code(1, "the gain is not detectable, or the profile fails");
    args.example("gdnctl evolve noise --pairs 9");
    args.see_also("docs/evolve.md");
    args.check([&options]() -> Status {
        if (options.pairs != 3 && options.pairs != 5 && options.pairs != 9) {
            return fail(ErrorKind::usage, "--pairs: expected 3, 5 or 9");
        }
        return {};
    });
}

Result<ExitCode> run(const Options& options, Context& context) {
    std::vector<std::string> clusters;
    if (options.cluster) clusters.push_back(*options.cluster);
    GDNCTL_TRY_ASSIGN(const auto bench,
                      evolve::make_bench(std::move(clusters), evolve::new_run(context.clock) + "-noise", context));
    GDNCTL_TRY_ASSIGN(const GitHead head, bench->repository().head());
    GDNCTL_TRY_ASSIGN(const TempFolder folder,
                      TempFolder::make(context.env.get("TMPDIR").value_or("/tmp"), "gdnctl-noise"));
    const int count = static_cast<int>(options.pairs);
    std::optional<evolve::ShownSteps> shown(std::in_place, bench->evaluator(), "measuring the noise", context);
    GDNCTL_TRY_ASSIGN(const Comparison pairs,
                      measure_pairs(bench->evaluator(), head.sha, head.sha, count, folder.path() / "noise.log"));
    shown.reset();
    if (!pairs.decided) {
        return fail(pairs.failed.infra ? ErrorKind::infrastructure : ErrorKind::check_failed,
                    "the profile of HEAD fails: " + pairs.failed.reason);
    }
    const NoiseVerdict noise =
        judge_noise(pairs.look.deviation, options.min_gain_pct / 100, options.target_gain_pct / 100, count);
    if (context.global.json) {
        print_json({{"schema", "gdnctl.evolve-noise/1"},
                    {"commit", head.sha},
                    {"pairs", count},
                    {"sd_pct", loop::to_percent(pairs.look.deviation)},
                    {"detectable_pct", noise.detectable_pct},
                    {"pairs_needed", noise.pairs_needed},
                    {"target_gain_pct", options.target_gain_pct},
                    {"d", pairs.d}},
                   context);
    } else {
        print_lines(
            fmt::format("sd_pct         {:.3f}\ndetectable_pct {:.2f} with {} pairs\npairs_needed   {}\n",
                        loop::to_percent(pairs.look.deviation), noise.detectable_pct, count,
                        noise.pairs_needed != 0 ? std::to_string(noise.pairs_needed)
                        : noise.possible        ? std::string("more than 1000")
                                         : std::string("none: the target gain is not above the smallest to keep")),
            context);
    }
    return noise.fits ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace evolve_noise

namespace evolve_replay {

struct Options {
    evolve::RunChoice run;
    std::string id;
};

using namespace loop::evolve;

void describe(cli::Args& args, Options& options) {
    args.about(
        "Runs the gates on a candidate again, in fresh checkouts, against the champion at that time. The run's "
        "verdicts "
        "stay as they are.");
    args.positional(options.id, "ID", "number of an attempt, `last`, `best`, or the first digits of a commit",
                    {.complete = cli::Complete::attempt});
    evolve::describe_run(args, options.run);
    args.exit_code(1, "a gate does not pass");
    args.exit_code(static_cast<int>(ExitCode::infrastructure), "infrastructure failed; there is no result");
    args.example("gdnctl evolve replay best");
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const RunView view, evolve::load(options.run, context));
    GDNCTL_TRY_ASSIGN(const int attempt, evolve::candidate_of(view.state, options.id));
    GDNCTL_TRY_ASSIGN(const std::string champion, evolve::champion_of(view, attempt));
    const std::array commits = {view.state.base, champion, view.state.at(attempt).commit};
    GDNCTL_TRY(repository_of(view.state, commits, context));
    GDNCTL_TRY_ASSIGN(const auto bench,
                      evolve::make_bench(evolve::clusters_of(view.state), view.state.run + "-replay", context));
    GDNCTL_TRY_ASSIGN(const TempFolder folder,
                      TempFolder::make(context.env.get("TMPDIR").value_or("/tmp"), "gdnctl-replay"));
    std::optional<evolve::ShownSteps> shown(std::in_place, bench->evaluator(),
                                            fmt::format("judging attempt {}", attempt), context);
    GDNCTL_TRY_ASSIGN(const GateReport report, judge_again(bench->store(), bench->evaluator(),
                                                           {view.state, champion, view.state.at(attempt).commit,
                                                            PairTest::keep_gate, evolve::rule_of(view.state),
                                                            evolve::shape_regression_of(view.state), folder.path()}));
    shown.reset();
    if (context.global.json) {
        Json facts = {{"schema", "gdnctl.evolve-replay/1"}};
        facts.update(verify_record(view.state, attempt, report));
        print_json(facts, context);
    } else {
        print_lines(toned_rows(evolve::report_text(report), context.terminal.color_out()), context);
    }
    if (report.infra) return ExitCode::infrastructure;
    return report.pass ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace evolve_replay

namespace evolve_promote {

struct Options {
    evolve::RunChoice run;
    std::string id;
};

using namespace loop::evolve;

void describe(cli::Args& args, Options& options) {
    args.about(
        "Moves the branch that the run started from to a kept candidate, after a final verification: every gate again, "
        "nine fresh pairs against the base commit, and tests and pairs on seeds that no attempt has seen and, if the "
        "target supports GDNCTL_EVAL_SHAPES, on new shapes. The branch only moves forward, and only if nobody else has "
        "moved it.");
    args.positional(options.id, "ID", "number of an attempt, `last`, `best`, or the first digits of a commit",
                    {.complete = cli::Complete::attempt});
    evolve::describe_run(args, options.run);
    args.exit_code(1, "the candidate was not kept, or the final verification failed");
    args.exit_code(static_cast<int>(ExitCode::usage), "the checkout has uncommitted changes, or HEAD was detached");
    args.exit_code(static_cast<int>(ExitCode::infrastructure), "infrastructure failed; the branch did not move");
    args.exit_code(static_cast<int>(ExitCode::conflict),
                   "the branch moved, the run is active, or its journal is damaged");
    args.example("gdnctl evolve promote best");
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const fs::path folder, evolve::folder_of(options.run, context));
    GDNCTL_TRY_ASSIGN(const RunView view, load_evolve(folder));
    GDNCTL_TRY_ASSIGN(const int attempt, evolve::candidate_of(view.state, options.id));
    const Attempt& one = view.state.at(attempt);
    if (attempt == 0 || one.verdict != Verdict::kept) {
        return fail(ErrorKind::check_failed,
                    attempt == 0 ? std::string("nothing was kept: the best candidate is the base commit")
                                 : fmt::format("attempt {} was not kept: {}", attempt, to_text(one.verdict)),
                    "see `gdnctl evolve log`");
    }
    GDNCTL_TRY(repository_of(view.state, std::array{view.state.base, one.commit}, context));
    GDNCTL_TRY_ASSIGN(const auto bench,
                      evolve::make_bench(evolve::clusters_of(view.state), view.state.run + "-promote", context));
    GDNCTL_TRY_ASSIGN(const auto lock,
                      loop::LoopLock::acquire(folder, bench->repository().common_dir(), context.clock.wall()));
    GDNCTL_TRY_ASSIGN(EvolveJournal journal, EvolveJournal::open(folder));
    GDNCTL_TRY(evolve::check_evaluator(*bench, view.state));
    GDNCTL_TRY(check_branch(bench->repository(), view.state));
    GateReport report;
    if (const auto known = verification_of(view.state, attempt)) {
        log::info("attempt {} passed the final verification at {}, and nothing has changed since", attempt,
                  json::text(*known, "ts"));
        report = report_of(*known);
    } else {
        const evolve::ShownSteps shown(bench->evaluator(), fmt::format("verifying attempt {}", attempt), context);
        GDNCTL_TRY_ASSIGN(report, judge_again(bench->store(), bench->evaluator(),
                                              {view.state, view.state.base, one.commit, PairTest::final_one,
                                               evolve::rule_of(view.state), evolve::shape_regression_of(view.state),
                                               folder / "verify"}));
        GDNCTL_TRY(journal.add("verify", verify_record(view.state, attempt, report), context.clock.wall()));
    }
    Json facts = {{"schema", "gdnctl.evolve-promote/1"}};
    facts.update(verify_record(view.state, attempt, report));
    if (report.pass) {
        GDNCTL_TRY(land_on_branch(bench->repository(), view.state, one.commit));
        GDNCTL_TRY(journal.add("promote", {{"attempt", attempt}, {"commit", one.commit}, {"branch", view.state.branch}},
                               context.clock.wall()));
    }
    facts["promoted"] = report.pass;
    facts["branch"] = view.state.branch;
    if (context.global.json) {
        print_json(facts, context);
    } else {
        print_lines(toned_rows(evolve::report_text(report), context.terminal.color_out()), context);
        if (report.pass)
            print_lines(fmt::format("{} is at {}\n", view.state.branch, one.commit.substr(0, 12)), context);
    }
    if (report.infra) return ExitCode::infrastructure;
    return report.pass ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace evolve_promote

Rows evolve_judge_commands() {
    static constexpr cli::Command k_rows[] = {
        cli::make<&evolve_promote::describe, &evolve_promote::run>(
            "evolve promote", "Loop", "verify a candidate and move the branch to it", Tier::http),
        cli::make<&evolve_replay::describe, &evolve_replay::run>("evolve replay", "Loop", "judge a candidate again",
                                                                 Tier::http),
        cli::make<&evolve_noise::describe, &evolve_noise::run>("evolve noise", "Loop",
                                                               "measure the noise of the profile", Tier::http)};
    return k_rows;
}

}  // namespace gdnctl::commands
