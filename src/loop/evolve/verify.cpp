#include "loop/evolve/verify.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "platform/fs.h"

namespace gdnctl::loop::evolve {

namespace fs = std::filesystem;

namespace {

constexpr int k_final_pairs = 9;
constexpr double k_final_t = 2.896;  // one-sided .01, eight degrees of freedom

class Judge {
public:
    Judge(const Store& store, Evaluator& evaluator, const fs::path& folder)
        : m_store(store), m_evaluator(evaluator), m_folder(folder) {}

    Result<bool> paths(const std::string& base, const std::string& candidate) {
        GDNCTL_TRY_ASSIGN(const auto changes, m_store.repository().diff(base, candidate));
        const bool clean = std::all_of(changes.begin(), changes.end(), [&](const GitFileChange& change) {
            return m_store.rules().is_mutable(change.path);
        });
        return note("paths", clean, false, clean ? "" : "it differs from the base outside of the mutable paths");
    }

    Result<bool> launch(std::string_view stage, LaunchKind kind, const std::string& candidate) {
        if (!m_evaluator.has(kind)) {
            report.rows.push_back({std::string(stage), "skip", ""});
            return true;
        }
        GDNCTL_TRY_ASSIGN(const Launch end, m_evaluator.launch(kind, candidate, log(stage)));
        return note(stage, end.ok, end.infra, end.reason);
    }

    Result<bool> pairs(const std::string& champion, const std::string& candidate, PairTest test, const PairRule& rule) {
        const bool final_one = test == PairTest::final_one;
        GDNCTL_TRY_ASSIGN(Comparison measured,
                          final_one ? measure_pairs(m_evaluator, champion, candidate, k_final_pairs, log("target"))
                                    : compare(m_evaluator, champion, candidate, rule, log("target")));
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
        return note("target", holds, false, holds ? "" : "its gain is not distinguishable from the noise");
    }

    GateReport report;

private:
    fs::path log(std::string_view stage) const { return m_folder / fmt::format("stage-{}.log", stage); }
    bool note(std::string_view stage, bool ok, bool infra, std::string reason) {
        report.rows.push_back({std::string(stage), ok ? "pass" : infra ? "infra" : "fail", std::move(reason)});
        report.infra = report.infra || (!ok && infra);
        return ok;
    }
    const Store& m_store;
    Evaluator& m_evaluator;
    const fs::path& m_folder;
};

}  // namespace

Result<GateReport> judge_again(const Store& store, Evaluator& evaluator, const std::string& base,
                               const std::string& champion, const std::string& candidate, PairTest test,
                               const PairRule& rule, const fs::path& folder) {
    GDNCTL_TRY(make_private_directory(folder));
    Judge judge(store, evaluator, folder);
    GDNCTL_TRY_ASSIGN(bool goes_on, judge.paths(base, candidate));
    if (goes_on) {
        GDNCTL_TRY_ASSIGN(goes_on, judge.launch("build", LaunchKind::build, candidate));
    }
    if (goes_on) {
        GDNCTL_TRY_ASSIGN(goes_on, judge.launch("test", LaunchKind::test, candidate));
    }
    if (goes_on) {
        GDNCTL_TRY_ASSIGN(goes_on, judge.pairs(champion, candidate, test, rule));
    }
    if (goes_on) {
        GDNCTL_TRY_ASSIGN(goes_on, judge.launch("recheck", LaunchKind::test, candidate));
    }
    judge.report.pass = goes_on;
    return std::move(judge.report);
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
    GDNCTL_TRY_ASSIGN(const GitLanding landing, repository.land(state.branch, state.base, commit, false));
    if (landing.kind == GitLanding::Kind::moved) {
        return fail(ErrorKind::conflict,
                    fmt::format("{} moved to {} meanwhile", state.branch, landing.tip.substr(0, 12)));
    }
    if (landing.kind == GitLanding::Kind::blocked) {
        return fail(ErrorKind::config, fmt::format("uncommitted work is in the way: {}", landing.why),
                    "commit or stash it first");
    }
    return {};
}

Result<StoreCheck> check_store(const GitCheckout& repository, const State& state) {
    StoreCheck out;
    GDNCTL_TRY_ASSIGN(auto refs, repository.refs(ref_of(state.run, "")));
    for (const Attempt& one : state.attempts) {
        const std::string ref =
            one.number == 0 ? ref_of(state.run, "base") : ref_of(state.run, fmt::format("cand/{}", one.number));
        if (one.commit.empty()) continue;
        GDNCTL_TRY_ASSIGN(const auto commit, repository.resolve(one.commit));
        const std::string who = one.number == 0 ? std::string("base") : fmt::format("attempt {}", one.number);
        if (!commit) {
            out.missing.push_back(fmt::format("{}: commit {} is gone", who, one.commit));
        } else if (refs.erase(ref) == 0) {
            out.missing.push_back(fmt::format("{}: {} is gone; git may collect {}", who, ref, one.commit));
        }
    }
    for (const auto& [ref, commit] : refs) {
        if (ref.find("/cand/") != std::string::npos) out.unlisted.push_back(ref);
    }
    return out;
}

std::vector<std::string> old_refs(const State& state, WallTime before) {
    std::vector<std::string> out;
    for (const Attempt& one : state.attempts) {
        const auto begun = parse_iso8601(one.started);
        const bool stays = one.verdict == Verdict::none || one.verdict == Verdict::kept || one.verdict == Verdict::tie;
        if (one.number == 0 || stays || one.commit.empty() || !begun || *begun >= before) continue;
        out.push_back(ref_of(state.run, fmt::format("cand/{}", one.number)));
    }
    return out;
}

}  // namespace gdnctl::loop::evolve
