// What the commands for dev TPUs decide, with a cluster and a host by script.
#include <mutex>

#include <fmt/format.h>

#include "command_world.h"
#include "core/text.h"
#include "services/devtpu/holds.h"

namespace gdnctl::commands {
namespace {

using test::CommandWorld;

const std::string k_cluster = "http://127.0.0.1:8265";

// Every program ends like this.
struct Host final : Process {
    int code = 0;
    std::string prints;  // of commands whose output is followed
    std::mutex mutex;
    std::vector<std::string> lines;  // words and standard input

    Result<ProcessResult> run(const ProcessSpec& spec) override {
        const std::lock_guard lock(mutex);
        if (lines.size() < 100) lines.push_back(text::join(spec.argv, " ") + "\n" + spec.stdin_bytes);
        if (spec.on_stdout && !prints.empty()) spec.on_stdout(prints);
        ProcessResult result;
        if (!spec.stdin_bytes.empty()) result.exit_code = code;  // not of questions about the host
        return result;
    }
    bool has_run(std::string_view words) {
        const std::lock_guard lock(mutex);
        return std::any_of(lines.begin(), lines.end(),
                           [&](const std::string& line) { return line.find(words) != std::string::npos; });
    }
};

// Somebody's holder as the cluster lists it.
std::string holder(std::string_view id, std::string_view tpu, std::string_view user, std::string_view status) {
    return fmt::format(R"({{"type":"SUBMISSION","submission_id":"{}","status":"{}","entrypoint":"hold","message":"",)"
                       R"("start_time":1773161587000,"metadata":{{"user":"{}","kind":"hold","tpu_name":"{}"}}}})",
                       id, status, user, tpu);
}

struct DevTpuWorld : CommandWorld {
    Host host;
    DevTpuWorld() : CommandWorld(&host) {
        http.on("GET " + k_cluster + "/api/version", 200,
                R"({"version":"4","ray_version":"2.60.0","session_name":"session_1"})");
    }
    int ask(const cli::Command& row, std::vector<std::string> words) {
        words.insert(words.begin(), {"--ray-address", k_cluster});
        return run(row, std::move(words));
    }
    void lists(const std::string& jobs) { http.on("GET " + k_cluster + "/api/jobs/", 200, "[" + jobs + "]"); }
    void remembers(const std::string& name, std::optional<bool> ssh) const {
        devtpu::HoldRecord record;
        record.tpu_name = name;
        record.address = record.ray_address = k_cluster;
        record.submission_id = "hold-" + name;
        record.user = "me";
        record.host.ip_address = ssh.value_or(false) ? "203.0.113.7" : "";
        record.alias = "dev-tpu-" + name;
        record.state = "ready";
        record.created = clock.wall();
        record.ssh_ok = ssh;
        REQUIRE(devtpu::HoldStore(context.state_dir).put(record));
    }
    std::size_t remembered() const { return devtpu::HoldStore(context.state_dir).all()->size(); }
};

}  // namespace

TEST_CASE("commands of dev TPUs: what is refused before anything is asked") {
    CommandWorld world;
    const std::vector<CommandWorld::Case> cases = {
        {k_dev_tpu_allocate_row,
         {"--tpu-name", "a", "--ready-timeout", "0"},
         2,
         "--ready-timeout: expected 1 or more seconds"},
        {k_dev_tpu_allocate_row, {"--tpu-name", "a", "--attempts", "0"}, 2, "--attempts: expected 1 or more"},
        {k_dev_tpu_allocate_row,
         {"--tpu-name", "a", "--retry-sleep", "-1"},
         2,
         "--retry-sleep: expected 0 or more seconds"},
        {k_dev_tpu_allocate_row, {"--tpu-name", "a", "--sync-path", "none"}, 2, "--sync-path none: no such folder"},
        {k_dev_tpu_release_row, {}, 2, "say what to release: --tpu-name, --submission-id or --all-mine"},
        {k_dev_tpu_watch_row, {"--tpu-name", "a", "--debounce", "-1", "--", "make"}, 2, "--debounce: expected 0 to"},
        {k_dev_tpu_execute_row, {"--tpu-name", "a", "--timeout", "0", "--", "ls"}, 2, "a number of seconds above 0"},
        {k_dev_tpu_execute_row, {"--tpu-name", "a", "--sync-path", "none", "--", "ls"}, 2, "--sync-path none"},
        {k_dev_tpu_setup_row, {"--tpu-name", "a", "--sync-path", "none"}, 2, "--sync-path none"},
        {k_dev_tpu_test_row, {"--tpu-name", "a", "--require-passed", "1"}, 2, "has no pytest counts"},
        {k_dev_tpu_connect_row, {"--tpu-name", "../a"}, 2, "../a"},
    };
    for (const auto& one : cases) world.check(one);
    CHECK(world.http.asked.empty());
    CHECK(world.process.calls.empty());
}

TEST_CASE("dev-tpu commands: nobody holds a TPU of that name") {
    DevTpuWorld world;
    world.lists(holder("hold-b", "b", "me", "RUNNING") + "," + holder("hold-a", "a", "you", "RUNNING"));
    for (const cli::Command* row : {&k_dev_tpu_connect_row, &k_dev_tpu_setup_row}) {
        CHECK(world.ask(*row, {"--tpu-name", "a"}) == 4);
        CHECK(world.said.find("run dev-tpu-allocate --tpu-name a first") != std::string::npos);
    }
    CHECK(world.ask(k_dev_tpu_execute_row, {"--tpu-name", "a", "--no-sync", "--", "ls"}) == 4);
    CHECK(world.host.lines.empty());
}

TEST_CASE("dev-tpu-execute: the code of the command, and a hold that ended meanwhile") {
    DevTpuWorld world;
    world.remembers("a", true);
    CHECK(world.ask(k_dev_tpu_execute_row, {"--tpu-name", "a", "--no-sync", "--", "make", "it"}) == 0);
    CHECK(world.host.has_run("dev-tpu-a"));
    world.host.code = 3;
    CHECK(world.ask(k_dev_tpu_execute_row, {"--tpu-name", "a", "--no-sync", "--json", "--", "make"}) == 3);
    CHECK(world.json()["exit_code"] == 3);
    world.host.code = 255;
    world.http.on("GET " + k_cluster + "/api/jobs/hold-a", 200, holder("hold-a", "a", "me", "STOPPED"));
    world.http.on("GET " + k_cluster + "/api/jobs/hold-a/logs", 200, R"({"logs":""})");
    CHECK(world.ask(k_dev_tpu_execute_row, {"--tpu-name", "a", "--no-sync", "--", "make"}) == 4);
    CHECK(world.said.find("the command did not end by itself") != std::string::npos);
}

TEST_CASE("dev-tpu-connect and -setup: a host without ssh") {
    DevTpuWorld world;
    world.remembers("a", false);
    world.http.on("GET " + k_cluster + "/api/jobs/hold-a", 200, holder("hold-a", "a", "me", "RUNNING"));
    CHECK(world.ask(k_dev_tpu_connect_row, {"--tpu-name", "a"}) == 4);
    CHECK(world.said.find("--via ray runs the command as a job on the holder's host") != std::string::npos);
    CHECK(world.host.lines.empty());
}

TEST_CASE("dev-tpu-list: one's own holds, or everybody's, a hold that has ended is forgotten") {
    DevTpuWorld world;
    world.remembers("a", true);
    world.lists(holder("hold-a", "a", "me", "RUNNING") + "," + holder("hold-b", "b", "you", "PENDING"));
    CHECK(world.ask(k_dev_tpu_list_row, {"--json"}) == 0);
    REQUIRE(world.json()["holds"].size() == 1);
    CHECK(world.json()["holds"][0]["tpu_name"] == "a");
    CHECK(world.ask(k_dev_tpu_list_row, {"--all-users", "--json"}) == 0);
    CHECK(world.json()["holds"].size() == 2);
    DevTpuWorld ended;
    ended.remembers("a", true);
    ended.lists(holder("hold-a", "a", "me", "FAILED"));
    CHECK(ended.ask(k_dev_tpu_list_row, {}) == 0);
    CHECK(ended.said.find("no dev TPU is held") != std::string::npos);
    CHECK(ended.remembered() == 0);
}

TEST_CASE("dev-tpu-release: one's own, never another's by name, what has ended is forgotten") {
    DevTpuWorld world;
    world.remembers("a", false);
    world.lists(holder("hold-a", "a", "me", "RUNNING") + "," + holder("hold-b", "b", "you", "RUNNING"));
    CHECK(world.ask(k_dev_tpu_release_row, {"--tpu-name", "b"}) == 2);
    CHECK(world.said.find("hint: --submission-id hold-b releases it anyway") != std::string::npos);
    world.http.on("POST " + k_cluster + "/api/jobs/hold-a/stop", 200, R"({"stopped": true})");
    world.http.on("GET " + k_cluster + "/api/jobs/hold-a", 200, holder("hold-a", "a", "me", "STOPPED"));
    CHECK(world.ask(k_dev_tpu_release_row, {"--all-mine", "--json"}) == 0);
    CHECK(world.json()["released"] == Json{"hold-a"});
    CHECK(world.remembered() == 0);
    DevTpuWorld ended;
    ended.remembers("a", false);
    ended.lists("");
    CHECK(ended.ask(k_dev_tpu_release_row, {"--tpu-name", "a"}) == 0);
    CHECK(ended.said.find("nothing to release") != std::string::npos);
    CHECK(ended.remembered() == 0);
}

TEST_CASE("dev-tpu-test and -profile: a name that nobody holds, a test by the road and its verdict") {
    DevTpuWorld world;
    world.configure(
        "target = \"t\"\n[targets.t]\ntest = [\"sh\", \"check.sh\"]\nprofile = [\"sh\", \"time.sh\"]\n"
        "metric = { name = \"ms\", better = \"lower\", unit = \"ms\", from = \"json:/ms\" }\n");
    const std::vector<std::string> words = {"--tpu-name", "a", "--no-sync", "--json"};
    world.lists("");
    for (const cli::Command* row : {&k_dev_tpu_test_row, &k_dev_tpu_profile_row}) {
        CHECK(world.ask(*row, words) == 4);
        CHECK(world.said.find("run dev-tpu-allocate --tpu-name a first") != std::string::npos);
    }
    CHECK(world.host.lines.empty());
    world.remembers("a", true);
    CHECK(world.ask(k_dev_tpu_test_row, words) == 0);
    CHECK(world.json()["schema"] == "gdnctl.dev-tpu-test/1");
    CHECK(world.json()["status"] == "SUCCEEDED");
    CHECK(world.host.has_run("check.sh"));
    CHECK(!world.host.has_run("time.sh"));
    world.host.code = 1;
    CHECK(world.ask(k_dev_tpu_test_row, words) == 1);
    CHECK(world.json()["status"] == "FAILED");
    CHECK(world.remembered() == 1);
}

TEST_CASE("dev-tpu-test and -profile: without a target of the user's own nothing runs on a held TPU") {
    DevTpuWorld world;
    world.remembers("a", true);
    for (const cli::Command* row : {&k_dev_tpu_test_row, &k_dev_tpu_profile_row}) {
        for (const bool named : {true, false}) {  // the cluster
            const std::vector<std::string> words = {"--tpu-name", "a", "--no-sync"};
            CHECK((named ? world.ask(*row, words) : world.run(*row, words)) == 2);
            CHECK(world.said.find("no target is named for a job on a cluster") != std::string::npos);
            CHECK(world.said.find("hint: ") != std::string::npos);
        }
    }
    CHECK(!world.host.has_run("oracle"));
}

TEST_CASE("dev-tpu-profile: the metric that the run prints, a run that prints none, one that fails") {
    DevTpuWorld world;
    world.configure(
        "target = \"t\"\n[targets.t]\ntest = [\"sh\", \"check.sh\"]\nprofile = [\"sh\", \"time.sh\"]\n"
        "metric = { name = \"ms\", better = \"lower\", unit = \"ms\", from = \"json:/ms\" }\n");
    world.remembers("a", true);
    const std::vector<std::string> words = {"--tpu-name", "a", "--no-sync", "--json"};
    world.host.prints = "{\"ms\": 7.5}\n";
    CHECK(world.ask(k_dev_tpu_profile_row, words) == 0);
    CHECK(world.json()["schema"] == "gdnctl.dev-tpu-profile/1");
    CHECK(world.json()["status"] == "SUCCEEDED");
    CHECK(world.json()["metric"]["value"] == 7.5);
    CHECK(world.host.has_run("time.sh"));
    CHECK(!world.host.has_run("check.sh"));
    CHECK(world.ask(k_dev_tpu_profile_row, {"--tpu-name", "a", "--no-sync"}) == 0);
    CHECK(world.said.find("metric ms: 7.5") != std::string::npos);
    world.host.prints.clear();
    CHECK(world.ask(k_dev_tpu_profile_row, words) == 0);
    CHECK(world.json()["metric"]["value"].is_null());
    world.host.code = 1;
    CHECK(world.ask(k_dev_tpu_profile_row, words) == 1);
    CHECK(world.json()["status"] == "FAILED");
    CHECK(world.ask(k_dev_tpu_profile_row, {"--tpu-name", "a", "--no-sync", "--profile-env", "NO"}) == 2);
}

TEST_CASE("dev-tpu-watch: a name that nobody holds, and a stop that ends it") {
    DevTpuWorld world;
    world.lists("");
    CHECK(world.ask(k_dev_tpu_watch_row, {"--tpu-name", "a", "--", "make"}) == 4);
    CHECK(world.host.lines.empty());
    world.remembers("a", true);
    world.stop.request_stop();
    CHECK(world.ask(k_dev_tpu_watch_row, {"--tpu-name", "a", "--no-sync", "--", "make"}) == 130);
}

TEST_CASE("dev-tpu-allocate: a name that is taken, and a cluster that is asked as often as told") {
    DevTpuWorld world;
    world.lists(holder("hold-a", "a", "you", "RUNNING"));
    CHECK(world.ask(k_dev_tpu_allocate_row, {"--tpu-name", "a", "--tpu-type", "v5p-8"}) == 2);
    CHECK(world.said.find("you") != std::string::npos);
    CHECK(world.ask(k_dev_tpu_allocate_row, {"--tpu-name", "a", "--tpu-type", "nonsense"}) == 2);
    CHECK(world.remembered() == 0);
    CommandWorld page;
    page.http.on("GET " + k_cluster + "/api/version", 200, "<html>");
    page.http.on("GET " + k_cluster + "/api/jobs/", 200, "<html>");
    CHECK(page.run(k_dev_tpu_allocate_row, {"--ray-address", k_cluster, "--tpu-name", "a", "--tpu-type", "v5p-8",
                                            "--attempts", "3", "--retry-sleep", "7"}) == 4);
    CHECK(page.said.find("(attempt 1 of 3)") != std::string::npos);
    CHECK(page.said.find("(attempt 3 of 3)") == std::string::npos);
    const auto sleeps = page.clock.sleeps();
    CHECK(std::count(sleeps.begin(), sleeps.end(), std::chrono::seconds(7)) == 2);
}

}  // namespace gdnctl::commands
