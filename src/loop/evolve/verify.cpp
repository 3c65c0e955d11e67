#include "loop/evolve/verify.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "core/json.h"
#include "core/version.h"
#include "platform/fs.h"

namespace gdnctl::loop::evolve {

namespace fs = std::filesystem;

namespace {

constexpr int k_final_pairs = 9, k_quadrant_pairs = 3;
constexpr double k_final_t = 2.896;  // one-sided .01, eight degrees of freedom

class Judge {
public:
    Judge(const Store& store, Evaluator& evaluator, const JudgeOrder& order)
        : m_store(store), m_evaluator(evaluator), m_folder(order.folder) {}

    Result<bool> paths(const std::string& base, const std::string& candidate) {
        GDNCTL_TRY_ASSIGN(const auto changes, m_store.repository().diff(base, candidate));
        const bool clean = std::all_of(changes.begin(), changes.end(), [&](const GitFileChange& change) {
            return m_store.rules().is_mutable(change.path);
        });
        return note("paths", clean, false, clean ? "" : "it differs from the base outside the mutable paths");
    }

    Result<bool> launch(std::string_view stage, LaunchKind kind, const std::string& candidate) {
        if (!m_evaluator.has(kind)) {
            report.rows.push_back({std::string(stage), "skip", ""});
            return true;
        }
        say(stage);
        GDNCTL_TRY_ASSIGN(const Launch end, m_evaluator.launch(kind, candidate, log(stage)));
        report.device_s += end.device_s;
        return note(stage, end.ok, end.infra, end.reason);
    }

    Result<bool> cheats(const std::string& candidate) {
        say("anticheat");
        GDNCTL_TRY_ASSIGN(const CheatCheck found, check_cheats(m_evaluator, candidate, log("anticheat")));
        report.device_s += found.end.device_s;
        if (!found.skipped) return note("anticheat", found.end.ok, found.end.infra, found.end.reason);
        report.rows.push_back({"anticheat", "skip", ""});
        return true;
    }

    Result<bool> pairs(const JudgeOrder& order) {
        const std::string &champion = order.champion, &candidate = order.candidate;
        const bool final_one = order.test == PairTest::final_one;
        GDNCTL_TRY_ASSIGN(Comparison measured,
                          final_one ? measure_pairs(m_evaluator, champion, candidate, k_final_pairs, log("target"))
                                    : compare(m_evaluator, champion, candidate, order.rule, log("target")));
        report.device_s += measured.device_s;
        report.device = measured.device;
        if (!measured.decided) {
            return note("target", false, measured.failed.infra || measured.champion_failed, measured.failed.reason);
        }
        PairLook& look = measured.look;
        bool holds = look.verdict == PairVerdict::keep;
        if (final_one) {
            const double h = k_final_t * look.deviation / std::sqrt(static_cast<double>(k_final_pairs));
            look.low = look.mean - h;
            look.high = look.mean + h;
            holds = look.low > 0;
        }
        report.gain = gain_of(look);
        if (holds && measured.is_slower_by_wall()) {
            return note("target", false, false, "it is faster on the device, but slower by wall time");
        }
        const std::string slower = slower_shape(measured, order.shape_regression);
        if (!slower.empty()) return note("target", false, false, "slower on shape " + slower);
        return note("target", holds, false, holds ? "" : "its gain is not distinguishable from the noise");
    }

    // What the gates before have shown is the quadrant of seen shapes and unseen seeds.
    Result<bool> quadrants(const JudgeOrder& order) {
        bool pass = true, infra = false;
        std::string reason;
        for (const bool unseen_shapes : {false, true}) {
            for (const bool unseen_seeds : {false, true}) {
                Quadrant one{unseen_shapes, unseen_seeds, "pass", report.gain};
                if (unseen_shapes || !unseen_seeds) {
                    GDNCTL_TRY_ASSIGN(const std::string problem, measure(order, one));
                    if (!problem.empty() && reason.empty()) {
                        reason = fmt::format("{} shapes, {} seeds: {}", unseen_shapes ? "unseen" : "seen",
                                             unseen_seeds ? "unseen" : "seen", problem);
                    }
                }
                pass = pass && one.verdict != "fail" && one.verdict != "infra";
                infra = infra || one.verdict == "infra";
                report.quadrants.push_back(std::move(one));
            }
        }
        m_evaluator.set_conditions({});
        return note("quadrants", pass, infra, reason);
    }

