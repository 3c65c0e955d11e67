// An evolve run when nodes, services and disks fail: no candidate is blamed for it.
#include <algorithm>
#include <map>
#include <set>

#include "evolve_world.h"

namespace gdnctl::loop::evolve {

namespace {

Launch lost_node() {
    Launch lost;
    lost.infra = true;
    lost.reason = "node lost";
    return lost;
}

// A build always succeeds here; what is to be lost is asked for each launch.
LaunchInstead losing(std::function<bool(const std::string& stage)> is_lost) {
    return [is_lost = std::move(is_lost)](LaunchKind kind, const std::filesystem::path& log) -> std::optional<Launch> {
        if (is_lost(log.parent_path().filename().string() + "/" + log.stem().string())) return lost_node();
        if (kind != LaunchKind::build) return std::nullopt;
        Launch built;
        built.ok = true;
        return built;
    };
}

std::map<int, std::string> verdicts_of(const State& state) {
    std::map<int, std::string> out;
    for (const Attempt& one : state.attempts) out[one.number] = to_text(one.verdict);
    return out;
}

}  // namespace

TEST_CASE("evolve run: what is lost once at each stage is done again, and no candidate is blamed") {
    constexpr int k_attempts = 4;
    EvolveWorld whole, world;
    whole.launch_instead = losing([](const std::string&) { return false; });
    CHECK(whole.run(k_attempts).rc == 0);
    std::set<std::string> seen;
    world.launch_instead = losing([&seen](const std::string& stage) { return seen.insert(stage).second; });
    CHECK(world.run(k_attempts).rc == 0);
    CHECK(verdicts_of(world.state) == verdicts_of(whole.state));
    CHECK(world.choices() == whole.choices());
    CHECK(world.state.spent.attempts == k_attempts);
    std::set<std::string> stages;
    CHECK(each_record(world.folder, [&](const Json& record, std::size_t) -> Status {
        if (record["type"] == "infra_error") stages.insert(record["stage"]);
        if (record["type"] == "verdict") CHECK(record.dump().find("node lost") == std::string::npos);
        return {};
    }));
    CHECK(stages ==
          std::set<std::string>{"noise", "build", "test", "oracle", "anticheat", "bench", "target", "recheck"});
    // No model is told.
    for (int n = 1; n <= k_attempts; ++n) {
        CHECK(test::read_text(world.folder / attempt_folder(n) / "prompt.md").find("node lost") == std::string::npos);
    }
}

TEST_CASE("evolve run: after three losses in a row it looks once a minute, gives up, and goes on later") {
    EvolveWorld whole, world;
    CHECK(whole.run(3).rc == 0);
    bool down = true;
    world.launch_instead = losing([&down](const std::string& stage) { return down && stage.ends_with("stage-bench"); });
    world.change = [](DriverSettings& settings) { settings.infra_max_wait = std::chrono::minutes(4); };
    const DriverEnd end = world.run(3);
    CHECK(end.reason == "infrastructure");
    CHECK(end.rc == 4);
    const auto waits = world.clock.sleeps();
    CHECK(std::count(waits.begin(), waits.end(), std::chrono::minutes(1)) == 3);
    CHECK(std::count(waits.begin(), waits.end(), std::chrono::seconds(1)) == 1);
    REQUIRE(world.state.open.number != 0);
    CHECK(world.state.spent.attempts == world.state.open.number - 1);
    down = false;
    world.launch_instead = {};
    CHECK(world.run(3).rc == 0);
    CHECK(verdicts_of(world.state) == verdicts_of(whole.state));
    CHECK(world.choices() == whole.choices());
}

TEST_CASE("evolve run: an agent service that is down costs no attempt, and a login that is gone ends it") {
    EvolveWorld world;
    int calls = 0;
    world.run_instead = [&calls](const AgentRequest&) -> std::optional<AgentOutcome> {
        if (++calls > 3) return std::nullopt;
        AgentOutcome down;
        down.kind = AgentClass::overloaded;
        down.exit_status = 1;
        return down;
    };
    world.run(1);
    CHECK(verdicts_of(world.state) ==
          std::map<int, std::string>{
              {0, "kept"}, {1, "infra"}, {2, "infra"}, {3, "infra"}, {4, verdicts_of(world.state)[4]}});
    CHECK(world.state.spent.attempts == 1);
    world.run_instead = [](const AgentRequest&) -> std::optional<AgentOutcome> {
        AgentOutcome out;
        out.kind = AgentClass::authentication;
        out.exit_status = 1;
        out.reason = "401 Unauthorized";
        out.stop_reason = "codex-auth";
        return out;
    };
    const DriverEnd end = world.run(3);
    CHECK(end.reason == "codex-auth");
    CHECK(end.rc == 1);
    CHECK(world.state.spent.attempts == 1);
    world.run_instead = {};
    CHECK(world.run(2).reason == "max-attempts");
    check_draws(world);
}

TEST_CASE("evolve run: waits for the provider as long as it asks, and costs no attempt") {
    EvolveWorld world;
    int calls = 0;
    const auto reset = world.clock.wall() + std::chrono::hours(3);
    world.run_instead = [&](const AgentRequest&) -> std::optional<AgentOutcome> {
        if (++calls > 3) return std::nullopt;
        AgentOutcome limit;
        limit.kind = AgentClass::usage_limit;
        limit.action = AgentAction::wait_until;
        limit.exit_status = 1;
        if (calls == 2) limit.not_before = reset;
        if (calls == 3) limit.not_before = reset - std::chrono::hours(2);  // has passed
        if (calls == 3) CHECK(world.clock.wall() >= reset);
        return limit;
    };
    const auto begun = world.clock.wall();
    CHECK(world.run(1).rc != 4);
    CHECK(world.state.spent.attempts == 1);
    CHECK(calls == 4);
    // 15 min, until the reset, 1 h
    CHECK(world.clock.wall() - begun >= std::chrono::hours(4));

    EvolveWorld far;
    far.run_instead = [&](const AgentRequest&) -> std::optional<AgentOutcome> {
        AgentOutcome limit;
        limit.kind = AgentClass::usage_limit;
        limit.action = AgentAction::wait_until;
        limit.not_before = far.clock.wall() + std::chrono::hours(70);
        return limit;
    };
    const DriverEnd end = far.run(3);
    CHECK(end.reason == "infrastructure");
    CHECK(end.rc == 4);
    CHECK(far.state.attempts.size() == 2);
}

TEST_CASE("evolve run: an agent that always fails in the same way ends it, one that varies is started slowly") {
    for (const bool varies : {false, true}) {
        EvolveWorld world;
        int calls = 0;
        world.run_instead = [&](const AgentRequest&) -> std::optional<AgentOutcome> {
            AgentOutcome failed;
            failed.kind = AgentClass::failed;
            failed.exit_status = 1;
            failed.reason = std::string("exited with code 1: no luck ") + static_cast<char>(varies ? 'a' + calls : 'a');
            ++calls;
            return failed;
        };
        const auto begun = world.clock.monotonic();
        const DriverEnd end = world.run(12);
        const auto took = world.clock.monotonic() - begun;
        CHECK(end.reason == (varies ? "max-attempts" : "circuit-breaker"));
        CHECK(calls == (varies ? 12 : 5));
        CHECK(took >= std::chrono::minutes(varies ? 3 : 1));
    }
}

TEST_CASE("evolve run: a budget that ends in an evaluation finishes it, and leaves the reserve") {
    EvolveWorld world;
    // A launch takes a tenth of a second of the device: 18 for the noise, at least 7 for a candidate that is measured.
    world.change = [](DriverSettings& settings) {
        settings.budget.device_s = 5;
        settings.budget.reserve = .5;
    };
    CHECK(world.run(50).reason == "max-device-seconds");
    CHECK(world.state.spent.device_s >= 2.5);
    // The last verification is what the reserve is for.
    const Json verified = Json::parse(world.state.verified);
    CHECK(verified["pass"] == true);
    CHECK(world.state.spent.device_s - verified["device_s"].get<double>() < 5);
    CHECK(world.state.open.number == 0);
    for (const Attempt& one : world.state.attempts) CHECK(one.verdict != Verdict::none);
    const auto records = world.state.records;
    CHECK(world.run(50).reason == "max-device-seconds");
    CHECK(world.state.records == records);
}

TEST_CASE("evolve run: it ends when the best is near what is physically possible") {
    EvolveWorld world;
    double of_base = .5;
    const LaunchInstead near = [&of_base](LaunchKind kind, const std::filesystem::path& log) -> std::optional<Launch> {
        if (kind != LaunchKind::profile) return std::nullopt;
        Launch out;
        out.ok = true;
        out.value = 100;
        out.roofline = log.parent_path().filename() == "attempt-0000" ? of_base : .96;
        return out;
    };
    // Nothing is gained, so that the base stays the best, which is far from it.
    world.launch_instead = near;
    CHECK(world.run(2).reason == "max-attempts");
    of_base = .96;
    EvolveWorld done;
    done.launch_instead = near;
    const DriverEnd end = done.run(2);
    CHECK(end.reason == "roofline");
    CHECK(end.rc == 3);
    CHECK(end.attempt == 0);
}

// Each of the first steps meets a full disk once.
TEST_CASE("evolve run: a disk that is full before or after a step") {
    EvolveWorld world;
    int asks = 0, full_at = 0, sessions = 0;
    world.room = [&]() -> Status {
        return ++asks == full_at ? fail(ErrorKind::local_io, "No space left on device") : Status();
    };
    world.launch_instead = losing([](const std::string&) { return false; });
    for (full_at = 1; full_at <= 12; ++full_at) {
        asks = 0;
        const DriverEnd end = world.run(3);
        if (end.reason == "max-attempts") break;
        ++sessions;
        CHECK(end.reason == "local-io");
        CHECK(end.rc == 8);
    }
    CHECK(sessions > 5);
    full_at = 0;
    CHECK(world.run(3).reason == "max-attempts");
    check_whole(world, 3);
    for (const auto& [number, verdict] : verdicts_of(world.state)) CHECK(verdict != "none");
}

}  // namespace gdnctl::loop::evolve
