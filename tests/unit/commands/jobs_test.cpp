// What the commands for jobs decide, against a dashboard by script.
#include <mutex>

#include <fmt/format.h>

#include "command_world.h"
#include "core/text.h"
#include "services/devtpu/holds.h"

namespace gdnctl::commands {

namespace {

using test::CommandWorld;

const std::string k_dashboard = "http://127.0.0.1:8265";

std::string job(std::string_view id, std::string_view status, std::string_view user = "me", int exit_code = 0) {
    return fmt::format(R"({{"type":"SUBMISSION","submission_id":"{}","status":"{}","entrypoint":"true","message":"",)"
                       R"("start_time":1773161000000,"end_time":1773161060000,"driver_exit_code":{},)"
                       R"("metadata":{{"user":"{}","kind":"test","nonce":"0123456789abcdef"}}}})",
                       id, status, exit_code, user);
}

struct JobsWorld : CommandWorld {
    JobsWorld() {
        http.on("GET " + k_dashboard + "/api/version", 200,
                R"({"version":"4","ray_version":"2.60.0","session_name":"session_1"})");
    }
    int ask(std::string_view command, std::vector<std::string> words) {
        words.insert(words.end(), {"--ray-address", k_dashboard});
        return run(command, std::move(words));
    }
    void is(std::string_view id, std::string_view status, int exit_code = 0) {
        http.on("GET " + k_dashboard + "/api/jobs/" + std::string(id), 200, job(id, status, "me", exit_code));
    }
    void has_log(std::string_view id, std::string_view text) {
        http.on("GET " + k_dashboard + "/api/jobs/" + std::string(id) + "/logs", 200, Json{{"logs", text}}.dump());
    }
    bool has_asked(const std::string& request) const {
        return std::find(http.asked.begin(), http.asked.end(), request) != http.asked.end();
    }
};

}  // namespace

TEST_CASE("commands of jobs: what is refused before anything is asked") {
    CommandWorld world;
    const std::vector<CommandWorld::Case> cases = {
        {"ray-wait", {}, 2, "pass either ID or --match"},
        {"ray-wait", {"a", "--match", "b"}, 2, "pass either ID or --match"},
        {"ray-wait", {"a", "--poll", "0"}, 2, "--poll: expected more than 0 seconds"},
        {"ray-wait", {"a", "--tail", "-1"}, 2, "--tail: expected 0 or more"},
        {"ray-wait", {"a", "--grep", "("}, 2, "--grep"},
        {"ray-wait", {"latest"}, 2, "`latest` is not a submission id"},
        {"ray-logs", {"a", "--grep", "["}, 2, "--grep"},
        {"ray-stop", {"latest"}, 2, "`latest` is not a submission id"},
        {"ray-list", {"--limit", "0"}, 2, "--limit: expected 1 or more"},
        {"ray-test", {"--no-wait", "--require-passed", "1"}, 2, "drop --no-wait"},
        {"ray-test", {"--require-passed", "1"}, 2, "has no pytest counts"},
        {"ray-test", {"--cluster", "nowhere"}, 2, "nowhere"},
        {"ray-profile", {"--cluster", "nowhere"}, 2, "nowhere"},
        {"cluster check", {"a", "--cluster", "b"}, 2, "two clusters are given"},
        {"cluster check", {"local", "--ray-address", k_dashboard}, 2, "drop --ray-address"},
        {"sweep run", {"plan.toml", "--budget", "-1"}, 2, "--budget: expected 0 or more seconds"},
        {"sweep run", {"plan.toml"}, 2, "plan.toml"},
        {"sweep report", {}, 2, "LOG is missing"},
        {"sweep report", {"log", "--shards", "0"}, 2, "--shards: expected 1 or more"},
    };
    for (const auto& one : cases) world.check(one);
    CHECK(world.http.asked.empty());
    CHECK(world.process.calls.empty());
}

TEST_CASE("commands of jobs: without a target of the user's own nothing is sent to a cluster") {
    JobsWorld world;
    for (const std::string_view command : {"ray-test", "ray-profile"}) {
        CHECK(world.ask(command, {"--no-wait"}) == 2);
        CHECK(world.said.find("no target is named for a job on a cluster") != std::string::npos);
    }
    CHECK(world.http.asked.empty());
}

TEST_CASE("commands of jobs: --no-local refuses this machine") {
    CommandWorld world;
    for (const std::string_view command : {"ray-test", "ray-profile", "ray-list"}) {
        CHECK(world.run(command, {"--no-local"}) == 4);
        CHECK(world.said.find("hint: drop --no-local") != std::string::npos);
    }
    CHECK(world.run("cluster check", {"--no-local", "--json"}) == 4);
    CHECK(world.json()["backend"] == "local");
    CHECK(!std::filesystem::exists(world.context.state_dir / "local/jobs"));
}

TEST_CASE("ray-wait: the exit code is the job's") {
    struct End {
        const char* status;
        int exit_code, code, compatible;
    };
    for (const End end : {End{"SUCCEEDED", 0, 0, 0}, End{"FAILED", 1, 1, 0}, End{"STOPPED", 0, 3, 0}}) {
        CAPTURE(end.status);
        JobsWorld world;
        world.is("j", "RUNNING");
        world.is("j", end.status, end.exit_code);
        world.has_log("j", "1 failed\n");
        CHECK(world.ask("ray-wait", {"j", "--poll", "7"}) == end.code);
        CHECK(!world.clock.sleeps().empty());
        CHECK(world.ask("ray-wait", {"j", "--compat-exit"}) == end.compatible);
        CHECK(world.ask("ray-wait", {"j", "--json"}) == end.code);
        CHECK(world.json()["status"] == end.status);
        CHECK(world.json()["kind"] == "test");
    }
}

TEST_CASE("ray-wait: an unknown job, a time limit, and the newest that matches") {
    JobsWorld world;
    world.http.on("GET " + k_dashboard + "/api/jobs/none", 404, "Job none does not exist");
    CHECK(world.ask("ray-wait", {"none"}) == 6);
    CHECK(world.ask("ray-wait", {"none", "--compat-exit"}) == 1);
    world.is("j", "RUNNING");
    CHECK(world.ask("ray-wait", {"j", "--timeout", "60"}) == 124);
    CHECK(world.said.find("has not ended within 60 s") != std::string::npos);
    CHECK(world.ask("ray-wait", {"j", "--timeout", "60", "--compat-exit"}) == 2);
    world.http.on(
        "GET " + k_dashboard + "/api/jobs/", 200,
        "[" + job("other", "RUNNING") + "," + job("mine-2", "SUCCEEDED") + "," + job("mine-1", "FAILED") + "]");
    world.is("mine-2", "SUCCEEDED");
    CHECK(world.ask("ray-wait", {"--match", "^mine"}) == 0);
    CHECK(world.said.find("submission_id=mine-2") != std::string::npos);
    CHECK(world.ask("ray-wait", {"--match", "^yours"}) == 6);
}

TEST_CASE("ray-list: whose jobs, which state, how many") {
    JobsWorld world;
    world.http.on("GET " + k_dashboard + "/api/jobs/", 200,
                  "[" + job("a", "RUNNING") + "," + job("b", "FAILED", "you") + "," + job("c", "FAILED") + "]");
    CHECK(world.ask("ray-list", {"--mine", "--json"}) == 0);
    CHECK(world.json()["jobs"].size() == 2);
    CHECK(world.ask("ray-list", {"--status", "FAILED", "--json"}) == 0);
    CHECK(world.json()["jobs"].size() == 2);
    CHECK(world.ask("ray-list", {"--limit", "1"}) == 0);
    const std::string& table = world.terminal.out_text;
    CHECK(std::count(table.begin(), table.end(), '\n') == 2);
    CHECK(world.ask("ray-list", {"--status", "GONE"}) == 2);
}

TEST_CASE("ray-stop: a job that runs, one that has ended, one that is not there") {
    JobsWorld world;
    world.is("j", "RUNNING");
    world.is("j", "STOPPED");
    world.http.on("POST " + k_dashboard + "/api/jobs/j/stop", 200, R"({"stopped": true})");
    CHECK(world.ask("ray-stop", {"j", "--wait", "--json"}) == 0);
    CHECK(world.json()["stopped"] == true);
    CHECK(world.json()["status"] == "STOPPED");
    world.is("done", "SUCCEEDED");
    world.http.on("POST " + k_dashboard + "/api/jobs/done/stop", 200, R"({"stopped": false})");
    CHECK(world.ask("ray-stop", {"done"}) == 0);
    CHECK(world.said.find("had already ended (SUCCEEDED)") != std::string::npos);
    world.http.on("POST " + k_dashboard + "/api/jobs/none/stop", 404, "Job none does not exist");
    CHECK(world.ask("ray-stop", {"none"}) == 6);
}

TEST_CASE("ray-logs: the last lines, and those that match") {
    JobsWorld world;
    world.is("j", "FAILED", 1);
    world.has_log("j", "one\ntwo\nthree\n");
    CHECK(world.ask("ray-logs", {"j", "--tail", "2"}) == 0);
    CHECK(world.terminal.out_text == "two\nthree\n");
    CHECK(world.ask("ray-logs", {"j", "--grep", "^t", "--tail", "1"}) == 0);
    CHECK(world.terminal.out_text == "three\n");
    CHECK(world.ask("ray-logs", {"j", "--json"}) == 0);
    CHECK(world.json()["logs"] == "one\ntwo\nthree\n");
    CHECK(world.json()["schema"] == "gdnctl.ray-logs/1");
}

TEST_CASE("cluster check: an answer, a token that is refused, a server that is no dashboard") {
    JobsWorld world;
    world.http.on("GET " + k_dashboard + "/api/authentication_mode", 200, R"({"authentication_mode":"disabled"})");
    world.http.on("GET " + k_dashboard + "/api/cluster_status", 503, "");
    CHECK(world.ask("cluster check", {}) == 0);
    CHECK(world.printed("answers    yes: Ray 2.60.0, authentication disabled, session_1"));
    CommandWorld refused;
    refused.http.on("GET " + k_dashboard + "/api/version", 401, "Unauthorized: no token");
    CHECK(refused.run("cluster check", {"--ray-address", k_dashboard, "--json"}) == 5);
    CHECK(refused.json()["answers"] == false);
    CHECK(refused.said.find("RAY_AUTH_TOKEN") != std::string::npos);
    CommandWorld page;
    page.http.on("GET " + k_dashboard + "/api/version", 200, "<html>");
    CHECK(page.run("cluster check", {"--ray-address", k_dashboard}) == 4);
    CHECK(page.said.find("is not a Ray dashboard") != std::string::npos);
}

TEST_CASE("cluster list: the clusters of the repository, and which one is in use") {
    CommandWorld world;
    std::filesystem::create_directory(world.file(".git"));
    world.write(".git/HEAD", "ref: refs/heads/main\n");
    world.write("infra/marin-east.yaml", "cluster_name: marin-east\nprovider:\n  availability_zone: us-east5-a\n");
    world.write("infra/marin-bad.yaml", "cluster_name: [\n");
    CHECK(world.run("cluster list", {"--json"}) == 0);
    const Json list = world.json()["clusters"];
    REQUIRE(list.size() == 3);
    CHECK(list[0]["name"] == "local");
    CHECK(list[0]["in_use"] == true);
    CHECK(list[1]["name"] == "bad");
    CHECK(list[1].contains("error"));
    CHECK(list[2]["zone"] == "us-east5-a");
    world.env.values["RAY_ADDRESS"] = k_dashboard;
    CHECK(world.run("cluster list", {}) == 0);
    CHECK(!world.printed("(in use)"));
    CHECK(world.said.find("in use: " + k_dashboard) != std::string::npos);
}

TEST_CASE("ray-test and ray-profile: a dry run shows the request and sends nothing") {
    CommandWorld world;
    world.configure("target = \"t\"\n[targets.t]\ntest = [\"sh\", \"check.sh\"]\nprofile = [\"sh\", \"time.sh\"]\n");
    for (const auto& [command, word] : {std::pair("ray-test", "check.sh"), std::pair("ray-profile", "time.sh")}) {
        CHECK(world.run(command, {"--ray-address", k_dashboard, "--dry-run", "--working-dir", "none", "--json"}) == 0);
        CHECK(world.terminal.out_text.find(word) != std::string::npos);
    }
    CHECK(world.http.asked.empty());
}

TEST_CASE("sweep: a plan that is refused, and a journal of somebody else") {
    CommandWorld world;
    world.write("bad.toml", "kernel = \n");
    world.check({"sweep run", {"bad.toml"}, 2, "bad.toml"});
    world.write("log", "nothing of a sweep\n");
    world.check({"sweep report", {"log"}, 9, "no result line in log"});
    world.check({"sweep report", {"none.log"}, 2, "none.log"});
}

TEST_CASE("sweep run: a budget that is spent, sizes that do not fit, and what is no journal of a sweep") {
    JobsWorld world;
    const std::string plan =
        "command = [\"true\", \"{b}\", \"{h}\", \"{v}\", \"{outputs}\"]\nb = [1024]\nh = [512]\nv = [1048576]\n"
        "shapes = [{ batch = 1024, hidden = 512, vocab = 1048576 }]\nsource_revision = \"r\"\n";
    world.write("plan.toml", plan);
    CHECK(world.run("sweep run", {"plan.toml", "--budget", "0", "--json"}) == 124);
    CHECK(world.json()["schema"] == "gdnctl.sweep-run/1");
    CHECK(world.json()["ended"] == "budget");
    CHECK(world.json()["journal"] == world.file("plan.journal.jsonl").string());
    CHECK(!world.read("plan.journal.jsonl").empty());
    CHECK(world.run("sweep run", {"plan.toml", "--prune-vmem", "--journal", "pruned", "--json"}) == 1);
    CHECK(world.json()["ended"] == "complete");
    CHECK(world.said.find("skipped, an estimated") != std::string::npos);
    world.write("notes", "{\"mine\": 1}\n");
    world.check({"sweep run", {"plan.toml", "--journal", "notes"}, 2, "is not a journal of a sweep"});
    CHECK(world.read("notes") == "{\"mine\": 1}\n");
    world.check({"sweep run", {"plan.toml", "--cluster", "nowhere"}, 2, "nowhere"});
    world.write("checked.toml", plan + "inputs = \"in\"\ncheck = \"exact\"\n");
    CHECK(world.ask("sweep run", {"checked.toml"}) == 2);
    CHECK(world.said.find("needs the outputs on this machine") != std::string::npos);
    CHECK(!std::filesystem::exists(world.file("checked.journal.jsonl")));
    CHECK(!std::filesystem::exists(world.context.state_dir / "local/jobs"));
}

// What the commands for dev TPUs decide, with a cluster and a host by script.

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
    int ask(std::string_view command, std::vector<std::string> words) {
        words.insert(words.begin(), {"--ray-address", k_cluster});
        return run(command, std::move(words));
    }
    void lists(const std::string& jobs) { http.on("GET " + k_cluster + "/api/jobs/", 200, "[" + jobs + "]"); }
    void remembers(const std::string& name, std::optional<bool> ssh) const {
        devtpu::HoldRecord record;
        record.tpu_name = name;
        record.address = record.ray_address = k_cluster;
        record.submission_id = "gdnctl-hold-" + name;
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
        {"dev-tpu-allocate",
         {"--tpu-name", "a", "--ready-timeout", "0"},
         2,
         "--ready-timeout: expected 1 or more seconds"},
        {"dev-tpu-allocate", {"--tpu-name", "a", "--attempts", "0"}, 2, "--attempts: expected 1 or more"},
        {"dev-tpu-allocate",
         {"--tpu-name", "a", "--retry-sleep", "-1"},
         2,
         "--retry-sleep: expected 0 or more seconds"},
        {"dev-tpu-allocate", {"--tpu-name", "a", "--sync-path", "none"}, 2, "--sync-path none: no such folder"},
        {"dev-tpu-release", {}, 2, "say what to release: --tpu-name, --submission-id or --all-mine"},
        {"dev-tpu-watch", {"--tpu-name", "a", "--debounce", "-1", "--", "make"}, 2, "--debounce: expected 0 to"},
        {"dev-tpu-execute", {"--tpu-name", "a", "--timeout", "0", "--", "ls"}, 2, "a number of seconds above 0"},
        {"dev-tpu-execute", {"--tpu-name", "a", "--sync-path", "none", "--", "ls"}, 2, "--sync-path none"},
        {"dev-tpu-setup", {"--tpu-name", "a", "--sync-path", "none"}, 2, "--sync-path none"},
        {"dev-tpu-test", {"--tpu-name", "a", "--require-passed", "1"}, 2, "has no pytest counts"},
        {"dev-tpu-connect", {"--tpu-name", "../a"}, 2, "../a"},
    };
    for (const auto& one : cases) world.check(one);
    CHECK(world.http.asked.empty());
    CHECK(world.process.calls.empty());
}

