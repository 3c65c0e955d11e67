// A repository with a target, its evolve runs, and a cluster for its jobs.
#pragma once

#include "command_world.h"
#include "dashboard.h"
#include "loop/evolve/journal.h"
#include "support/git_repo.h"

namespace gdnctl::test {

namespace fs = std::filesystem;

inline constexpr const char* k_runs = ".gdnctl/evolve";

// A repository with a kernel and a test that no candidate may change.
struct RepositoryWorld : CommandWorld {
    GitRepo repo;
    std::string base;
    Dashboard cluster;

    RepositoryWorld() : CommandWorld(&system_process()) {
        context.cwd = repo.path();
        env.values["GDNCTL_NO_LOCAL"] = "1";  // a job of this machine would start this very program
        const std::string target =
            "target = \"t\"\n[targets.t]\ntest = [\"true\"]\nprofile = [\"true\"]\nkernel = [\"kernel.c\"]\n"
            "protected = [\"tests/**\"]\nmetric = { name = \"ms\", better = \"lower\", unit = \"ms\", from = "
            "\"json:/ms\" }\n";
        configure(target);
        repo.write("gdnctl.toml", target);  // for jobs, which read it in a checkout of their own
        repo.write("kernel.c", "int speed = 1;\n");
        repo.write("tests/cases.txt", "cases\n");
        base = repo.commit("base");
    }
    bool says(std::string_view text) const { return said.find(text) != std::string::npos; }

    // Two kernels of the contest's agent, the second made from the first.
    void has_contest() const {
        const auto put = [&](const char* name, const char* text) { write_text(repo.outside("old") / name, text); };
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
        const auto add = [&](const char* type, const Json& facts) { ok(journal->add(type, facts, clock.wall())); };
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
        REQUIRE(run(commands::k_evolve_import_row, {"--from", repo.outside("old").string(), "--json"}) == 0);
        const fs::path folder = json()["log_dir"].get<std::string>();
        auto journal = loop::evolve::EvolveJournal::open(folder);
        REQUIRE(journal);
        return journal->state().evaluator;
    }
    // The base takes 8 ms, other commits take `ms`, and `noise` is added in turn.
    void measures(double ms, std::vector<double> noise = {0}) {
        cluster.serve(*this);
        cluster.ends = [this, ms, noise](const Json& job) -> Dashboard::End {
            if (job["metadata"]["kind"] != "profile") return {"1 passed\n"};
            const double more = noise[(cluster.count("profile") - 1) % noise.size()];
            const double own = job["metadata"]["git_sha"] == base ? 8 : ms;
            return {Json{{"ms", own + more}}.dump() + "\n"};
        };
    }
    // All its jobs end like this.
    void jobs_end(const char* status, int exit_code) {
        cluster.serve(*this);
        cluster.ends = [status, exit_code](const Json&) { return Dashboard::End{"no\n", status, exit_code}; };
    }
    std::string worktrees() const { return repo.sh("git worktree list | wc -l"); }
};

}  // namespace gdnctl::test
