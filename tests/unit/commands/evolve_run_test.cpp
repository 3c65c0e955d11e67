// What commands around an evolve run decide in a repository: imports, exports, promotions, judging again, the noise,
// and the numbers of a log.
#include "repository_world.h"

namespace gdnctl::commands {
namespace {

using test::k_runs;
using test::RepositoryWorld;
namespace fs = std::filesystem;

}  // namespace

TEST_CASE("evolve import and export: candidates come in, and go out as steps of a chain") {
    RepositoryWorld world;
    world.has_contest();
    const std::string from = world.repo.outside("old").string();
    const std::vector<test::CommandWorld::Case> refusals = {
        {k_evolve_import_row, {"--from", from, "--map", "tune"}, 2, "--map: expected REGEX=PATH"},
        {k_evolve_import_row, {"--from", from, "--map", "(=kernel.c"}, 2, "--map"},
        {k_evolve_import_row, {"--from", from, "--map", ".=tests/cases.txt"}, 2, "is not a file of the target's"},
        {k_evolve_import_row, {"--from", "tests"}, 2, "tests"},
    };
    for (const auto& one : refusals) world.check(one);
    CHECK(!fs::exists(world.file(k_runs)));
    CHECK(world.run(k_evolve_import_row, {"--from", from, "--json"}) == 0);
    CHECK(world.json()["imported"] == 2);
    CHECK(world.json()["best_there"] == "proposal_0_1");
    CHECK(world.repo.status().empty());
    CHECK(world.run(k_evolve_fsck_row, {}) == 0);
    CHECK(world.printed("2 attempts: the journal is intact"));
    CHECK(world.run(k_evolve_export_row, {"--to", "../out", "2", "--json"}) == 0);
    CHECK(world.json()["written"] == 2);
    CHECK(test::read_text(world.repo.outside("out") / "proposal_0_1.py") == "int speed = 2;\n");
    CHECK(test::read_text(world.repo.outside("out") / "tune_0_2.py") == "int speed = 3;\n");
    CHECK(world.run(k_evolve_export_row, {"--to", "../out", "2"}) == 7);
    CHECK(world.says("is not empty"));
    CHECK(world.run(k_evolve_export_row, {"--to", "../base", "0", "--json"}) == 0);
    CHECK(world.json()["written"] == 0);
    CHECK(world.run(k_evolve_export_row, {"--to", "../other", "9"}) == 6);
}

TEST_CASE("evolve promote: what was not kept, another judge, a branch that moved, none, and a failed verification") {
    RepositoryWorld world;
    const std::string judge = world.evaluator();
    const std::string good = world.candidate("kernel.c", "int speed = 2;\n");
    const std::string bad = world.candidate("tests/cases.txt", "none\n");
    const auto promote = [&](const char* id, const Json& more) {
        fs::remove_all(world.file(k_runs) / "r1");
        world.has_judged({good, bad}, more);
        return world.run(k_evolve_promote_row, {id, "--run", "r1", "--json"});
    };
    CHECK(promote("1", {{"evaluator", judge}}) == 1);
    CHECK(world.says("attempt 1 was not kept: rejected"));
    CHECK(promote("2", {{"evaluator", "another"}}) == 7);
    CHECK(world.says("is not the one that judged run r1"));
    CHECK(promote("2", {{"evaluator", judge}, {"branch", ""}}) == 2);
    CHECK(world.says("there is no branch to move"));
    CHECK(promote("2", {{"evaluator", judge}, {"branch", "refs/heads/none"}}) == 7);
    CHECK(world.says("not at the run's base"));
    CHECK(promote("2", {{"evaluator", judge}}) == 1);
    CHECK(world.json()["promoted"] == false);
    CHECK(world.json()["branch"] == "refs/heads/main");
    CHECK(world.repo.head() == world.base);
    CHECK(world.read(std::string(k_runs) + "/r1/journal.jsonl").find("\"verify\"") != std::string::npos);
}

TEST_CASE("evolve replay: a gain, none, a path that no candidate may change, and jobs that fail") {
    RepositoryWorld world;
    const std::string good = world.candidate("kernel.c", "int speed = 2;\n");
    const std::string bad = world.candidate("tests/cases.txt", "none\n");
    world.has_judged({bad, good}, {{"config", {{"lineages", 1}, {"stagnation", 8}, {"pairs", 3}}}});
    world.measures(4);
    CHECK(world.run(k_evolve_replay_row, {"best", "--json"}) == 0);
    CHECK(world.json()["schema"] == "gdnctl.evolve-replay/1");
    CHECK(world.json()["commit"] == good);
    CHECK(world.json()["gain"]["est"] == doctest::Approx(std::log(2.0)));
    world.measures(8);
    CHECK(world.run(k_evolve_replay_row, {"2"}) == 1);
    CHECK(world.printed("target     fail   its gain is not distinguishable from the noise"));
    world.cluster.jobs.clear();
    CHECK(world.run(k_evolve_replay_row, {"1"}) == 1);
    CHECK(world.printed("paths      fail   it differs from the base outside the mutable paths"));
    CHECK(world.cluster.jobs.empty());
    world.jobs_end("FAILED", 1);
    CHECK(world.run(k_evolve_replay_row, {"2"}) == 1);
    CHECK(world.printed("test       fail   tests failed"));
    world.jobs_end("STOPPED", 0);
    CHECK(world.run(k_evolve_replay_row, {"2"}) == 4);
    CHECK(world.printed("test       infra  the job was stopped"));
    CHECK(world.run(k_evolve_replay_row, {"9"}) == 6);
    CHECK(world.repo.head() == world.base);
    CHECK(world.worktrees() == "1");
}

TEST_CASE("evolve noise: a quiet profile, one that hides the gain, one that fails, and one of which nothing is known") {
    RepositoryWorld world;
    world.measures(8);
    CHECK(world.run(k_evolve_noise_row, {"--pairs", "3", "--json"}) == 0);
    CHECK(world.json()["commit"] == world.base);
    CHECK(world.json()["d"] == Json{0.0, 0.0, 0.0});
    CHECK(world.json()["schema"] == "gdnctl.evolve-noise/1");
    CHECK(world.cluster.count("profile") == 6);
    world.measures(8, {0, 1, 2});
    CHECK(world.run(k_evolve_noise_row, {"--pairs", "3"}) == 1);
    CHECK(world.printed("with 3 pairs\npairs_needed "));
    world.jobs_end("FAILED", 1);
    CHECK(world.run(k_evolve_noise_row, {}) == 1);
    CHECK(world.says("the profile of HEAD fails: the profile failed"));
    world.jobs_end("STOPPED", 0);
    CHECK(world.run(k_evolve_noise_row, {}) == 4);
    CHECK(world.worktrees() == "1");
}

TEST_CASE("evolve lint: numbers with an evaluation of the run, without one, with another's, and the run's own log") {
    RepositoryWorld world;
    world.has_judged({}, Json::object());
    world.write("good.md", "It is 3.1 % faster (eval 1).\n```\n2 ms\n```\n");
    CHECK(world.run(k_evolve_lint_row, {"good.md", "--json"}) == 0);
    CHECK(world.json()["numbers"] == 1);
    CHECK(world.json()["evaluations"] == 1);
    world.write("bad.md", "It is 3.1 % faster.\nIt takes 2 ms (eval 7).\n");
    CHECK(world.run(k_evolve_lint_row, {"bad.md"}) == 1);
    CHECK(world.printed("bad.md:1: 3.1 % names no evaluation: add (eval N) after it"));
    CHECK(world.printed("bad.md:2: (eval 7) there is no such evaluation"));
    CHECK(world.run(k_evolve_lint_row, {"bad.md", "--json"}) == 1);
    CHECK(world.json()["problems"].size() == 2);
    world.check({k_evolve_lint_row, {}, 2, "experiment-log.md"});
    world.write(std::string(k_runs) + "/r1/experiment-log.md", "Nothing was measured.\n");
    world.check({k_evolve_lint_row, {}, 0, "0 numbers, 0 problems"});
    world.check({k_evolve_lint_row, {"--run", "other"}, 6, "no evolve run other"});
}

}  // namespace gdnctl::commands