TEST_CASE("dev-tpu commands: nobody holds a TPU of that name") {
    DevTpuWorld world;
    world.lists(holder("gdnctl-hold-b", "b", "me", "RUNNING") + "," + holder("gdnctl-hold-a", "a", "you", "RUNNING"));
    for (const std::string_view command : {"dev-tpu-connect", "dev-tpu-setup"}) {
        CHECK(world.ask(command, {"--tpu-name", "a"}) == 4);
        CHECK(world.said.find("run dev-tpu-allocate --tpu-name a first") != std::string::npos);
    }
    CHECK(world.ask("dev-tpu-execute", {"--tpu-name", "a", "--no-sync", "--", "ls"}) == 4);
    CHECK(world.host.lines.empty());
}

TEST_CASE("dev-tpu-execute: the code of the command, and a hold that ended meanwhile") {
    DevTpuWorld world;
    world.remembers("a", true);
    CHECK(world.ask("dev-tpu-execute", {"--tpu-name", "a", "--no-sync", "--", "make", "it"}) == 0);
    CHECK(world.host.has_run("dev-tpu-a"));
    world.host.code = 3;
    CHECK(world.ask("dev-tpu-execute", {"--tpu-name", "a", "--no-sync", "--json", "--", "make"}) == 3);
    CHECK(world.json()["exit_code"] == 3);
    world.host.code = 255;
    world.http.on("GET " + k_cluster + "/api/jobs/gdnctl-hold-a", 200, holder("gdnctl-hold-a", "a", "me", "STOPPED"));
    world.http.on("GET " + k_cluster + "/api/jobs/gdnctl-hold-a/logs", 200, R"({"logs":""})");
    CHECK(world.ask("dev-tpu-execute", {"--tpu-name", "a", "--no-sync", "--", "make"}) == 4);
    CHECK(world.said.find("the command did not end by itself") != std::string::npos);
}

