// What is known of ideas and flaky tests, and what a prompt is told of it.
#include "loop/memory/ideas.h"

#include <fstream>

#include <doctest/doctest.h>

#include "core/json.h"
#include "core/text.h"
#include "ledger_world.h"
#include "loop/gates/flakes.h"
#include "loop/memory/context_pack.h"
#include "validation_world.h"

namespace gdnctl::loop {

namespace {

constexpr WallTime k_now{std::chrono::milliseconds(1'773'161'587'000)};

}  // namespace

TEST_CASE("ideas: the same move on the same files, the same words in a title, or the same patch are one idea") {
    CHECK(same_idea(idea("H", "x"), idea("H", "y")));
    CHECK_FALSE(same_idea(idea("H", "x"), idea("H", "y", "other.c")));
    CHECK_FALSE(same_idea(idea("H", "x"), idea("G", "y")));
    CHECK(same_idea(idea("", "Batch the K matmuls"), idea("", "k matmuls: BATCH", "other.c")));
    CHECK_FALSE(same_idea(idea("", ""), idea("", "")));
    CHECK_FALSE(same_idea(idea("", "the a of"), idea("", "with")));
    Idea a = idea("G", "x", "a.c");
    Idea b = idea("H", "y", "b.c");
    a.patch_id = b.patch_id = "p";
    CHECK(same_idea(a, b));
    Idea moved = idea("H", "x");
    moved.move = "other";
    CHECK_FALSE(same_idea(moved, idea("H", "y")));
    CHECK(normalised_title("Use  the K-matmuls, k!") == "k matmuls");
    CHECK(idea_id(moved) == "move:other");
    CHECK(idea_id(idea("", "B a")) == "title:b");
    CHECK(idea_id(Idea{}).empty());
}

TEST_CASE(
    "ideas: the third try of what was refused twice is warned of or blocked, as with G in 37, 38 and 40 (failure mode "
    "K)") {
    const std::vector<PastIdea> ledger = {past(37, "G", "exp-diff", "rejected"), past(38, "G", "centred", "test-fail"),
                                          past(39, "H", "batch", "rejected")};
    const Idea again = idea("G", "outer product");
    const auto warned = check_idea(again, ledger, IdeaPolicy::warn);
    CHECK(warned.action == IdeaPolicy::warn);
    CHECK(warned.failed == 2);
    CHECK(warned.reason ==
          "`G` (outer product) was rejected 2 times before (iterations 37, 38), and the report does not say what is "
          "different now");
    CHECK(check_idea(again, ledger, IdeaPolicy::block).action == IdeaPolicy::block);
    CHECK(check_idea(again, ledger, IdeaPolicy::off).action == IdeaPolicy::off);
    CHECK(check_idea(idea("H", "x"), ledger, IdeaPolicy::block).action == IdeaPolicy::off);
    Idea argued = again;
    argued.new_argument = "exps are 9 % of the step now";
    CHECK(check_idea(argued, ledger, IdeaPolicy::block).action == IdeaPolicy::off);
    argued.new_argument = "  ";
    CHECK(check_idea(argued, ledger, IdeaPolicy::block).action == IdeaPolicy::block);
}

TEST_CASE("ideas: trouble of the surroundings speaks against no idea, and a win makes earlier refusals void") {
    std::vector<PastIdea> ledger = {past(1, "G", "", "infra"), past(2, "G", "", "timeout"),
                                    past(3, "G", "", "rejected"), past(4, "G", "", "agent-error")};
    CHECK(check_idea(idea("G", ""), ledger, IdeaPolicy::block).failed == 1);
    ledger.push_back(past(5, "G", "", "oom"));
    CHECK(check_idea(idea("G", ""), ledger, IdeaPolicy::block).action == IdeaPolicy::block);
    ledger.push_back(past(6, "G", "", "accepted"));
    CHECK(check_idea(idea("G", ""), ledger, IdeaPolicy::block).failed == 0);
    CHECK(dead_ideas(ledger).empty());
    ledger.push_back(past(7, "G", "", "compile"));
    ledger.push_back(past(8, "G", "again", "rejected"));
    const auto dead = dead_ideas(ledger);
    REQUIRE(dead.size() == 1);
    CHECK(dead[0].iterations == std::vector<int>{7, 8});
    CHECK(dead[0].idea.title == "again");
}

TEST_CASE("ideas: come back out of the ledger as they went in") {
    const auto run = scripted_run(3);
    std::vector<Json> ledger;
    const auto measured = measured_run();
    for (const int i : {1, 2, 3}) ledger.push_back(iteration_record(records_of(run, i), facts_for_test(&measured)));
    const auto ideas = past_ideas(ledger);
    REQUIRE(ideas.size() == 3);
    CHECK(ideas[0].won());
    CHECK(*ideas[0].gain_pct == doctest::Approx(4.6));
    CHECK(ideas[1].failed());
    CHECK(ideas[1].reason == "case t_long: WRONG");
    CHECK(ideas[2].idea.patch_id == "0123456789abcdef");
    CHECK(ideas[2].idea.files == std::vector<std::string>{"kernel.c"});
    CHECK(ideas[2].iteration == 3);
    CHECK(check_idea(ideas[2].idea, ideas, IdeaPolicy::warn).failed == 2);
}

TEST_CASE("coverage: slots are data, open is what has neither won nor failed twice") {
    const auto slots =
        ok(parse_coverage(R"({"slots":[{"slot":"A","title":"layout"},{"slot":"G"},{"slot":"H"}]})", "c"));
    const std::vector<PastIdea> ledger = {past(1, "G", "", "rejected"), past(2, "G", "", "oom"),
                                          past(3, "H", "", "accepted"), past(4, "Z", "", "infra"),
                                          past(5, "", "", "accepted")};
    const auto views = coverage(slots, ledger);
    REQUIRE(views.size() == 4);
    CHECK(views[0].open());
    CHECK_FALSE(views[1].open());
    CHECK_FALSE(views[2].open());
    CHECK(views[3].slot.slot == "Z");
    CHECK(views[3].open());
    CHECK(views[3].iterations == std::vector<int>{4});
    for (const char* text : {"{}", "[]", R"({"slots":{}})", R"({"slots":[{"title":"x"}]})", R"({"slots":[3]})", "{"}) {
        CHECK(parse_coverage(text, "c").error().kind == ErrorKind::bad_input);
    }
    const test::TempDir folder;
    CHECK(ok(read_coverage(folder.path(), {{"Q", ""}})).front().slot == "Q");
    write_text(folder / "coverage.json", R"({"slots":[]})");
    CHECK(ok(read_coverage(folder.path(), {{"Q", ""}})).empty());
}

TEST_CASE("flakes: sightings are kept, counted by test, and a test is known once it passed by itself") {
    const test::TempDir folder;
    CHECK(ok(read_flakes(folder.path())).empty());
    const char* test = "test_gdn_layer_backward_matches_hf[2]";
    ok(append_flake(folder.path(), {test, "r1", 3, false, 1.19e-5, 1e-5}, k_now));
    ok(append_flake(folder.path(), {"other\ntest", "r1", 4, true}, k_now));
    ok(append_flake(folder.path(), {test, "r1", 7, true, 4.99e-5, 1e-5}, k_now));
    std::ofstream(folder / "flakes.jsonl", std::ios::app) << "{}\n[]\nno json\n{\"test\":3}\n{\"test\":\"to";
    const auto sightings = ok(read_flakes(folder.path()));
    REQUIRE(sightings.size() == 3);
    CHECK(sightings[1].test == "other\ntest");
    const auto table = flake_table(sightings);
    REQUIRE(table.size() == 2);
    CHECK(table[0].test == test);
    CHECK(table[0].seen == 2);
    CHECK(table[0].known());
    CHECK(table[0].largest == 4.99e-5);
    CHECK(flake_table(std::span(sightings).first(1))[0].known() == false);
}

TEST_CASE("context pack: champion, noise floor, the last five outcomes, dead ideas, open slots and trouble") {
    RunScript script(20);
    for (int i = 1; i <= 7; ++i) {
        script.begin(i);
        script.candidate(i);
        script.end(i, "rejected", "reject", "reason " + std::to_string(i));
    }
    script.begin(8);
    script.add(RecordType::decision, 8,
               {{"outcome", "infra"}, {"verdict", "park"}, {"reason", "no TPU"}, {"sign", "Device or resource busy"}});
    script.add(RecordType::iteration_end, 8, {{"outcome", "infra"}});
    const RunView run = view_of(script.records());
    const auto measured = measured_run();
    const std::vector<PastIdea> ideas = {past(3, "G", "exp", "rejected"), past(4, "G", "exp", "rejected")};
    const std::vector<CoverageSlot> slots = {{"A", "layout"}, {"G", "exp"}};
    const std::string pack = context_pack({run, &measured, ideas, slots});
    INFO(pack);
    CHECK(pack.find("gdn/forward_ms = 4.2 ms at abcabcabcabc, iteration 1") != std::string::npos);
    CHECK(pack.find("differ by 0.40 %") != std::string::npos);
    CHECK(pack.find("iteration 4: rejected: reason 4") != std::string::npos);
    CHECK(pack.find("reason 3") == std::string::npos);
    CHECK(pack.find("G: exp (rejected 2 times, iterations 3, 4): slower by 1 %") != std::string::npos);
    CHECK(pack.find("- A: layout\n") != std::string::npos);
    CHECK(pack.find("infrastructure (seen 1 time, last in iteration 8): Device or resource busy") != std::string::npos);
    CHECK(pack.size() < k_pack_bytes);
    CHECK(context_pack({RunView{}}).empty());
}

TEST_CASE(
    "context pack: is never larger than it may be, whatever goes in, and stays one line a fact (failure mode M)") {
    RunScript script(1000);
    const std::string long_text(3000, 'x');
    for (int i = 1; i <= 30; ++i) {
        script.begin(i);
        script.end(i, "infra", "park", "line\nbreak \x1b[31m hf_abcdefghijklmnopqrstuvwxyz012345 " + long_text);
    }
    const RunView run = view_of(script.records());
    std::vector<PastIdea> ideas;
    std::vector<CoverageSlot> slots;
    for (int i = 0; i < 400; ++i) {
        const std::string slot = "S" + std::to_string(i);
        for (int n = 0; n < 2; ++n) ideas.push_back(past(i, slot.c_str(), long_text.c_str(), "rejected", slot.c_str()));
        slots.push_back({"T" + std::to_string(i), long_text});
    }
    for (const std::size_t bytes : {k_pack_bytes, std::size_t{2000}, std::size_t{300}, std::size_t{0}}) {
        const std::string pack = context_pack({run, nullptr, ideas, slots}, bytes);
        CHECK(pack.size() <= bytes);
        CHECK(text::is_valid_utf8(pack));
        CHECK(pack.find('\x1b') == std::string::npos);
        CHECK(pack.find("hf_abcdef") == std::string::npos);
    }
    const std::string pack = context_pack({run, nullptr, ideas, slots});
    CHECK(pack.find(" more\n") != std::string::npos);
    CHECK(pack.find("line\\nbreak") != std::string::npos);
}

TEST_CASE("context pack: as a directive it is one or none, and what cannot be read is left out") {
    const test::TempDir folder;
    CHECK(context_directive(folder.path(), {}).empty());
    const auto run = scripted_run(3);
    write_text(folder / "perf_state.json", "[");
    write_text(folder / "ledger.jsonl", "no record\n{}\n");
    write_text(folder / "coverage.json", "{");
    const auto directive = context_directive(folder.path(), run);
    REQUIRE(directive.size() == 1);
    CHECK(directive[0].starts_with("What this run knows so far"));
    CHECK(directive[0].find("iteration 3: rejected") != std::string::npos);
    CHECK_FALSE(directive[0].ends_with('\n'));
}

// Ideas that come back, and how long a ladder is climbed.

TEST_CASE("gate idea: one that was refused twice is warned of or blocked, unless there is a new argument") {
    StageWorld world;
    world.write("kernel.c", "int speed = 2;\n");
    world.candidate.head = world.commit("faster");
    world.candidate.files = {{"kernel.c", 'M', "100644", "100644", "", ""}};
    auto transactions = world.transactions();
    const auto judge = [&](IdeaPolicy policy) {
        return ok(make_idea_stage(policy, transactions.repository())->run(world.context()));
    };
    write_text(world.artefacts.path(7, "report.json"), R"({"title": "Batch the K matmuls", "slot": "H"})");
    StageResult result = judge(IdeaPolicy::block);
    CHECK(result.verdict == StageVerdict::pass);
    CHECK(result.facts.at("idea") == "slot:H");
    const auto run = scripted_run(3);
    for (const int refused : {2, 3}) {
        ok(append_ledger(world.log_dir(), iteration_record(records_of(run, refused), facts_for_test())));
    }
    result = judge(IdeaPolicy::warn);
    CHECK(result.verdict == StageVerdict::pass);
    CHECK(result.facts.at("failed_before") == "2");
    CHECK_FALSE(result.reason.empty());
    result = judge(IdeaPolicy::block);
    CHECK(result.verdict == StageVerdict::fail);
    CHECK(result.outcome == Outcome::rejected);
    CHECK(result.exit_status == 1);
    write_text(world.artefacts.path(7, "report.json"),
               R"({"title": "Batch the K matmuls", "slot": "H", "new_argument": "the layout changed"})");
    CHECK(judge(IdeaPolicy::block).verdict == StageVerdict::pass);
    // What the agent hands in is never an error of the loop.
    write_text(world.artefacts.path(7, "report.json"), "no json");
    CHECK(judge(IdeaPolicy::block).verdict == StageVerdict::pass);
}

TEST_CASE("gate ladder: any number of passes ends, and leaves the trouble to the circuit breaker (defect 20)") {
    FakeClock clock;
    int passes = 0;
    Ladder ladder(JobKind::tests, {{"c", {}, {}}},
                  {[&](const JobSite&) -> Result<JobEnd> {
                       ++passes;
                       return end_of(JobKind::tests, 4, {}, "ConnectionResetError\n");
                   },
                   nullptr,
                   {},
                   clock});
    const JobEnd end = ok(ladder.climb(-1, std::chrono::seconds(120)));
    CHECK(passes == 30);
    REQUIRE(end.failure);
    CHECK(end.failure->outcome == Outcome::infra);
}

TEST_CASE("gate flakes: a sighting names its run, and reads back") {
    StageWorld world;
    world.children.options.clusters = {"c"};
    const std::string red = "FAILED t.py::test_a[4] - E\nmax_abs=1.19e-05\n1 failed, 87 passed, 2 skipped in 3.00s";
    world.children.child(world.children.test_words("c"), 1, report_of("FAILED", "user"), red);
    world.children.child(world.children.test_words("c", {"--pytest-args", "-k test_a"}), 0, report_of("SUCCEEDED"),
                         "4 passed, 85 deselected in 3.00s");
    TargetJobs jobs = world.children.jobs();
    const StageContext context{7, world.where, world.candidate, world.tree, world.artefacts, "r1"};
    CHECK(ok(TestsStage(world.validation(jobs)).run(context)).outcome == Outcome::flaky);
    const auto sightings = ok(read_flakes(world.log_dir()));
    REQUIRE(sightings.size() == 1);
    CHECK(sightings[0].test == "t.py::test_a[4]");
    CHECK(sightings[0].run == "r1");
    CHECK(sightings[0].iteration == 7);
    CHECK(sightings[0].passed_alone);
    CHECK(flake_table(sightings)[0].known());
}

}  // namespace gdnctl::loop
