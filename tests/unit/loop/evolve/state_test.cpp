// What the records of an evolve run lead to: the next step at each record, and the verdict of an attempt.
#include "loop/evolve/state.h"

#include <set>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "core/json.h"
#include "loop/engine/journal.h"

namespace gdnctl::loop::evolve {

namespace {

// A run whose agent, git and device are words.
struct Told {
    State state;
    std::size_t lines = 0;
    int second = 7;  // of the next record
    Status add(const char* type, Json facts) {
        facts["type"] = type;
        facts["ts"] = fmt::format("2026-03-10T16:{:02}:{:02}Z", 53 + second / 60, second % 60);
        return state.apply(facts, "journal", ++lines);
    }
    void must(const char* type, Json facts) { REQUIRE(add(type, std::move(facts))); }
    void start() {
        must("run_start", {{"run", "r"},
                           {"base", "b0"},
                           {"seed", 7},
                           {"mutable_key", "k0"},
                           {"config", {{"lineages", 2}, {"stagnation", 8}}}});
        must("eval_stage",
             {{"attempt", 0}, {"stage", "noise"}, {"verdict", "pass"}, {"metrics", {{"sd", 0.001}, {"pairs", 9}}}});
    }
    void begin(int attempt, int parent = 0) {
        must("attempt_start", {{"attempt", attempt},
                               {"operator", "exploit"},
                               {"lineage", 0},
                               {"parents", {{{"attempt", parent}, {"commit", "c"}}}}});
    }
    void propose(int attempt, const char* kind = "ok", bool tampered = false) {
        must("proposal",
             {{"attempt", attempt}, {"class", kind}, {"tokens", {{"in", 100}, {"out", 10}}}, {"tampered", tampered}});
    }
    void snapshot(int attempt, const char* key, const char* patch = "p", const char* code = "") {
        must("snapshot", {{"attempt", attempt},
                          {"code_key", code},
                          {"commit", std::string("c") + key},
                          {"mutable_key", key},
                          {"patch_id", patch},
                          {"added", 2},
                          {"removed", 1},
                          {"files", {"kernel.c"}}});
    }
    void stage(int attempt, std::string_view name, const char* verdict = "pass") {
        must("eval_stage", {{"attempt", attempt}, {"stage", name}, {"verdict", verdict}, {"reason", "why"}});
    }
    void target(int attempt, const char* verdict, double est, bool rerun = false) {
        const Json gain = {{"est", est}, {"lo", est - .001}, {"hi", est + .001}, {"n", 3}};
        Json facts = {{"attempt", attempt},
                      {"stage", "target"},
                      {"verdict", "pass"},
                      {"metrics", {{"verdict", verdict}, {"champion", state.best}, {"gate", gain}, {"fresh", gain}}}};
        if (rerun) facts["rerun"] = true;
        must("eval_stage", facts);
    }
    void to_target(int attempt, const char* key) {
        begin(attempt);
        propose(attempt);
        snapshot(attempt, key, key);
        for (const char* name : {"paths", "build", "test", "oracle", "anticheat", "bench"}) stage(attempt, name);
    }
    Decision settle(int attempt) {
        REQUIRE(next(state, false).kind == StepKind::decide);
        const Decision decision = decide(state);
        Json facts = {{"attempt", attempt}, {"verdict", to_text(decision.verdict)}, {"reason", decision.reason}};
        if (decision.gain) facts["gain"] = json_of(*decision.gain);
        must("verdict", facts);
        return decision;
    }
    StepKind step(bool interrupted = false) const { return next(state, interrupted).kind; }
};

}  // namespace

TEST_CASE("evolve goes from record to record") {
    Told told;
    CHECK(told.step() == StepKind::start_run);
    told.must("run_start", {{"run", "r"}, {"base", "b0"}, {"seed", 7}});
    CHECK(told.step() == StepKind::measure_noise);
    told.must("eval_start", {{"attempt", 0}, {"eval_id", 1}, {"stage", "noise"}});
    CHECK(told.step(true) == StepKind::measure_noise);
    told.must("eval_stage", {{"attempt", 0}, {"stage", "noise"}, {"verdict", "infra"}});
    CHECK(told.step() == StepKind::measure_noise);
    CHECK(told.state.infra_in_a_row == 1);
    told.must("eval_stage", {{"attempt", 0}, {"stage", "noise"}, {"verdict", "pass"}, {"metrics", {{"sd", 0.01}}}});
    CHECK(told.state.infra_in_a_row == 0);
    CHECK(told.step() == StepKind::begin_attempt);
    told.begin(1);
    CHECK(told.step() == StepKind::run_agent);
    CHECK(told.step(true) == StepKind::abandon);
    told.propose(1);
    CHECK(told.step() == StepKind::abandon);  // its commit is on no record
    told.snapshot(1, "k1");
    for (const std::string_view name : k_stages) {
        const Step step = next(told.state, true);
        CHECK(step.kind == StepKind::run_stage);
        CHECK(step.stage == name);
        if (name == "bench") {
            told.stage(1, name, "infra");
            CHECK(next(told.state, true).stage == name);  // says nothing of the candidate
        }
        if (name == "target") {
            told.target(1, "keep", .02);
        } else {
            told.stage(1, name, name == "oracle" ? "skip" : "pass");
        }
    }
    CHECK(told.settle(1).verdict == Verdict::kept);
    CHECK(told.state.best == 1);
    CHECK(told.state.at(1).gain == doctest::Approx(.02));
    CHECK(told.state.spent.attempts == 1);
    CHECK(told.state.spent.tokens == 110);
    CHECK(told.step() == StepKind::begin_attempt);
}

TEST_CASE("evolve judges by class, content, stages and pairs") {
    Told told;
    told.start();
    int n = 0;
    const auto by_class = [&](const char* kind, bool tampered = false) {
        told.begin(++n);
        told.propose(n, kind, tampered);
        return told.settle(n).verdict;
    };
    CHECK(by_class("empty") == Verdict::noop);
    CHECK(by_class("noop") == Verdict::noop);
    CHECK(by_class("abstained") == Verdict::abstained);
    CHECK(by_class("timeout") == Verdict::invalid);
    CHECK(by_class("partial_edit") == Verdict::invalid);
    CHECK(by_class("infra") == Verdict::infra);
    CHECK(told.state.infra_in_a_row == 1);
    CHECK(by_class("ok", true) == Verdict::tampered);
    CHECK(by_class("agent_error", true) == Verdict::tampered);
    for (const Member& m : told.state.members()) CHECK_FALSE(m.broken);  // nothing to repair
    told.begin(++n);
    told.propose(n);
    told.snapshot(n, "k1", "p1");
    told.stage(n, "paths");
    told.stage(n, "build", "skip");
    told.stage(n, "test", "fail");
    CHECK(told.settle(n).reason == "test: why");
    CHECK(told.state.at(n).broken);
    const int failed = n;
    // The same content, and the same change of the same parent.
    for (const auto& [key, patch] : {std::pair{"k1", "other"}, std::pair{"k2", "p1"}}) {
        told.begin(++n);
        told.propose(n);
        told.snapshot(n, key, patch);
        const Decision same = told.settle(n);
        CHECK(same.verdict == Verdict::duplicate);
        CHECK(same.like == failed);
    }
    told.to_target(++n, "k3");
    told.target(n, "refuse", -.03);
    CHECK(told.settle(n).verdict == Verdict::rejected);
    told.to_target(++n, "k4");
    told.target(n, "tie", .003);
    CHECK(told.settle(n).verdict == Verdict::tie);
    CHECK(told.state.best == 0);
    CHECK(told.state.at(n).gain == doctest::Approx(.003));
    CHECK(told.state.verdicts().at("invalid") == 3);
}

TEST_CASE("evolve measures a gain above 2x again before it believes it") {
    for (const bool agrees : {true, false}) {
        Told told;
        told.start();
        told.to_target(1, "k1");
        told.target(1, "keep", 1.0);
        told.stage(1, "recheck");
        CHECK(told.settle(1).verdict == Verdict::quarantined);
        CHECK(told.state.best == 0);
        CHECK(told.step(true) == StepKind::measure_again);
        told.target(1, agrees ? "keep" : "tie", 0.9, true);
        CHECK(told.settle(1).verdict == (agrees ? Verdict::kept : Verdict::rejected));
        CHECK(told.state.best == (agrees ? 1 : 0));
        CHECK(told.state.spent.attempts == 1);
        CHECK(told.step() == StepKind::begin_attempt);
    }
}

TEST_CASE("evolve charges a killed agent the largest of recent attempts") {
    Told told;
    told.start();
    told.begin(1);
    told.propose(1, "empty");
    told.settle(1);
    told.begin(2);
    told.must("proposal", {{"attempt", 2}, {"class", "timeout"}, {"tokens", nullptr}});
    CHECK(told.state.spent.tokens == 220);
    CHECK_FALSE(told.state.at(2).tokens);
}

TEST_CASE("evolve refuses records that do not fit") {
    Told told;
    CHECK(told.add("attempt_start", {{"attempt", 1}}).error().kind == ErrorKind::conflict);
    told.start();
    CHECK(told.add("proposal", {{"attempt", 1}}).error().kind == ErrorKind::conflict);
    CHECK(told.add("attempt_start", {{"attempt", 3}}).error().kind == ErrorKind::conflict);
    CHECK(told.add("news", Json::object()).error().kind == ErrorKind::config);
    told.begin(1);
    CHECK(told.add("attempt_start", {{"attempt", 2}}).error().kind == ErrorKind::conflict);
    CHECK(told.add("verdict", {{"attempt", 2}, {"verdict", "kept"}}).error().kind == ErrorKind::conflict);
}

TEST_CASE("the chain tells which line was changed, lost or doubled") {
    std::string text, last;
    for (int i = 1; i <= 4; ++i) {
        last = *chain_line(static_cast<std::uint64_t>(i), "2026-03-10T16:53:07Z", "steer",
                           {{"n", i}, {"deep", {{"x", 1.5}}}}, last);
        text += last + "\n";
    }
    std::size_t seen = 0;
    const auto count = [&seen](const Json&, std::size_t) -> Status {
        ++seen;
        return {};
    };
    REQUIRE(read_chain(text, "j", count));
    CHECK(seen == 4);
    REQUIRE(read_chain(text + "{\"v\":1,\"se", "j", count));  // torn
    const auto line_of = [&](const std::string& changed) {
        const auto read = read_chain(changed, "j", count);
        REQUIRE_FALSE(read);
        CHECK(read.error().kind == ErrorKind::conflict);
        return read.error().message.substr(0, 4);
    };
    std::string altered = text;
    altered.replace(altered.find("\"n\":2"), 5, "\"n\":9");
    CHECK(line_of(altered) == "j:3:");
    const auto second = text.find('\n') + 1, third = text.find('\n', second) + 1;
    CHECK(line_of(text.substr(0, second) + text.substr(third)) == "j:2:");
    CHECK(line_of(text.substr(0, third) + text.substr(second)) == "j:3:");
    CHECK(line_of("x\n" + text) == "j:1:");
}

TEST_CASE("evolve does not count the time between sessions, whatever record a session begins with") {
    const std::pair<const char*, Json> firsts[] = {
        {"resume", Json::object()},
        {"repair", {{"what", "a torn last line was dropped"}}},
        {"repair", {{"missing", Json::array()}}},
        {"config_change", {{"config", {{"lineages", 3}, {"stagnation", 8}}}, {"evaluator", ""}}},
        {"verify", {{"attempt", 1}, {"pass", true}}},
        {"promote", {{"attempt", 1}}},
    };
    for (const auto& [type, facts] : firsts) {
        CAPTURE(type);
        Told told;
        told.start();
        told.second += 10;
        told.must("pause", Json::object());
        told.second += 40;
        told.must(type, facts);
        told.must("resume", Json::object());
        told.second += 5;
        told.must("pause", Json::object());
        CHECK(told.state.spent.wall_s == 15);
    }
    // A final verification of the run itself says what it took.
    Told told;
    told.start();
    told.second += 30;
    told.must("verify", {{"attempt", 1}, {"wall_s", 28.5}, {"device_s", 20}});
    CHECK(told.state.spent.wall_s == 28.5);
    CHECK(told.state.spent.device_s == 20);
}

TEST_CASE("evolve says what is left of a budget now, not when the attempt began") {
    Told told;
    told.start();
    told.must("attempt_start",
              {{"attempt", 1},
               {"operator", "explore"},
               {"lineage", 0},
               {"budget_left", {{"attempts", 2}, {"tokens", 1000}, {"wall_s", 60}, {"no_improve", 4}}}});
    CHECK(told.state.left_now() ==
          std::map<std::string, double>{{"attempts", 2}, {"tokens", 1000}, {"wall_s", 60}, {"no_improve", 4}});
    told.second += 20;
    told.propose(1, "empty");
    told.settle(1);
    CHECK(told.state.left_now() ==
          std::map<std::string, double>{{"attempts", 1}, {"tokens", 890}, {"wall_s", 40}, {"no_improve", 3}});
    told.second += 100;
    told.must("stop", {{"reason", "max-wall"}});
    CHECK(told.state.left_now()["wall_s"] == 0);
    told.must("resume", {{"budget_left", {{"attempts", 7}}}});
    CHECK(told.state.left_now() == std::map<std::string, double>{{"attempts", 7}});
}

TEST_CASE("evolve builds on no candidate whose commit is missing, until it is back") {
    Told told;
    told.start();
    for (const int number : {1, 2}) {
        told.to_target(number, number == 1 ? "k1" : "k2");
        told.target(number, "keep", .1);
        told.stage(number, "recheck");
        CHECK(told.settle(number).verdict == Verdict::kept);
    }
    told.begin(3);
    told.propose(3, "ok");
    told.snapshot(3, "k3", "p3");
    told.stage(3, "paths", "fail");
    CHECK(told.settle(3).verdict == Verdict::invalid);
    const auto used = [&] {
        std::set<int> out;
        for (int seed = 0; seed < 300; ++seed) {
            SelectionRules rules = told.state.rules;
            rules.seed = static_cast<std::uint64_t>(seed);
            const Pick one = pick(told.state.members(), 4, rules);
            out.insert(one.parents.begin(), one.parents.end());
            out.insert(one.inspirations.begin(), one.inspirations.end());
        }
        return out;
    };
    CHECK(told.state.best == 2);
    CHECK(used() == std::set<int>{0, 1, 2, 3});
    told.must("repair", {{"missing", Json::array({2, 3})}});
    CHECK(told.state.best == 1);
    CHECK(used() == std::set<int>{0, 1});
    told.must("repair", {{"missing", Json::array({1, 2, 3})}});
    CHECK(told.state.best == 0);
    CHECK(used() == std::set<int>{0});
    told.must("repair", {{"missing", Json::array({3})}});
    CHECK(told.state.best == 2);
    // An attempt that was being judged has nothing left to judge.
    told.begin(4);
    told.propose(4);
    told.snapshot(4, "k4", "p4");
    told.must("repair", {{"missing", Json::array({4})}});
    CHECK(next(told.state, true).kind == StepKind::abandon);
}

TEST_CASE("evolve measures the noise again for another evaluator, and forgets a verification") {
    const Json config = {{"lineages", 2}, {"stagnation", 8}};
    Told told;
    told.start();
    told.must("verify", {{"attempt", 1}, {"pass", true}});
    CHECK_FALSE(told.state.verified.empty());
    told.must("config_change", {{"config", config}, {"evaluator", told.state.evaluator}});
    CHECK(told.state.noise_measured);
    CHECK(told.state.verified.empty());
    told.must("config_change", {{"config", config}, {"evaluator", "another"}});
    CHECK_FALSE(told.state.noise_measured);
}

TEST_CASE("evolve: what differs in comments alone from another change of the same parent is that one again") {
    Told told;
    told.must("run_start", {{"run", "r"}, {"base", "b0"}, {"seed", 7}});
    told.must("eval_start", {{"attempt", 0}, {"eval_id", 1}, {"stage", "noise"}});
    told.must("eval_stage", {{"attempt", 0}, {"stage", "noise"}, {"verdict", "pass"}, {"metrics", {{"sd", 0.01}}}});
    told.begin(1);
    told.propose(1);
    told.snapshot(1, "k1", "p1", "code");
    CHECK(told.step() == StepKind::run_stage);
    told.stage(1, "paths", "fail");
    told.must("verdict", {{"attempt", 1}, {"verdict", "invalid"}, {"reason", "why"}});
    told.begin(2);
    told.propose(2);
    told.snapshot(2, "k2", "p2", "code");
    CHECK(told.step() == StepKind::decide);
    const Decision decision = decide(told.state);
    CHECK(decision.verdict == Verdict::duplicate);
    CHECK(decision.reason == "the same change as attempt 1: invalid");
}

}  // namespace gdnctl::loop::evolve
