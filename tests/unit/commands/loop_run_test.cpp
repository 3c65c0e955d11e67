// What the commands around a loop decide: its views, its policy, its prompts, and what codex-loop refuses.
#include "command_world.h"
#include "loop/engine/journal.h"
#include "loop/evolve/journal.h"
#include "services/git/git.h"
#include "unit/loop/run_script.h"

namespace gdnctl::commands {
namespace {

using test::CommandWorld;
namespace fs = std::filesystem;

constexpr const char* k_loop_dir = ".agents/logs/gdn_codex_loop";

struct LoopWorld : CommandWorld {
    LoopWorld() { configure("target = \"t\"\n[targets.t]\ntest = [\"true\"]\nkernel = [\"kernel.c\"]\n"); }

    void has_run(int iterations, const std::string& folder = k_loop_dir) const {
        fs::create_directories(file(folder));
        auto journal = loop::LoopJournal::open(file(folder) / "journal.jsonl");
        REQUIRE(journal);
        for (const auto& record : loop::scripted_run(iterations)) REQUIRE(journal->append(record, clock.wall()));
    }
    // Attempt 1 was kept, attempt 2 was wrong.
    void has_evolve_run() const {
        const fs::path folder = file(".gdnctl/evolve/r1");
        fs::create_directories(folder);
        fs::permissions(folder, fs::perms::owner_all);
        auto journal = loop::evolve::EvolveJournal::open(folder);
        REQUIRE(journal);
        const auto add = [&](const char* type, const Json& facts) {
            const Status added = journal->add(type, facts, clock.wall());
            INFO(type);
            if (!added) FAIL(added.error().text());
        };
        add("run_start", {{"run", "r1"},
                          {"base", std::string(40, 'b')},
                          {"seed", 7},
                          {"mutable_key", "k0"},
                          {"config", {{"lineages", 2}, {"stagnation", 8}}}});
        add("eval_stage",
            {{"attempt", 0}, {"stage", "noise"}, {"verdict", "pass"}, {"metrics", {{"sd", 0.001}, {"pairs", 9}}}});
        add("attempt_start", {{"attempt", 1},
                              {"operator", "exploit"},
                              {"lineage", 0},
                              {"parents", {{{"attempt", 0}, {"commit", std::string(40, 'b')}}}}});
        add("proposal", {{"attempt", 1}, {"class", "no-change"}, {"tokens", {{"in", 100}, {"out", 10}}}});
    }
};

}  // namespace

TEST_CASE("commands of a loop: what is refused") {
    LoopWorld world;
    const std::vector<CommandWorld::Case> cases = {
        {k_loop_status_row, {}, 6, "no run of codex-loop in"},
        {k_loop_status_row, {"--log-dir", "none"}, 2, "--log-dir: no such directory"},
        {k_loop_status_row, {"--watch", "--json"}, 2, "--watch and --json cannot be combined"},
        {k_loop_explain_row, {"0"}, 2, "N must be a number from 1, or `last`: 0"},
        {k_loop_explain_row, {"last"}, 6, "no run of codex-loop in"},
        {k_loop_report_row, {"--html", ""}, 2, "--html: the path is empty"},
        {k_loop_report_row, {}, 6, "no run of codex-loop in"},
        {k_evolve_log_row, {"--run", "a", "--log-dir", "b"}, 2, "--run and --log-dir cannot be combined"},
        {k_evolve_log_row, {}, 6, "no evolve run"},
        {k_evolve_show_row, {"best"}, 6, "no evolve run"},
        {k_evolve_lineage_row, {}, 6, "no evolve run"},
        {k_evolve_diff_row, {"0", "1"}, 6, "no evolve run"},
        {k_evolve_best_row, {}, 6, "no evolve run"},
        {k_evolve_pause_row, {}, 6, "no evolve run"},
        {k_evolve_stop_row, {}, 6, "no evolve run"},
        {k_evolve_fsck_row, {}, 6, "no evolve run"},
        {k_evolve_gc_row, {"--older-than", "soon"}, 2, "--older-than: expected a time such as 30d or 12h: soon"},
        {k_evolve_gc_row, {"--older-than", "30d"}, 6, "no evolve run"},
        {k_evolve_replay_row, {"best"}, 6, "no evolve run"},
        {k_evolve_promote_row, {"best"}, 6, "no evolve run"},
        {k_evolve_noise_row, {"--pairs", "4"}, 2, "--pairs: expected 3, 5 or 9"},
        {k_evolve_import_row, {"--from", "none.json"}, 2, "none.json"},
        {k_policy_test_row, {}, 2, "no FILE given"},
        {k_policy_test_row, {"f", "--lower-is-better", "--higher-is-better"}, 2, "cannot be combined"},
        {k_policy_test_row, {"none.json"}, 2, "none.json"},
        {k_policy_show_row, {"--perf-policy-file", "none.json"}, 2, "none.json"},
        {k_policy_simulate_row, {"--perf-pairs", "4"}, 2, "--perf-pairs must be 3, 5 or 9."},
        {k_policy_simulate_row, {"--trials", "0"}, 2, "--trials 0: expected 1 to 10000000"},
        {k_policy_simulate_row, {"--noise-pct", "-1"}, 2, "--noise-pct"},
        {k_prompts_show_row, {"marni"}, 2, "did you mean `marin`?"},
        {k_prompts_render_row, {"none"}, 2, "none"},
        {k_prompts_render_row, {"none.md"}, 2, "none.md"},
    };
    for (const auto& one : cases) world.check(one);
    CHECK(world.process.calls.empty());
    CHECK(test::list_names(world.context.cwd).empty());
}

TEST_CASE("codex-loop: a refusal ends with its reason, and nothing has begun") {
    LoopWorld world;
    const std::vector<CommandWorld::Case> cases = {
        {k_codex_loop_row, {"--iterations", "0"}, 2, "--iterations"},
        {k_codex_loop_row, {"--iterations", "1", "--max-wall", "soon"}, 2, "--max-wall"},
        {k_codex_loop_row, {"--iterations", "1", "--agent", "command"}, 2, "--agent-command"},
        {k_codex_loop_row, {"--iterations", "1", "--lineages", "2"}, 2, "needs --mode evolve"},
        {k_codex_loop_row, {"--mode", "evolve"}, 2, "--mode evolve needs a budget"},
        {k_codex_loop_row, {"--mode", "evolve", "--iterations", "3"}, 2, "use --max-attempts N"},
    };
    for (const auto& one : cases) world.check(one);
    CHECK(test::list_names(world.context.cwd).empty());
    CHECK(test::list_names(world.folder / "state").empty());
}

TEST_CASE("loop-status, loop-explain and loop-report: a run as its journal tells it") {
    LoopWorld world;
    world.has_run(4);
    CHECK(world.run(k_loop_status_row, {"--json"}) == 0);
    CHECK(world.json()["run"] == "r1");
    CHECK(world.run(k_loop_status_row, {}) == 0);
    CHECK(world.printed("t_long"));
    CHECK(world.run(k_loop_explain_row, {"2", "--json"}) == 0);
    CHECK(world.json()["outcome"] == "test-fail");
    CHECK(world.run(k_loop_explain_row, {"last"}) == 0);
    CHECK(world.printed("iteration 4: "));
    CHECK(world.run(k_loop_explain_row, {"9"}) == 6);
    CHECK(world.said.find("hint: it has 1 to 4") != std::string::npos);
    CHECK(world.run(k_loop_report_row, {"--html", "report.html"}) == 0);
    CHECK(world.terminal.out_text.empty());
    CHECK(world.read("report.html").find("<svg") != std::string::npos);
    CHECK(world.run(k_loop_report_row, {"--json"}) == 0);
    CHECK(world.json()["schema"] == "gdnctl.loop-report/1");
}

TEST_CASE("loop-status: a state that cannot be parsed, and its repair, a damaged journal") {
    LoopWorld world;
    world.has_run(3, "log");
    world.write("log/state.json", "{\"records\": 999");
    CHECK(world.run(k_loop_status_row, {"--log-dir", "log"}) == 2);
    CHECK(world.said.find("--rebuild-state") != std::string::npos);
    CHECK(world.run(k_loop_status_row, {"--log-dir", "log", "--rebuild-state"}) == 0);
    CHECK(std::filesystem::exists(world.file("log/state.json.bak")));
    CHECK(world.run(k_loop_status_row, {"--log-dir", "log"}) == 0);
    std::string journal = world.read("log/journal.jsonl");
    world.write("log/journal.jsonl", journal.replace(journal.find("r1"), 2, "r2"));
    CHECK(world.run(k_loop_status_row, {"--log-dir", "log"}) == 7);
}

TEST_CASE("evolve: views of a run, attempts that are not there, and its control files") {
    LoopWorld world;
    world.has_evolve_run();
    CHECK(world.run(k_evolve_log_row, {"--json"}) == 0);
    CHECK(world.json()["attempts"].size() == 2);
    CHECK(world.run(k_evolve_show_row, {"1"}) == 0);
    CHECK(world.run(k_evolve_show_row, {"7"}) == 6);
    CHECK(world.run(k_evolve_lineage_row, {"--json"}) == 0);
    CHECK(world.json()["run"] == "r1");
    CHECK(world.run(k_evolve_diff_row, {"0", "1"}) == 6);
    CHECK(world.said.find("attempt 1 left no candidate") != std::string::npos);
    CHECK(world.run(k_evolve_best_row, {"--json"}) == 0);
    CHECK(world.json()["attempt"] == 0);
    CHECK(world.run(k_evolve_promote_row, {"best"}) == 1);
    CHECK(world.said.find("nothing was kept") != std::string::npos);
    CHECK(world.run(k_evolve_log_row, {"--run", "other"}) == 6);
    const auto control = [&](const char* name) { return fs::exists(world.file(".gdnctl/evolve/r1") / name); };
    CHECK(world.run(k_evolve_pause_row, {}) == 0);
    CHECK(control("PAUSE"));
    CHECK(world.run(k_evolve_pause_row, {"--off"}) == 0);
    CHECK(!control("PAUSE"));
    CHECK(world.run(k_evolve_stop_row, {}) == 0);
    CHECK(control("STOP"));
    CHECK(world.run(k_loop_status_row, {"--json"}) == 0);
    CHECK(world.json()["mode"] == "evolve");
    CHECK(world.run(k_loop_explain_row, {"last", "--json"}) == 0);
    CHECK(world.json()["mode"] == "evolve");
}

TEST_CASE("policy test: agreement is 0, another decision is 1, a file without records is 9") {
    LoopWorld world;
    world.write("state.json", R"({"version": 2, "champion": null, "history": [
 {"iteration": 1, "commit": "1111111111111111", "metric": "throughput/mfu", "metric_value": 4.0, "decision": "baseline"},
 {"iteration": 2, "commit": "2222222222222222", "metric": "throughput/mfu", "metric_value": 4.2, "decision": "promoted"},
 {"iteration": 3, "commit": "3333333333333333", "metric": "throughput/mfu", "metric_value": 4.14, "decision": "regression"}]})");
    CHECK(world.run(k_policy_test_row, {"state.json"}) == 0);
    CHECK(world.printed("2 records, 0 not judged, 0 decided differently"));
    CHECK(world.run(k_policy_test_row, {"state.json", "--perf-max-regression-pct", "2", "--json"}) == 1);
    CHECK(world.json()["differences"] == 1);
    world.write("empty.json", "{}");
    CHECK(world.run(k_policy_test_row, {"empty.json"}) == 9);
}

