// What is remembered of iterations.
#include "loop/memory/ledger.h"

#include <algorithm>
#include <fstream>

#include "core/json.h"
#include "ledger_world.h"
#include "loop/memory/run_view.h"
#include "runlog/records/record.h"
#include "support/faults.h"

namespace fs = std::filesystem;

namespace gdnctl::loop {

TEST_CASE("ledger: the record of one that was kept has base, commits, numbers and cost (defect 26, failure mode N)") {
    const auto run = scripted_run(3);
    const auto measured = measured_run();
    const Json record = iteration_record(records_of(run, 1), facts_for_test(&measured));
    ok(runlog::check_record(record, "record"));
    CHECK(record["schema"] == "gdnctl.iteration/1");
    CHECK(record["loop"] == Json({{"run_id", "r1"}, {"index", 1}, {"total", 10}}));
    CHECK(record["outcome"] == "accepted");
    CHECK(record["decision"] == "promoted");
    CHECK(record["commit_status"] == "committed");
    CHECK(record["commits"].size() == 1);
    CHECK(record["base"]["commit"] == std::string(40, 'b'));
    const Json& metric = record["metrics"]["gdn/forward_ms"];
    CHECK(metric["before"].get<double>() ==
          doctest::Approx(4.2 / 0.955));  // as it was compared, not as it was recorded
    CHECK(metric["after"] == 4.2);
    CHECK(metric["gain_pct"].get<double>() == doctest::Approx(4.6));
    const auto gain = runlog::parse_gain(record["gain"]);
    REQUIRE(gain);
    CHECK(runlog::gain_text(*gain) == "1.046x faster (1.041-1.051x, 5 pairs)");
    CHECK(runlog::gain_fault(record).empty());
    CHECK(record["cost"]["tokens"]["total"] == 10);
    CHECK(record["cost"]["retries"] == 0);
    CHECK(record["cost"]["agent_s"] == 1.0);
    CHECK(record["checks"].size() == 2);
    CHECK(record["gates"][0]["value"] == 4.1);
    CHECK(record["idea"]["id"] == "slot:H");
    CHECK(record["coverage_slot"] == "H");
}

TEST_CASE("ledger: the record of a refused one says where its commits are, what failed and what it cost") {
    const auto run = scripted_run(3);
    const Json failed = iteration_record(records_of(run, 2), facts_for_test());
    ok(runlog::check_record(failed, "record"));
    CHECK(failed["outcome"] == "test-fail");
    CHECK(failed["commit_status"] == "none");
    CHECK(failed["commit_reason"] == "failed attempt, kept at refs/gdnctl/r1/iter-002/head");
    CHECK(failed["commits"].empty());
    CHECK(failed["cost"]["retries"] == 1);
    CHECK(failed["cost"]["tpu_s"] == 0.5);
    CHECK(failed["metrics"].empty());
    CHECK(failed["decision_reasons"] == Json({"case t_long: WRONG"}));
    const auto measured = measured_run();
    const Json refused = iteration_record(records_of(run, 3), facts_for_test(&measured));
    CHECK(refused["decision"] == "regression");
    CHECK(runlog::gain_text(*runlog::parse_gain(refused["gain"])) == "1.075x slower (1.064-1.087x, 3 pairs)");
    CHECK(refused["gates"][0]["id"] == "while_ms");
}

TEST_CASE("ledger: infrastructure is told by class and sign, an agent that did nothing has no commit") {
    RunScript script(2);
    script.begin(1);
    script.add(RecordType::decision, 1,
               {{"outcome", "infra"}, {"verdict", "park"}, {"reason", "port 22: closed"}, {"sign", "port 22: "}});
    script.add(RecordType::iteration_end, 1, {{"outcome", "infra"}}, {{"tpu_ms", 9000}});
    const Json record = iteration_record(records_of(script.records(), 1), facts_for_test());
    CHECK(record["infra"][0]["class"] == "infra");
    CHECK(record["infra"][0]["signature"] == "port 22: ");
    CHECK(record["commit_reason"] == "no new commit");
    CHECK(record["cost"]["tpu_s"] == 9.0);
    ok(runlog::check_record(iteration_record({}, LedgerFacts{}), "empty"));
}

TEST_CASE("ledger: secrets and home directories do not get into a record") {
    RunScript script(1);
    script.begin(1);
    script.add(RecordType::decision, 1,
               {{"outcome", "error"}, {"reason", "token hf_abcdefghijklmnopqrstuvwxyz012345 in /home/somebody/x"}});
    auto facts = facts_for_test();
    facts.report.hypothesis = "see /home/somebody/notes";
    const std::string text = gdnctl::to_text(iteration_record(records_of(script.records(), 1), facts));
    CHECK(text.find("hf_abcdef") == std::string::npos);
    CHECK(text.find("somebody") == std::string::npos);
}

TEST_CASE("ledger: is appended to once, however often it is asked to, and read back after a torn line") {
    const test::TempDir folder;
    const auto run = scripted_run(3);
    CHECK(ok(read_ledger(folder.path())).empty());
    for (const int i : {1, 1, 2, 2, 3})
        ok(append_ledger(folder.path(), iteration_record(records_of(run, i), facts_for_test())));
    CHECK(ok(read_ledger(folder.path())).size() == 3);
    auto facts = facts_for_test();
    facts.run = "r2";  // another run: its first iteration is another one
    ok(append_ledger(folder.path(), iteration_record(records_of(run, 1), facts)));
    std::ofstream(folder / "ledger.jsonl", std::ios::app) << R"({"schema":"gdnctl.iter)";
    CHECK(ok(read_ledger(folder.path())).size() == 4);
    ok(append_ledger(folder.path(), iteration_record(records_of(run, 2), facts)));
    CHECK(ok(read_ledger(folder.path())).size() == 5);
    CHECK_FALSE(append_ledger(folder.path(), Json({{"no", "record"}})));
    {
        const test::FileSizeLimit limit(fs::file_size(folder / "ledger.jsonl") + 20);
        CHECK(append_ledger(folder.path(), iteration_record(records_of(run, 3), facts)).error().kind ==
              ErrorKind::local_io);
    }
    CHECK(ok(read_ledger(folder.path())).size() == 5);
}

