// What commands around an evolve run decide in a repository: imports, exports, promotions.
#include "command_world.h"
#include "core/text.h"
#include "loop/evolve/journal.h"
#include "support/git_repo.h"

namespace gdnctl::commands {
namespace {

namespace fs = std::filesystem;

constexpr const char* k_runs = ".gdnctl/evolve";

// A repository with a kernel and a test that no candidate may change.
struct RepositoryWorld : test::CommandWorld {
    test::GitRepo repo;
    std::string base;

    RepositoryWorld() : CommandWorld(&system_process()) {
        context.cwd = repo.path();
        configure(
            "target = \"t\"\n[targets.t]\ntest = [\"true\"]\nprofile = [\"true\"]\nkernel = [\"kernel.c\"]\n"
            "protected = [\"tests/**\"]\nmetric = { name = \"ms\", better = \"lower\", unit = \"ms\", from = "
            "\"json:/ms\" }\n");
        repo.write("kernel.c", "int speed = 1;\n");
        repo.write("tests/cases.txt", "cases\n");
        base = repo.commit("base");
    }
    bool says(std::string_view text) const { return said.find(text) != std::string::npos; }

    // Two kernels of the contest's agent, the second made from the first.
    void has_contest() const {
        const auto put = [&](const char* name, const char* text) {
            test::write_text(repo.outside("old") / name, text);
        };
        put("proposal_0_1.py", "int speed = 2;\n");
        put("proposal_0_1_metrics.json", R"({"compiled":true,"correct":true,"speedup":2.0,"error":null})");
        put("tune_0_2.py", "int speed = 3;\n");
        put("tune_0_2_metrics.json", R"({"compiled":true,"correct":false,"speedup":9.0,"error":"wrong"})");
    }
    // The commit of a change to `file` that is on no branch.
    std::string candidate(const std::string& name, const std::string& text) const {
        repo.write(name, text);
        const std::string commit = repo.commit("change " + name);
        repo.sh("git reset -q --hard " + base);
        return commit;
    }
    // A run whose attempts have these commits: the last was kept, the others were rejected.
    void has_judged(const std::vector<std::string>& commits, const Json& more) const {
        const fs::path folder = file(k_runs) / "r1";
        fs::create_directories(folder);
        fs::permissions(folder, fs::perms::owner_all);
        auto journal = loop::evolve::EvolveJournal::open(folder);
        REQUIRE(journal);
        const auto add = [&](const char* type, const Json& facts) {
            test::ok(journal->add(type, facts, clock.wall()));
        };
        Json start = {{"run", "r1"},
                      {"base", base},
                      {"seed", 7},
                      {"mutable_key", "k0"},
                      {"branch", "refs/heads/main"},
                      {"config", {{"lineages", 1}, {"stagnation", 8}}}};
        start.update(more);
        add("run_start", start);
        add("eval_stage", {{"attempt", 0},
                           {"eval_id", 1},
                           {"stage", "noise"},
                           {"verdict", "pass"},
                           {"metrics", {{"sd", 0.001}, {"pairs", 9}}}});
        for (std::size_t i = 0; i < commits.size(); ++i) {
            const std::size_t number = i + 1;
            add("attempt_start", {{"attempt", number},
                                  {"operator", "exploit"},
                                  {"lineage", 0},
                                  {"parents", {{{"attempt", 0}, {"commit", base}}}}});
            add("proposal", {{"attempt", number}, {"class", "ok"}, {"tokens", {{"in", 1}, {"out", 1}}}});
            add("snapshot", {{"attempt", number},
                             {"commit", commits[i]},
                             {"mutable_key", "k" + std::to_string(number)},
                             {"patch_id", "p"},
                             {"added", 1},
                             {"removed", 1},
                             {"files", {"kernel.c"}}});
            const bool kept = number == commits.size();
            add("verdict", {{"attempt", number}, {"verdict", kept ? "kept" : "rejected"}, {"reason", "why"}});
        }
    }
    // What this target's candidates are judged by, as a run records it.
    std::string evaluator() {
        has_contest();
        REQUIRE(run(k_evolve_import_row, {"--from", repo.outside("old").string(), "--json"}) == 0);
        const fs::path folder = json()["log_dir"].get<std::string>();
        auto journal = loop::evolve::EvolveJournal::open(folder);
        REQUIRE(journal);
        return journal->state().evaluator;
    }
};

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
    CHECK(world.printed("2 attempts: the journal is whole"));
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
    CHECK(world.says("is not what run r1 was judged by"));
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

}  // namespace gdnctl::commands