TEST_CASE("policy show prints a file that it reads, simulate finds a large gain and stops when told") {
    LoopWorld world;
    CHECK(world.run(k_policy_show_row, {"--perf-max-while-increase-ms", "2"}) == 0);
    const std::string shown = world.terminal.out_text;
    world.write("policy.json", shown);
    CHECK(world.run(k_policy_show_row, {"--perf-policy-file", "policy.json"}) == 0);
    CHECK(world.terminal.out_text == shown);
    const std::vector<std::string> quick = {"--noise-pct", "0.1", "--gain-pct", "5", "--trials", "50", "--json"};
    CHECK(world.run(k_policy_simulate_row, quick) == 0);
    REQUIRE(world.json()["rows"].size() == 1);
    CHECK(world.json()["rows"][0]["promoted"] == 1.0);
    world.stop.request_stop();
    CHECK(world.run(k_policy_simulate_row, quick) == 130);
}

TEST_CASE("prompts: the default is marked, a file is a prompt, directives are appended") {
    LoopWorld world;
    CHECK(world.run(k_prompts_list_row, {"--json"}) == 0);
    const Json documents = world.json()["documents"];
    CHECK(std::count_if(documents.begin(), documents.end(), [](const Json& one) { return one["default"] == true; }) <=
          1);
    CHECK(world.run(k_prompts_show_row, {"marin", "--json"}) == 0);
    CHECK(world.json()["kind"] == "prompt");
    world.write("mine.md", "Iteration {{ITERATION}} of {{TOTAL_ITERATIONS}} at {{HEAD_SHA}} {{ODD}}\n");
    CHECK(world.run(k_prompts_render_row, {"mine.md", "--iteration", "2", "--total", "5", "--head-sha",
                                           std::string(40, 'a'), "--directive", "be brief"}) == 0);
    CHECK(world.printed("Iteration 2 of 5 at aaaa"));
    CHECK(world.printed("be brief"));
    CHECK(world.said.find("unknown placeholder {{ODD}}") != std::string::npos);
    world.process.expect(git_command({"*", "*", "*", "*", "*"}), 128);
    CHECK(world.run(k_prompts_render_row, {"mine.md"}) == 9);
    CHECK(world.said.find("hint: pass the commit with --head-sha") != std::string::npos);
}

}  // namespace gdnctl::commands