TEST_CASE("dev-tpu-connect and -setup: a host without ssh") {
    DevTpuWorld world;
    world.remembers("a", false);
    world.http.on("GET " + k_cluster + "/api/jobs/gdnctl-hold-a", 200, holder("gdnctl-hold-a", "a", "me", "RUNNING"));
    CHECK(world.ask("dev-tpu-connect", {"--tpu-name", "a"}) == 4);
    CHECK(world.said.find("--via ray runs the command as a job on the holder's host") != std::string::npos);
    CHECK(world.host.lines.empty());
}

TEST_CASE("dev-tpu-list: one's own holds, or everybody's, a hold that has ended is forgotten") {
    DevTpuWorld world;
    world.remembers("a", true);
    world.lists(holder("gdnctl-hold-a", "a", "me", "RUNNING") + "," + holder("gdnctl-hold-b", "b", "you", "PENDING"));
    CHECK(world.ask("dev-tpu-list", {"--json"}) == 0);
    REQUIRE(world.json()["holds"].size() == 1);
    CHECK(world.json()["holds"][0]["tpu_name"] == "a");
    CHECK(world.ask("dev-tpu-list", {"--all-users", "--json"}) == 0);
    CHECK(world.json()["holds"].size() == 2);
    DevTpuWorld ended;
    ended.remembers("a", true);
    ended.lists(holder("gdnctl-hold-a", "a", "me", "FAILED"));
    CHECK(ended.ask("dev-tpu-list", {}) == 0);
    CHECK(ended.said.find("no dev TPU is held") != std::string::npos);
    CHECK(ended.remembered() == 0);
}