    GateReport report;

private:
    // Why the quadrant does not pass; empty: it does, or cannot be measured.
    Result<std::string> measure(const JudgeOrder& order, Quadrant& one) {
        Conditions conditions;
        conditions.unseen = one.unseen_shapes;
        if (!one.unseen_seeds) conditions.seed = order.state.seed >> 11U;
        m_evaluator.set_conditions(conditions);
        one.gain.reset();
        const fs::path file = log("quadrants");
        say(fmt::format("test on {} shapes and {} seeds", one.unseen_shapes ? "unseen" : "seen",
                        one.unseen_seeds ? "unseen" : "seen"));
        GDNCTL_TRY_ASSIGN(const Launch test, m_evaluator.launch(LaunchKind::test, order.candidate, file));
        report.device_s += test.device_s;
        if (!test.ok) {
            one.verdict = test.infra ? "infra" : "fail";
            return test.reason;
        }
        if (one.unseen_shapes && !test.unseen) {
            one.verdict = "not measured";
            return std::string();
        }
        GDNCTL_TRY_ASSIGN(const Comparison pairs,
                          measure_pairs(m_evaluator, order.champion, order.candidate, k_quadrant_pairs, file));
        report.device_s += pairs.device_s;
        if (!pairs.decided) {
            const bool infra = pairs.failed.infra || pairs.champion_failed;
            one.verdict = infra ? "infra" : "fail";
            return pairs.failed.reason;
        }
        if (one.unseen_shapes && !pairs.unseen) return std::string();  // the test alone obeys
        one.gain = gain_of(pairs.look);
        if (pairs.look.high >= -std::log1p(order.shape_regression)) return std::string();
        one.verdict = "fail";
        return std::string("slower than the base");
    }

