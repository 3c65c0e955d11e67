// Someone sets the clock while jobs wait, run and end. The submitter's clock is off, the supervisor's is right, so that
// between them the clock jumps by as much.
#include <csignal>

#include "local_world.h"
#include "support/fake_clock.h"

namespace gdnctl::local {

namespace {

using std::chrono::days;

// Time passes as it does, but someone has set another date.
class WrongClock final : public Clock {
public:
    explicit WrongClock(days off) : m_off(off) {}
    WallTime wall() const override { return system_clock().wall() + m_off; }
    Monotonic monotonic() const override { return system_clock().monotonic(); }
    bool sleep_for(std::chrono::milliseconds d, std::stop_token stop) override {
        return system_clock().sleep_for(d, stop);
    }

private:
    days m_off;
};

}  // namespace

TEST_CASE("local clock: set back between submit and end, a job still ends no earlier than it began") {
    LocalWorld world;
    WrongClock tomorrow(days{1});
    REQUIRE(world.backend(&tomorrow)->submit(LocalWorld::request("back", "exit 3")));
    const JobDetails d = world.wait_end("back");
    CHECK(d.state == JobState::failed);
    CHECK(d.driver_exit_code == 3);
    REQUIRE(d.start_time);
    CHECK(*d.start_time > system_clock().wall());
    CHECK(d.end_time == d.start_time);
}

TEST_CASE("local clock: set back before a stop of a waiting job, and before its supervisor is found dead") {
    LocalWorld world;
    world.env["GDNCTL_LOCAL_RESOURCES"] = R"({"CPU":1})";
    WrongClock tomorrow(days{1});
    JobRequest waits = LocalWorld::request("waits", "echo never");
    waits.resources = {{"TPU", 1}};
    REQUIRE(world.backend(&tomorrow)->submit(waits));
    REQUIRE(world.backend()->stop("waits"));
    const JobDetails stopped = world.wait_end("waits");
    CHECK(stopped.state == JobState::stopped);
    CHECK(stopped.end_time == stopped.start_time);

    REQUIRE(world.backend(&tomorrow)->submit(LocalWorld::request("dies", "echo up; sleep 300")));
    world.wait_log("dies", "up");
    REQUIRE(send_signal(world.supervisor_of("dies")->supervisor.id, SIGKILL));
    const JobDetails died = world.wait_end("dies");
    CHECK(died.error_type == "JOB_SUPERVISOR_ACTOR_DIED");
    CHECK(died.end_time == died.start_time);
}

TEST_CASE("local clock: the start timeout counts seconds that passed, not what the clock shows") {
    LocalWorld world;
    world.env["GDNCTL_LOCAL_RESOURCES"] = R"({"SLOT":1})";
    world.env["RAY_JOB_START_TIMEOUT_SECONDS"] = "300";
    // By the clock it waits for a year the moment it is there.
    WrongClock year_ago(days{-365});
    JobRequest first = LocalWorld::request("first", "while [ ! -e go ]; do sleep 0.05; done");
    first.resources = {{"SLOT", 1}};
    JobRequest second = LocalWorld::request("second", "echo its turn");
    second.resources = first.resources;
    REQUIRE(world.backend()->submit(first));
    CHECK(world.wait_started("first").state == JobState::running);
    REQUIRE(world.backend(&year_ago)->submit(second));
    // One that asks for nothing of it need not wait; by its end the second has had its chance to give up.
    REQUIRE(world.backend()->submit(LocalWorld::request("free", "sleep 0.3")));
    CHECK(world.wait_end("free").state == JobState::succeeded);
    CHECK(world.backend()->details("second")->state == JobState::pending);
    write_text(world.store().file("first", "work") / "go", "");
    CHECK(world.wait_end("second").state == JobState::succeeded);
    CHECK(world.log_of("second") == "its turn\n");

    // And a clock that is ahead keeps nobody waiting longer than that.
    world.env["RAY_JOB_START_TIMEOUT_SECONDS"] = "0.2";
    WrongClock next_year(days{365});
    JobRequest late = LocalWorld::request("late", "echo never");
    late.resources = {{"NOWHERE", 1}};
    REQUIRE(world.backend(&next_year)->submit(late));
    const JobDetails d = world.wait_end("late");
    CHECK(d.error_type == "JOB_SUPERVISOR_ACTOR_START_TIMEOUT");
    CHECK(d.end_time == d.start_time);
}

TEST_CASE("local clock: pruning by age takes no job that runs, and none whose end lies ahead") {
    LocalWorld world;
    REQUIRE(world.store().create());
    test::FakeClock clock;
    const Store store(world.folder / "state" / "local", clock);
    const auto add = [&](const std::string& id, JobState state) {
        JobDetails d;
        d.submission_id = id;
        d.state = state;
        d.start_time = clock.wall();
        if (is_terminal(state)) d.end_time = clock.wall();
        std::filesystem::create_directories(store.job(id));
        REQUIRE(store.write(d));
    };
    add("runs", JobState::running);
    add("waits", JobState::pending);
    add("ended", JobState::succeeded);
    const std::vector<std::string> all = {"ended", "runs", "waits"};
    for (const days jump : {days(-3650), days(3650), days(29)}) {  // a look at an age of -10 years, 0 and 29 days
        clock.jump_wall(jump);
        store.prune();
        CHECK(store.ids() == all);
    }
    clock.jump_wall(days(2));
    store.prune();
    CHECK(store.ids() == std::vector<std::string>{"runs", "waits"});
}

}  // namespace gdnctl::local