TEST_CASE("ledger: an iteration that has ended is kept with what git and the agent say of it, once") {
    LoopWorld world;
    world.write("kernel.c", "int speed = 2;\n");
    const std::string head = world.commit("faster");
    write_text(world.log_dir() / "iteration-001-report.json", R"({"title":"Go faster","slot":"B"})");
    RunScript script(4);
    script.add(RecordType::iteration, 1);
    script.add(RecordType::base, 1, {{"sha", world.base}, {"branch", "refs/heads/main"}});
    script.attempt(1, 1, "ok", "collect");
    script.add(RecordType::candidate, 1, {{"head", head}, {"diff", "change"}});
    script.add(RecordType::resume, 0, {}, {{"total", 4}});
    script.end(1, "accepted", "keep", "", true);
    const auto git = ok(GitCheckout::open(world.path(), system_process(), world.clock));
    for (int i = 0; i < 2; ++i) ok(keep_in_ledger(world.log_dir(), git, script.records(), 1));
    ok(keep_in_ledger(world.log_dir(), git, script.records(), 2));  // there is none
    const auto ledger = ok(read_ledger(world.log_dir()));
    REQUIRE(ledger.size() == 1);
    CHECK(ledger[0]["commits"] == Json({head}));
    CHECK(ledger[0]["files"] == Json({"kernel.c"}));
    CHECK(ledger[0]["idea"]["title"] == "Go faster");
    CHECK(ledger[0]["idea"]["patch_id"].get<std::string>().size() == 16);
    CHECK(ledger[0]["loop"]["run_id"] == "r1");
    CHECK(ledger[0]["loop"]["total"] == 4);
    CHECK(ledger[0]["commit_status"] == "committed");
    write_text(world.log_dir() / "iteration-001-report.json", "no json");
    auto other = script.records();
    other[0].text["run"] = "r2";
    ok(keep_in_ledger(world.log_dir(), git, other, 1));
    CHECK(ok(read_ledger(world.log_dir())).size() == 2);
}