    void say(std::string_view step) const {
        if (m_evaluator.on_step) m_evaluator.on_step(std::string(step));
    }
    fs::path log(std::string_view stage) const { return m_folder / fmt::format("stage-{}.log", stage); }
    bool note(std::string_view stage, bool ok, bool infra, std::string reason) {
        report.rows.push_back({std::string(stage), ok ? "pass" : infra ? "infra" : "fail", std::move(reason)});
        report.infra = report.infra || (!ok && infra);
        return ok;
    }
    const Store& m_store;
    Evaluator& m_evaluator;
    const fs::path m_folder;
};

Result<GateReport> pass_gates(const Store& store, Evaluator& evaluator, const JudgeOrder& order) {
    if (order.state.prints_nonce) evaluator.require_nonce();
    Judge judge(store, evaluator, order);
    const std::string& candidate = order.candidate;
    const auto launch = [&](std::string_view stage, LaunchKind kind) {
        return [&judge, stage, kind, &candidate] { return judge.launch(stage, kind, candidate); };
    };
    const std::function<Result<bool>()> gates[] = {
        [&] { return judge.paths(order.state.base, candidate); },
        launch("build", LaunchKind::build),
        launch("test", LaunchKind::test),
        launch("oracle", LaunchKind::oracle),
        [&] { return judge.cheats(candidate); },
        [&] { return judge.pairs(order); },
        [&]() -> Result<bool> { return order.test == PairTest::keep_gate ? true : judge.quadrants(order); },
        launch("recheck", LaunchKind::test),
    };
    judge.report.pass = true;
    for (const auto& gate : gates) {
        GDNCTL_TRY_ASSIGN(judge.report.pass, gate());
        if (!judge.report.pass) break;
    }
    return std::move(judge.report);
}

}  // namespace

Json json_of(const std::vector<Quadrant>& quadrants) {
    Json out = Json::array();
    for (const Quadrant& one : quadrants) {
        out.push_back({{"shapes", one.unseen_shapes ? "unseen" : "seen"},
                       {"seeds", one.unseen_seeds ? "unseen" : "seen"},
                       {"verdict", one.verdict},
                       {"gain", one.gain ? json_of(*one.gain) : Json()}});
    }
    return out;
}

Result<GateReport> judge_again(Store& store, Evaluator& evaluator, const JudgeOrder& order) {
    GDNCTL_TRY(make_private_directory(order.folder));
    GDNCTL_TRY(store.remember_setup());
    auto report = pass_gates(store, evaluator, order);
    GDNCTL_TRY(store.restore_setup());  // the gates ran the agent's code
    return report;
}

Json verify_record(const State& state, int attempt, const GateReport& report) {
    Json gates = Json::array();
    for (const GateRow& row : report.rows) {
        gates.push_back({{"stage", row.stage}, {"verdict", row.verdict}, {"reason", row.reason}});
    }
    return {{"run", state.run},
            {"attempt", attempt},
            {"commit", state.at(attempt).commit},
            {"pass", report.pass},
            {"gain", json_of(report.gain)},
            {"gates", gates},
            {"quadrants", json_of(report.quadrants)},
            {"evaluator", state.evaluator},
            {"device", report.device},
            {"version", version()}};
}

std::optional<Json> verification_of(const State& state, int attempt) {
    Json record = Json::parse(state.verified, nullptr, false);
    if (!record.is_object()) return std::nullopt;
    const std::string device = json::text(record, "device");
    const bool holds = json::boolean(record, "pass").value_or(false) && json::integer(record, "attempt") == attempt &&
                       json::text(record, "commit") == state.at(attempt).commit &&
                       json::text(record, "evaluator") == state.evaluator &&
                       json::text(record, "version") == version() && device == state.device &&
                       (!device.starts_with(k_local_device) || device == local_device());
    return holds ? std::optional(std::move(record)) : std::nullopt;
}

std::optional<FailedVerification> failed_verification(const State& state) {
    const Json record = Json::parse(state.verified, nullptr, false);
    const bool about_best = record.is_object() && state.best != 0 && json::integer(record, "attempt") == state.best &&
                            json::text(record, "commit") == state.at(state.best).commit;
    if (!about_best || json::boolean(record, "pass").value_or(true)) return std::nullopt;
    FailedVerification out{state.best, "", ""};
    for (const auto& row : json::field(record, "gates")) {
        const std::string verdict = json::text(row, "verdict");
        if (verdict == "fail") out = {state.best, json::text(row, "stage"), json::text(row, "reason")};
    }
    return out;
}

GateReport report_of(const Json& record) {
    GateReport report;
    report.pass = json::boolean(record, "pass").value_or(false);
    report.gain = read_gain(json::field(record, "gain"));
    for (const auto& row : json::field(record, "gates")) {
        report.rows.push_back({json::text(row, "stage"), json::text(row, "verdict"), json::text(row, "reason")});
    }
    for (const auto& row : json::field(record, "quadrants")) {
        Quadrant one{json::text(row, "shapes") == "unseen", json::text(row, "seeds") == "unseen",
                     json::text(row, "verdict"), std::nullopt};
        if (const Json& measured = json::field(row, "gain"); measured.is_object()) one.gain = read_gain(measured);
        report.quadrants.push_back(std::move(one));
    }
    return report;
}

Result<GitCheckout> repository_of(const State& state, std::span<const std::string> commits, Context& context) {
    const Json config = Json::parse(state.config, nullptr, false);
    if (config.is_object() && config.value("agent", "") == "scripted") {
        return fail(ErrorKind::remote_missing,
                    fmt::format("run {} was a dry run: its candidates were in a temporary repository", state.run),
                    "start a run without --dry-run");
    }
    GDNCTL_TRY_ASSIGN(GitCheckout repository, GitCheckout::open(context.cwd, context.process, context.clock));
    for (const std::string& commit : commits) {
        if (commit.empty()) return fail(ErrorKind::remote_missing, "the attempt left no candidate");
        GDNCTL_TRY_ASSIGN(const auto found, repository.resolve(commit));
        if (found) continue;
        return fail(
            ErrorKind::remote_missing,
            fmt::format("{} lacks commit {} of run {}", repository.root().string(), commit.substr(0, 12), state.run),
            fmt::format("use the repository of the run, or fetch it from there: {}", k_fetch));
    }
    return repository;
}

Status check_branch(const GitCheckout& repository, const State& state) {
    if (state.branch.empty()) {
        return fail(ErrorKind::config, "HEAD was detached when the run began: there is no branch to move",
                    fmt::format("make one: git branch NAME {}", ref_of(state.run, "best")));
    }
    GDNCTL_TRY_ASSIGN(const auto tip, repository.resolve(state.branch));
    if (!tip || *tip != state.base) {
        return fail(ErrorKind::conflict,
                    fmt::format("{} is at {}, not at the run's base {}", state.branch,
                                tip ? tip->substr(0, 12) : std::string("nothing"), state.base.substr(0, 12)),
                    fmt::format("merge the candidate yourself: git merge {}", ref_of(state.run, "best")));
    }
    GDNCTL_TRY_ASSIGN(const GitHead head, repository.head());
    GDNCTL_TRY_ASSIGN(const auto dirty, repository.dirty_paths());
    if (head.branch == state.branch && !dirty.empty()) {
        return fail(ErrorKind::config,
                    fmt::format("{} has uncommitted changes: {}", repository.root().string(), dirty.front()),
                    "commit or stash them first");
    }
    return {};
}

Status land_on_branch(const GitCheckout& repository, const State& state, const std::string& commit) {
    GDNCTL_TRY_ASSIGN(const GitLanding landing, BranchMover(repository).land(state.branch, state.base, commit, false));
    if (landing.kind == GitLanding::Kind::moved) {
        return fail(ErrorKind::conflict, fmt::format("{} has moved to {}", state.branch, landing.tip.substr(0, 12)));
    }
    if (landing.kind == GitLanding::Kind::blocked) {
        return fail(ErrorKind::config, fmt::format("uncommitted work is in the way: {}", landing.why),
                    "commit or stash it first");
    }
    return {};
}

std::string ref_of_attempt(const State& state, int attempt) {
    return ref_of(state.run, attempt == 0 ? std::string("base") : fmt::format("cand/{}", attempt));
}

Result<StoreCheck> check_store(const GitCheckout& repository, const State& state) {
    StoreCheck out;
    std::vector<int> numbers;
    std::vector<std::string> commits;
    for (const Attempt& one : state.attempts) {
        if (one.commit.empty()) continue;
        numbers.push_back(one.number);
        commits.push_back(one.commit);
    }
    GDNCTL_TRY_ASSIGN(auto refs, repository.refs(ref_of(state.run, "")));
    GDNCTL_TRY_ASSIGN(const auto sizes, repository.sizes(commits));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const bool pinned = refs.erase(ref_of_attempt(state, numbers[i])) > 0;
        if (sizes[i] == 0) {
            out.gone.push_back(numbers[i]);
        } else if (!pinned) {
            out.unpinned.push_back(numbers[i]);
        }
    }
    for (const auto& [ref, commit] : refs) {
        if (ref.find("/cand/") != std::string::npos) out.unlisted.push_back(ref);
    }
    return out;
}

bool keeps_its_ref(const State& state, const Attempt& one) {
    return one.number == 0 || one.number == state.open.number || one.verdict == Verdict::none ||
           one.verdict == Verdict::kept || one.verdict == Verdict::tie;
}

std::vector<std::string> old_refs(const State& state, WallTime before) {
    std::vector<std::string> out;
    for (const Attempt& one : state.attempts) {
        const auto begun = parse_iso8601(one.started);
        if (keeps_its_ref(state, one) || one.commit.empty() || !begun || *begun >= before) continue;
        out.push_back(ref_of(state.run, fmt::format("cand/{}", one.number)));
    }
    return out;
}

}  // namespace gdnctl::loop::evolve