TEST_CASE("dev-tpu-release: one's own, never another's by name, what has ended is forgotten") {
    DevTpuWorld world;
    world.remembers("a", false);
    world.lists(holder("gdnctl-hold-a", "a", "me", "RUNNING") + "," + holder("gdnctl-hold-b", "b", "you", "RUNNING"));
    CHECK(world.ask("dev-tpu-release", {"--tpu-name", "b"}) == 2);
    CHECK(world.said.find("hint: --submission-id gdnctl-hold-b releases it anyway") != std::string::npos);
    world.http.on("POST " + k_cluster + "/api/jobs/gdnctl-hold-a/stop", 200, R"({"stopped": true})");
    world.http.on("GET " + k_cluster + "/api/jobs/gdnctl-hold-a", 200, holder("gdnctl-hold-a", "a", "me", "STOPPED"));
    CHECK(world.ask("dev-tpu-release", {"--all-mine", "--json"}) == 0);
    CHECK(world.json()["released"] == Json{"gdnctl-hold-a"});
    CHECK(world.remembered() == 0);
    DevTpuWorld ended;
    ended.remembers("a", false);
    ended.lists("");
    CHECK(ended.ask("dev-tpu-release", {"--tpu-name", "a"}) == 0);
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
    for (const std::string_view command : {"dev-tpu-test", "dev-tpu-profile"}) {
        CHECK(world.ask(command, words) == 4);
        CHECK(world.said.find("run dev-tpu-allocate --tpu-name a first") != std::string::npos);
    }
    CHECK(world.host.lines.empty());
    world.remembers("a", true);
    CHECK(world.ask("dev-tpu-test", words) == 0);
    CHECK(world.json()["schema"] == "gdnctl.dev-tpu-test/1");
    CHECK(world.json()["status"] == "SUCCEEDED");
    CHECK(world.host.has_run("check.sh"));
    CHECK(!world.host.has_run("time.sh"));
    world.host.code = 1;
    CHECK(world.ask("dev-tpu-test", words) == 1);
    CHECK(world.json()["status"] == "FAILED");
    CHECK(world.remembered() == 1);
}

