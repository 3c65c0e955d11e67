// What the commands for the running log decide. Their repository is a plain folder: no history.
#include "command_world.h"

namespace gdnctl::commands {

namespace {

using test::CommandWorld;

struct LogWorld : CommandWorld {
    // The words of a command on this log.
    int on_log(std::string_view command, std::vector<std::string> words) {
        words.insert(words.end(), {"--log-file", "log.md"});
        return run(command, std::move(words));
    }
    void start() {
        REQUIRE(on_log("log init", {}) == 0);
        for (const char* title : {"first", "second"}) {
            REQUIRE(on_log("log append", {"--title", title, "--hypothesis", "it helps", "--next", "more"}) == 0);
        }
    }
    void replace(const std::string& from, const std::string& to) {
        std::string text = read("log.md");
        const auto at = text.rfind(from);
        REQUIRE(at != std::string::npos);
        write("log.md", text.replace(at, from.size(), to));
    }
};

}  // namespace

TEST_CASE("commands of the log: what is refused, and changes nothing") {
    CommandWorld world;
    const std::vector<CommandWorld::Case> cases = {
        {"log append", {"--log-file", "log.md"}, 2, "nothing to append"},
        {"log append", {"--from-job", "-", "--record", "-"}, 2, "only one input"},
        {"log append", {"--title", "x", "--outcome", "infre"}, 2, "did you mean infra?"},
        {"log append", {"--title", "x", "--log-file", "none.md"}, 2, "log file not found"},
        {"log append", {"--from-job", "none.json", "--log-file", "none.md"}, 2, "none.json"},
        {"log new", {"--log-file", "none.md"}, 2, "gdnctl log init"},
        {"log show", {"x", "--log-file", "none.md"}, 2, "not an iteration: x"},
        {"log show", {"1", "--log-file", "none.md"}, 2, "log file not found"},
        {"log summary", {"--log-file", "none.md"}, 2, "log file not found"},
        {"log context", {"--log-file", "none.md", "--bytes", "63"}, 2, "expected 64 bytes to 1 GiB"},
        {"log render", {"--log-file", "none.md", "--check"}, 2, "log file not found"},
        {"log import", {"--log-file", "none.md", "--dry-run"}, 2, "log file not found"},
        {"log stamp", {"--log-file", "none.md", "--commit", "abcdef1"}, 3, "nothing stamped: log file not found"},
        {"lint-log", {"--log-file", "none.md"}, 2, "hint: `gdnctl log init --log-file none.md` starts one"},
        {"lint-log", {"--log-file", ""}, 2, "--log-file needs a path"},
        {"lint-log", {"--log-file", "none.md", "--repo", "."}, 2, "not in a git repository: ."},
        {"lint-log", {"--json", "--diff"}, 2, "cannot be combined with --json"},
        {"lint-log", {"--log-file", "a.md", "--output", "a.md"}, 2, "--output names the log itself"},
        {"lint-log", {"--rule", "no-such-rule=off"}, 2, "no-such-rule"},
    };
    for (const auto& one : cases) world.check(one);
    CHECK(test::list_names(world.context.cwd).empty());
}

TEST_CASE("log init: once, and in the style that is asked for") {
    LogWorld world;
    CHECK(world.on_log("log init", {}) == 0);
    const std::string head = world.read("log.md");
    CHECK(world.on_log("log init", {"--template", "experiment"}) == 7);
    CHECK(world.said.find("already exists") != std::string::npos);
    CHECK(world.read("log.md") == head);
    CHECK(world.run("log init", {"--template", "experiment", "--log-file", "a/e.md", "--json"}) == 0);
    CHECK(world.json()["template"] == "experiment");
    CHECK(world.read("a/e.md").starts_with("# Experiment Log\n"));
}

TEST_CASE("log append: numbers go on, and a job decides the outcome") {
    LogWorld world;
    world.start();
    world.write("job.json", R"({"schema":"gdnctl.ray-test/1","backend":"local","cluster":"local","address":"local",)"
                            R"("submission_id":"gdnctl-test-me-20260310T165307-0123abcd","status":"FAILED",)"
                            R"("error_type":null,"message":"","failure_class":"user","driver_exit_code":1,)"
                            R"("start_time":1773161587000,"end_time":1773161599500,"url":null,"target":"cpu-gdn",)"
                            R"("tests":null,"device":null,"verdict":null})");
    CHECK(world.on_log("log append", {"--from-job", "job.json", "--json"}) == 0);
    CHECK(world.json()["iteration"] == "2");
    CHECK(world.json()["outcome"] == "test-fail");
    world.write("job.json", "{}");
    CHECK(world.on_log("log append", {"--from-job", "job.json"}) == 9);
    CHECK(world.on_log("log append", {"--title", "x", "--metric", "nonsense"}) == 2);
    CHECK(world.on_log("log summary", {"--json"}) == 0);
    CHECK(world.json()["entries"] == 3);
}

TEST_CASE("log new: a draft that append takes and removes") {
    LogWorld world;
    world.start();
    CHECK(world.on_log("log new", {"--title", "third", "--json"}) == 0);
    CHECK(world.json()["iteration"] == "2");
    CHECK(world.json()["record"]["title"] == "third");
    CHECK(std::filesystem::exists(world.file("iteration-002-record.json")));
    CHECK(world.on_log("log append", {"--record", "iteration-002-record.json"}) == 0);
    CHECK(!std::filesystem::exists(world.file("iteration-002-record.json")));
    CHECK(world.read("log.md").find("### Iteration 2 - third\n") != std::string::npos);
}

TEST_CASE("log show: the last, one by number, none") {
    LogWorld world;
    REQUIRE(world.on_log("log init", {}) == 0);
    CHECK(world.on_log("log show", {"last"}) == 3);
    CHECK(world.said.find("hint: `gdnctl log append` adds one") != std::string::npos);
    std::filesystem::remove(world.file("log.md"));
    world.start();
    CHECK(world.on_log("log show", {"last"}) == 0);
    CHECK(world.printed("### Iteration 1 - second\n"));
    CHECK(world.on_log("log show", {"0", "--json"}) == 0);
    CHECK(world.json()["record"]["title"] == "first");
    CHECK(world.on_log("log show", {"7"}) == 3);
    CHECK(world.said.find("hint: the last one is 1") != std::string::npos);
}

TEST_CASE("log context: no longer than asked") {
    LogWorld world;
    world.start();
    CHECK(world.on_log("log context", {"--bytes", "100", "--json"}) == 0);
    CHECK(world.json()["bytes"].get<int>() <= 100);
    CHECK(world.json()["iterations"] == 2);
}

TEST_CASE("log render: --check, an edit by hand, --force") {
    LogWorld world;
    world.start();
    CHECK(world.on_log("log render", {"--check"}) == 0);
    world.replace("- Hypothesis: it helps", "- Hypothesis: it hurts");
    CHECK(world.on_log("log render", {"--check"}) == 1);
    CHECK(world.on_log("log render", {"--json"}) == 7);
    CHECK(world.json()["written"] == false);
    CHECK(world.read("log.md").find("it hurts") != std::string::npos);
    CHECK(world.on_log("log render", {"--force"}) == 0);
    CHECK(world.read("log.md").find("it hurts") == std::string::npos);
    CHECK(world.on_log("log render", {"--check"}) == 0);
}

TEST_CASE("log stamp: a pending entry once, an edited one never, nothing that has a commit") {
    LogWorld world;
    world.start();
    const std::string sha(40, 'a');
    REQUIRE(world.on_log("log append", {"--title", "third", "--change", "c", "--commit", "pending"}) == 0);
    CHECK(world.on_log("log stamp", {"--commit", "nonsense"}) == 2);
    CHECK(world.on_log("log stamp", {"--commit", sha, "--json"}) == 0);
    CHECK(world.json()["stamped"] == true);
    CHECK(world.read("log.md").find("- Commit: " + sha) != std::string::npos);
    CHECK(world.on_log("log stamp", {"--commit", sha, "--json"}) == 3);
    CHECK(world.json()["stamped"] == false);
    CHECK(world.on_log("log stamp", {"--commit", sha, "--record", "none"}) == 3);
}

TEST_CASE("log import: what is there by hand, once") {
    LogWorld world;
    REQUIRE(world.on_log("log init", {}) == 0);
    CHECK(world.on_log("log import", {}) == 3);
    std::filesystem::copy_file(GDNCTL_FIXTURES "/runlog/good.md", world.file("log.md"),
                               std::filesystem::copy_options::overwrite_existing);
    CHECK(world.on_log("log import", {"--dry-run", "--json"}) == 0);
    const auto entries = world.json()["imported"].get<int>();
    CHECK(entries >= 2);
    CHECK(!std::filesystem::exists(world.file("log.records.jsonl")));
    CHECK(world.on_log("log import", {"--json"}) == 0);
    CHECK(world.json()["imported"] == entries);
    CHECK(world.on_log("log import", {"--json"}) == 0);
    CHECK(world.json()["unchanged"] == entries);
}

TEST_CASE("lint-log: errors fail, warnings only with --strict, damaged records are 2") {
    LogWorld world;
    std::filesystem::copy_file(GDNCTL_FIXTURES "/runlog/faulty.md", world.file("log.md"));
    CHECK(world.on_log("lint-log", {"--scope", "all", "--json"}) == 1);
    CHECK(world.json()["findings"].size() > 3);
    std::filesystem::copy_file(GDNCTL_FIXTURES "/runlog/good.md", world.file("log.md"),
                               std::filesystem::copy_options::overwrite_existing);
    CHECK(world.on_log("lint-log", {}) == 0);
    world.write("log.records.jsonl", "nonsense\nmore of it\n");
    CHECK(world.on_log("lint-log", {}) == 2);
}

TEST_CASE("a target without a log asks for one") {
    CommandWorld world;
    world.configure("target = \"t\"\n[targets.t]\ntest = [\"true\"]\n");
    world.check({"lint-log", {}, 2, "target `t` has no running log"});
    world.check({"log show", {"last"}, 2, "pass --log-file, or set `log` in [targets.t]"});
}

}  // namespace gdnctl::commands
