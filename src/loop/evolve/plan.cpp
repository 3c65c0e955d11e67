#include "loop/evolve/plan.h"

#include <algorithm>
#include <random>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "core/time.h"
#include "platform/clock.h"
#include "platform/fs.h"
#include "platform/hash.h"
#include "platform/random_hex.h"

namespace gdnctl::loop::evolve {

namespace fs = std::filesystem;

namespace {

tl::unexpected<Error> wrong(std::string message, std::string hint = {}) {
    return fail(ErrorKind::usage, std::move(message), std::move(hint));
}

double number_in(const ConfigTable& table, std::string_view key) {
    const auto at = table.find(key);
    if (at == table.end()) return 0;
    if (const auto* whole = std::get_if<std::int64_t>(&at->second.value)) return static_cast<double>(*whole);
    const auto* real = std::get_if<double>(&at->second.value);
    return real != nullptr ? *real : 0;
}

// Of [codex-loop.prices.MODEL]; a model's name may hold dots.
std::optional<Price> price_of(const Context& context, const std::string& model) {
    const ConfigValue* prices = context.config.find("codex-loop.prices");
    const ConfigTable* table = prices != nullptr ? prices->as_table() : nullptr;
    const auto at = table != nullptr ? table->find(model) : ConfigTable::const_iterator();
    if (table == nullptr || at == table->end() || at->second.as_table() == nullptr) return std::nullopt;
    const ConfigTable& of = *at->second.as_table();
    return Price{number_in(of, "in"), number_in(of, "cached"), number_in(of, "out")};
}

Json job_json(const std::optional<TargetJob>& job) {
    if (!job) return nullptr;
    Json env = Json::array();
    for (const auto& [name, value] : job->env) env.push_back(name + "=" + value);
    return {{"argv", job->argv}, {"env", env}, {"workdir", job->workdir}};
}

Json target_json(const Target& target) {
    Json json = {{"name", target.name},         {"kernel", target.kernel},       {"protected", target.protected_paths},
                 {"validate", target.validate}, {"test", job_json(target.test)}, {"profile", job_json(target.profile)}};
    if (target.metric) {
        json["metric"] = {{"name", target.metric->name},
                          {"from", target.metric->from},
                          {"better", target.metric->lower_is_better ? "lower" : "higher"}};
    }
    if (!target.floor.empty()) json["floor"] = target.floor;
    if (!target.kernel_op.empty()) json["kernel_op"] = target.kernel_op;
    return json;
}

// The newest run by its name, which begins with its time; empty: none. One that was refused has an empty journal and no
// state.
std::string newest_run(const fs::path& root) {
    std::string newest;
    std::error_code problem;
    for (const auto& entry : fs::directory_iterator(root, problem)) {
        const std::string name = entry.path().filename().string();
        const std::uintmax_t size = fs::file_size(entry.path() / "journal.jsonl", problem);
        if (problem) continue;
        if (name > newest && (size > 0 || fs::exists(entry.path() / "state.json", problem))) newest = name;
    }
    return newest;
}

bool names_log_dir(const std::string& log_dir) { return log_dir != LoopOptions{}.log_dir; }

Status check_numbers(const EvolveOptions& evolve, const LoopOptions& loop, const GateChoices& gates) {
    const auto at_least_one = [](const char* name, const std::optional<std::int64_t>& value) -> Status {
        if (value && *value < 1) return wrong(fmt::format("{} must be at least 1", name));
        return {};
    };
    GDNCTL_TRY(at_least_one("--max-attempts", evolve.max_attempts));
    GDNCTL_TRY(at_least_one("--max-no-improve", evolve.no_improve));
    GDNCTL_TRY(at_least_one("--max-tokens", loop.max_tokens));
    GDNCTL_TRY(at_least_one("--max-wall", loop.max_wall_s));
    GDNCTL_TRY(at_least_one("--lineages", evolve.lineages));
    GDNCTL_TRY(at_least_one("--stagnation", evolve.stagnation));
    if (evolve.max_usd && *evolve.max_usd <= 0) return wrong("--max-usd must be greater than 0");
    if (evolve.device_s && *evolve.device_s <= 0) return wrong("--max-device-seconds must be greater than 0");
    if (evolve.reserve_pct < 0 || evolve.reserve_pct > 100) return wrong("--reserve-final: expected 0 to 100 percent");
    if (evolve.target_gain_pct <= 0) return wrong("--target-gain-pct must be greater than 0");
    if (evolve.max_shape_regression_pct < 0) return wrong("--max-shape-regression-pct must not be negative");
    const std::int64_t pairs = gates.perf.pairs;
    if (pairs != 3 && pairs != 5 && pairs != 9) return wrong("--perf-pairs: expected 3, 5 or 9 with --mode evolve");
    return {};
}

}  // namespace

fs::path resumed_folder(const std::string& log_dir, const fs::path& root) {
    if (names_log_dir(log_dir)) return (root / log_dir).lexically_normal();
    const std::string newest = newest_run(root / k_usual_root);
    return newest.empty() ? fs::path() : (root / k_usual_root / newest).lexically_normal();
}

Status check_evolve(const EvolveRequest& request) {
    const EvolveOptions& evolve = request.evolve;
    const LoopOptions& loop = request.loop;
    GDNCTL_TRY(check_numbers(evolve, loop, request.gates));
    if (!evolve.max_attempts && !evolve.no_improve && !evolve.max_usd && !evolve.device_s && !loop.max_wall_s &&
        !loop.max_tokens) {
        return wrong("--mode evolve needs a budget",
                     "pass at least one of --max-attempts, --max-wall, --max-tokens, --max-usd, --max-device-seconds, "
                     "--max-no-improve");
    }
    if (!evolve.operator_mix.empty()) GDNCTL_TRY(parse_mix(evolve.operator_mix));
    if (request.dry_run) {
        if (loop.resume) return wrong("--dry-run and --resume cannot be combined: a dry run's repository is temporary");
        return {};
    }
    const Target& target = request.target;
    const auto lacks = [&](const char* what) {
        return fail(ErrorKind::config, fmt::format("target {} has no {}: --mode evolve needs one", target.name, what),
                    fmt::format("add it to [targets.{}] in gdnctl.toml", target.name));
    };
    if (target.kernel.empty()) return lacks("kernel");
    if (!target.test) return lacks("test");
    if (!target.profile) return lacks("profile");
    if (!target.metric) return lacks("metric");
    if (loop.agent == AgentKind::command && loop.agent_command.empty()) {
        return wrong("--agent command requires --agent-command");
    }
    if (loop.agent == AgentKind::codex && evolve.edits) {
        return wrong("--edit-protocol v1 is for models without tools", "add --agent command --agent-command CMD");
    }
    return {};
}

PathRules path_rules(const Target& target) { return {target.kernel, target.protected_paths}; }

PairRule pair_rule(const GateChoices& gates) {
    PairRule rule;
    rule.min_gain = gates.perf.min_improvement_pct.value_or(0.5) / 100;
    rule.cap = static_cast<int>(gates.perf.pairs);
    return rule;
}

fs::path worktrees_of(const Context& context, std::string_view run) { return context.state_dir / "worktrees" / run; }

Result<EvolvePlan> make_plan(const EvolveRequest& request, const GitCheckout& repository, const fs::path& cwd,
                             const Context& context) {
    EvolvePlan plan;
    plan.run = fmt::format("{}z-{}", text::to_lower(format_compact_utc(context.clock.wall())), random_hex(4));
    plan.loop_id = random_hex(32);
    std::random_device random;
    plan.seed = request.evolve.seed.value_or((std::uint64_t{random()} << 32U) | random());
    const fs::path runs = repository.root() / k_usual_root;
    if (request.loop.resume) {
        plan.log_dir = resumed_folder(request.loop.log_dir, repository.root());
        if (plan.log_dir.empty()) {
            return fail(ErrorKind::remote_missing, fmt::format("no evolve run in {}", runs.string()),
                        "start one without --resume, or name its --log-dir");
        }
    } else if (names_log_dir(request.loop.log_dir)) {
        plan.log_dir = (request.dry_run ? context.cwd : repository.root()) / request.loop.log_dir;
    } else {
        plan.log_dir = runs / plan.run;
    }
    plan.log_dir = plan.log_dir.lexically_normal();
    plan.worktrees = request.dry_run ? cwd.parent_path() / "worktrees" : worktrees_of(context, plan.run);
    const EvolveOptions& evolve = request.evolve;
    plan.budget.attempts = evolve.max_attempts;
    plan.budget.no_improve = evolve.no_improve;
    plan.budget.usd = evolve.max_usd;
    plan.budget.device_s = evolve.device_s;
    plan.budget.wall_s = request.loop.max_wall_s;
    plan.budget.tokens = request.loop.max_tokens;
    plan.budget.reserve = evolve.reserve_pct / 100;
    plan.pairs = pair_rule(request.gates);
    plan.price = price_of(context, request.loop.model);
    if (evolve.max_usd && !plan.price && !request.dry_run) {
        return fail(ErrorKind::usage, fmt::format("--max-usd: the price of model {} is not known", request.loop.model),
                    fmt::format("add [codex-loop.prices.\"{}\"] with in, cached and out (USD per million tokens) to "
                                "gdnctl.toml",
                                request.loop.model));
    }
    return plan;
}

Result<std::string> base_commit(const std::string& from, const GitCheckout& repository) {
    if (from.empty()) return repository.head().map([](const GitHead& head) { return head.sha; });
    for (const std::string& name : {ref_of(from, "best"), from}) {
        GDNCTL_TRY_ASSIGN(const auto commit, repository.resolve(name));
        if (commit) return *commit;
    }
    return fail(ErrorKind::usage, fmt::format("--from: {} is neither a run nor a commit", from));
}

Status complete_config(EvolvePlan& plan, const EvolveRequest& request, const Target& target,
                       const GitCheckout& repository) {
    const LoopOptions& loop = request.loop;
    const EvolveOptions& evolve = request.evolve;
    GDNCTL_TRY_ASSIGN(const auto mix, evolve.operator_mix.empty() ? Result<OperatorMix>(k_default_mix)
                                                                  : parse_mix(evolve.operator_mix));
    const bool codex = loop.agent == AgentKind::codex && !request.dry_run;
    const Json config = {{"target", target_json(target)},
                         {"agent", request.dry_run ? "scripted"
                                   : codex         ? "codex"
                                                   : "command"},
                         {"agent_command", loop.agent_command},
                         {"model", codex ? loop.model : ""},
                         {"effort", codex ? loop.reasoning_effort : ""},
                         {"edit_protocol", evolve.edits ? "v1" : "tools"},
                         {"lineages", evolve.lineages},
                         {"stagnation", evolve.stagnation},
                         {"operator_mix", to_text(mix)},
                         {"min_gain_pct", plan.pairs.min_gain * 100},
                         {"pairs", plan.pairs.cap},
                         {"target_gain_pct", evolve.target_gain_pct},
                         {"max_shape_regression_pct", evolve.max_shape_regression_pct},
                         {"clusters", request.gates.validation.clusters}};
    plan.config = gdnctl::to_text(config);
    // What judges: the target's jobs, and the protected files of the base.
    std::string judged = gdnctl::to_text(target_json(target)) + "\n";
    const PathRules rules = path_rules(target);
    GDNCTL_TRY_ASSIGN(const auto files, repository.files(plan.base));
    for (const GitFile& file : files) {
        if (rules.is_protected(file.path)) judged += fmt::format("{} {}\n", file.object, file.path);
    }
    GDNCTL_TRY_ASSIGN(plan.evaluator, hash_hex(HashKind::sha256, judged));
    return {};
}

std::vector<std::string> config_changes(const State& state, const EvolvePlan& plan, std::optional<std::uint64_t> seed) {
    std::vector<std::string> changed;
    const Json was = Json::parse(state.config, nullptr, false), now = Json::parse(plan.config, nullptr, false);
    for (const auto& [key, value] : now.items()) {
        const auto then = was.is_object() ? was.find(key) : was.end();
        // Runs of before this option had its default.
        const bool newer = was.is_object() && then == was.end() && key == "max_shape_regression_pct";
        if (newer ? value != Json(1.0) : !was.is_object() || then == was.end() || *then != value)
            changed.push_back(key);
    }
    if (state.evaluator != plan.evaluator) changed.emplace_back("evaluator");
    if (seed && *seed != state.seed) changed.emplace_back("seed");
    return changed;
}

std::string goal_of(const Target& target) {
    if (!target.metric) return {};
    return fmt::format("\nThe goal: a {} {}{}, measured by the target `{}`, with all its tests passing.\n",
                       target.metric->lower_is_better ? "lower" : "higher", target.metric->name,
                       target.metric->unit.empty() ? "" : " (" + target.metric->unit + ")", target.name);
}

Result<fs::path> find_run(const std::optional<std::string>& run, const std::optional<std::string>& log_dir,
                          const Context& context) {
    const fs::path root = find_repository_root(context.cwd).value_or(context.cwd);
    std::error_code problem;
    if (log_dir) {
        for (const fs::path& start : {context.cwd, root}) {
            if (fs::is_directory(start / *log_dir, problem)) return (start / *log_dir).lexically_normal();
        }
        return wrong(fmt::format("--log-dir: no such directory: {}", (context.cwd / *log_dir).string()));
    }
    const fs::path runs = root / k_usual_root;
    const std::string name = run.value_or(newest_run(runs));
    if (name.empty() || name.find('/') != std::string::npos || !fs::exists(runs / name / "journal.jsonl", problem)) {
        return fail(ErrorKind::remote_missing,
                    name.empty() ? fmt::format("no evolve run in {}", runs.string())
                                 : fmt::format("no evolve run {} in {}", name, runs.string()),
                    "start one with `gdnctl codex-loop --mode evolve`, or name its --log-dir");
    }
    return runs / name;
}

}  // namespace gdnctl::loop::evolve