TEST_CASE("ledger: what was measured is read from where the run's records say it is") {
    const test::TempDir folder;
    const std::string champion = R"({"version":2,"champion":{"metric":"m","metric_value":1.5},"history":[]})";
    write_text(folder / "shared.json", champion);
    RunScript script(2);
    CHECK_FALSE(ok(read_measured(folder.path(), script.records())));
    script.add(RecordType::resume, 0, {{"perf_state", (folder / "shared.json").string()}}, {{"total", 2}});
    script.add(RecordType::resume, 0, {}, {{"total", 2}});  // of a session without performance
    script.add(RecordType::iteration, 1, {{"perf_state", "/nowhere"}});
    const auto found = ok(read_measured(folder.path(), script.records()));
    REQUIRE(found);
    CHECK(found->champion->value == 1.5);
    script.add(RecordType::resume, 0, {{"perf_state", std::string(k_perf_state)}}, {{"total", 2}});
    CHECK_FALSE(ok(read_measured(folder.path(), script.records())));
    write_text(folder / "perf_state.json", champion);
    CHECK(ok(read_measured(folder.path(), script.records())));
}

TEST_CASE("ledger: what an agent hands in is read field by field, and never trusted to be there") {
    const auto report = ok(parse_agent_report(
        R"({"title":" Batch ","slot":"H","changes":["a",3,"b"],"hypothesis":7,"new_argument":"measured","extra":{}})",
        "r"));
    CHECK(report.title == "Batch");
    CHECK(report.slot == "H");
    CHECK(report.hypothesis.empty());
    CHECK(report.changes == std::vector<std::string>{"a", "b"});
    CHECK(report.new_argument == "measured");
    for (const char* text : {"", "[]", "{", "3"}) {
        CHECK(parse_agent_report(text, "r").error().kind == ErrorKind::bad_input);
    }
    const test::TempDir folder;
    CHECK(ok(read_agent_report(folder.path(), 7)).title.empty());
    write_text(folder / "iteration-007-report.json", R"({"title":"x"})");
    CHECK(ok(read_agent_report(folder.path(), 7)).title == "x");
    write_text(folder / "iteration-007-report.json", std::string(70'000, ' ') + "{}");
    CHECK(read_agent_report(folder.path(), 7).error().kind == ErrorKind::bad_input);
}

TEST_CASE(
    "ledger: a patch has the same id on other lines and with other blanks, and another one when it does other things") {
    const std::string patch =
        "diff --git a/k.c b/k.c\nindex 1..2 100644\n--- a/k.c\n+++ b/k.c\n@@ -1,3 +1,3 @@\n a\n-b = 1;\n+b = 2;\n c\n";
    std::string moved = patch;
    moved.replace(moved.find("@@ -1,3 +1,3"), 12, "@@ -9,3 +9,3");
    std::string blanks = patch;
    blanks.replace(blanks.find("+b = 2;"), 7, "+  b=2;");
    std::string other = patch;
    other.replace(other.find("+b = 2;"), 7, "+b = 3;");
    std::string elsewhere = patch;
    elsewhere.replace(0, elsewhere.find('\n'), "diff --git a/j.c b/j.c");
    const std::string id = ok(patch_id(patch));
    CHECK(id.size() == 16);
    CHECK(ok(patch_id(moved)) == id);
    CHECK(ok(patch_id(blanks)) == id);
    CHECK(ok(patch_id(other)) != id);
    CHECK(ok(patch_id(elsewhere)) != id);
    CHECK(ok(patch_id("")).empty());
    const std::string binary = "diff --git a/x b/x\nindex 1..2\nGIT binary patch\nliteral 3\n";
    CHECK(ok(patch_id(binary + "Kabc\n")) != ok(patch_id(binary + "Kabd\n")));
}

TEST_CASE("patch id: of two commits the same as of the patch between them") {
    LoopWorld world;
    world.write("kernel.c", "int speed = 2;\n");
    world.write("data.bin", std::string("\0\1\2binary", 9));
    const std::string head = world.commit("more");
    const auto git = ok(GitCheckout::open(world.path(), system_process(), world.clock));
    const std::string id = ok(patch_id(git, world.base, head));
    CHECK(id.size() == 16);
    CHECK(id == ok(patch_id(ok(git.patch(world.base, head, {})))));
    CHECK(ok(patch_id(git, head, head)).empty());
}

}  // namespace gdnctl::loop