TEST_CASE("dev-tpu-test and -profile: without a target of the user's own nothing runs on a held TPU") {
    DevTpuWorld world;
    world.remembers("a", true);
    for (const std::string_view command : {"dev-tpu-test", "dev-tpu-profile"}) {
        for (const bool named : {true, false}) {  // the cluster
            const std::vector<std::string> words = {"--tpu-name", "a", "--no-sync"};
            CHECK((named ? world.ask(command, words) : world.run(command, words)) == 2);
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
    CHECK(world.ask("dev-tpu-profile", words) == 0);
    CHECK(world.json()["schema"] == "gdnctl.dev-tpu-profile/1");
    CHECK(world.json()["status"] == "SUCCEEDED");
    CHECK(world.json()["metric"]["value"] == 7.5);
    CHECK(world.host.has_run("time.sh"));
    CHECK(!world.host.has_run("check.sh"));
    CHECK(world.ask("dev-tpu-profile", {"--tpu-name", "a", "--no-sync"}) == 0);
    CHECK(world.said.find("metric ms: 7.5") != std::string::npos);
    world.host.prints.clear();
    CHECK(world.ask("dev-tpu-profile", words) == 0);
    CHECK(world.json()["metric"]["value"].is_null());
    world.host.code = 1;
    CHECK(world.ask("dev-tpu-profile", words) == 1);
    CHECK(world.json()["status"] == "FAILED");
    CHECK(world.ask("dev-tpu-profile", {"--tpu-name", "a", "--no-sync", "--profile-env", "NO"}) == 2);
}

TEST_CASE("dev-tpu-watch: a name that nobody holds, and a stop that ends it") {
    DevTpuWorld world;
    world.lists("");
    CHECK(world.ask("dev-tpu-watch", {"--tpu-name", "a", "--", "make"}) == 4);
    CHECK(world.host.lines.empty());
    world.remembers("a", true);
    world.stop.request_stop();
    CHECK(world.ask("dev-tpu-watch", {"--tpu-name", "a", "--no-sync", "--", "make"}) == 130);
}

TEST_CASE("dev-tpu-allocate: a name that is taken, and a cluster that is asked as often as told") {
    DevTpuWorld world;
    world.lists(holder("gdnctl-hold-a", "a", "you", "RUNNING"));
    CHECK(world.ask("dev-tpu-allocate", {"--tpu-name", "a", "--tpu-type", "v5p-8"}) == 2);
    CHECK(world.said.find("you") != std::string::npos);
    CHECK(world.ask("dev-tpu-allocate", {"--tpu-name", "a", "--tpu-type", "nonsense"}) == 2);
    CHECK(world.remembered() == 0);
    CommandWorld page;
    page.http.on("GET " + k_cluster + "/api/version", 200, "<html>");
    page.http.on("GET " + k_cluster + "/api/jobs/", 200, "<html>");
    CHECK(page.run("dev-tpu-allocate", {"--ray-address", k_cluster, "--tpu-name", "a", "--tpu-type", "v5p-8",
                                        "--attempts", "3", "--retry-sleep", "7"}) == 4);
    CHECK(page.said.find("(attempt 1 of 3)") != std::string::npos);
    CHECK(page.said.find("(attempt 3 of 3)") == std::string::npos);
    const auto sleeps = page.clock.sleeps();
    CHECK(std::count(sleeps.begin(), sleeps.end(), std::chrono::seconds(7)) == 2);
}

}  // namespace gdnctl::commands
