// A cluster on which every job ends at once, as the test says.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "command_world.h"
#include "core/text.h"
#include "loop/engine/journal.h"
#include "loop/evolve/state.h"
#include "services/git/git.h"
#include "support/git_repo.h"
#include "unit/loop/run_script.h"

namespace gdnctl::test {

namespace {

class Dashboard {
public:
    struct End {
        std::string log;
        const char* status = "SUCCEEDED";
        int exit_code = 0;
    };
    static constexpr const char* k_url = "http://127.0.0.1:8265";

    std::function<End(const Json& job)> ends;  // `job`: the request that submitted it
    std::vector<Json> jobs;

    // Jobs of this world go to it, unless they name another place.
    void serve(CommandWorld& world) {
        world.env.values["RAY_ADDRESS"] = k_url;
        world.http.otherwise = [this](const HttpRequest& request) { return answer(request); };
    }
    std::size_t count(std::string_view kind) const {
        return static_cast<std::size_t>(
            std::count_if(jobs.begin(), jobs.end(), [&](const Json& job) { return job["metadata"]["kind"] == kind; }));
    }

private:
    Result<HttpResponse> answer(const HttpRequest& request) {
        const std::string path = request.url.substr(std::string_view(k_url).size());
        HttpResponse response;
        response.status = 200;
        if (path == "/api/version") {
            response.body = R"({"version":"4","ray_version":"2.60.0","session_name":"session_1"})";
        } else if (path.starts_with("/api/packages/")) {  // it has every package
            response.body = "{}";
        } else if (request.method == "POST") {
            jobs.push_back(parse_json(request.body, "job").value());
            const Json& job = jobs.back();
            const std::string id = job["submission_id"].get<std::string>();
            m_ends[id] = ends(job);
            m_metadata[id] = job["metadata"];
            response.body = Json{{"submission_id", id}}.dump();
        } else {
            const auto words = text::split(path, '/');  // "", "api", "jobs", ID
            const End& end = m_ends.at(std::string(words.at(3)));
            response.body = path.ends_with("/logs") ? Json{{"logs", end.log}}.dump() : details(words.at(3), end);
        }
        if (request.on_chunk) {
            request.on_chunk(response.body);
            response.body.clear();
        }
        return response;
    }
    std::string details(std::string_view id, const End& end) const {
        return Json{{"type", "SUBMISSION"},
                    {"submission_id", id},
                    {"status", end.status},
                    {"entrypoint", "true"},
                    {"message", ""},
                    {"start_time", 1'773'161'000'000},
                    {"end_time", 1'773'161'060'000},
                    {"driver_exit_code", end.exit_code},
                    {"metadata", m_metadata.at(std::string(id))}}
            .dump();
    }

    std::map<std::string, End> m_ends;
    std::map<std::string, Json> m_metadata;
};

// A repository with a target, its evolve runs, and a cluster for its jobs.

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
        REQUIRE(run("evolve import", {"--from", repo.outside("old").string(), "--json"}) == 0);
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

}  // namespace

}  // namespace gdnctl::test

namespace gdnctl::commands {

// What the commands around a loop decide: its views, its policy, its prompts, and what codex-loop refuses.

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
        {"loop-status", {}, 6, "no run of codex-loop in"},
        {"loop-status", {"--log-dir", "none"}, 2, "--log-dir: no such directory"},
        {"loop-status", {"--watch", "--json"}, 2, "--watch and --json cannot be combined"},
        {"loop-explain", {"0"}, 2, "N must be a number from 1, or `last`: 0"},
        {"loop-explain", {"last"}, 6, "no run of codex-loop in"},
        {"loop-report", {"--html", ""}, 2, "--html: the path is empty"},
        {"loop-report", {}, 6, "no run of codex-loop in"},
        {"evolve log", {"--run", "a", "--log-dir", "b"}, 2, "--run and --log-dir cannot be combined"},
        {"evolve log", {}, 6, "no evolve run"},
        {"evolve show", {"best"}, 6, "no evolve run"},
        {"evolve lineage", {}, 6, "no evolve run"},
        {"evolve diff", {"0", "1"}, 6, "no evolve run"},
        {"evolve best", {}, 6, "no evolve run"},
        {"evolve pause", {}, 6, "no evolve run"},
        {"evolve stop", {}, 6, "no evolve run"},
        {"evolve fsck", {}, 6, "no evolve run"},
        {"evolve gc", {"--older-than", "soon"}, 2, "--older-than: expected a time such as 30d or 12h: soon"},
        {"evolve gc", {"--older-than", "30d"}, 6, "no evolve run"},
        {"evolve replay", {"best"}, 6, "no evolve run"},
        {"evolve promote", {"best"}, 6, "no evolve run"},
        {"evolve noise", {"--pairs", "4"}, 2, "--pairs: expected 3, 5 or 9"},
        {"evolve import", {"--from", "none.json"}, 2, "none.json"},
        {"policy test", {}, 2, "the argument FILE is missing"},
        {"policy test", {"f", "--lower-is-better", "--higher-is-better"}, 2, "cannot be combined"},
        {"policy test", {"none.json"}, 2, "none.json"},
        {"policy show", {"--perf-policy-file", "none.json"}, 2, "none.json"},
        {"policy simulate", {"--perf-pairs", "4"}, 2, "--perf-pairs must be 3, 5 or 9."},
        {"policy simulate", {"--trials", "0"}, 2, "--trials 0: expected 1 to 10000000"},
        {"policy simulate", {"--noise-pct", "-1"}, 2, "--noise-pct"},
        {"prompts show", {"marni"}, 2, "did you mean `marin`?"},
        {"prompts render", {"none"}, 2, "none"},
        {"prompts render", {"none.md"}, 2, "none.md"},
    };
    for (const auto& one : cases) world.check(one);
    CHECK(world.process.calls.empty());
    CHECK(test::list_names(world.context.cwd).empty());
}

TEST_CASE("codex-loop: a refusal ends with its reason, and nothing has begun") {
    LoopWorld world;
    const std::vector<CommandWorld::Case> cases = {
        {"codex-loop", {"--iterations", "0"}, 2, "--iterations"},
        {"codex-loop", {"--iterations", "1", "--max-wall", "soon"}, 2, "--max-wall"},
        {"codex-loop", {"--iterations", "1", "--agent", "command"}, 2, "--agent-command"},
        {"codex-loop", {"--iterations", "1", "--lineages", "2"}, 2, "needs --mode evolve"},
        {"codex-loop", {"--mode", "evolve"}, 2, "--mode evolve needs a budget"},
        {"codex-loop", {"--mode", "evolve", "--iterations", "3"}, 2, "use --max-attempts N"},
    };
    for (const auto& one : cases) world.check(one);
    CHECK(test::list_names(world.context.cwd).empty());
    CHECK(test::list_names(world.folder / "state").empty());
}

TEST_CASE("loop-status, loop-explain and loop-report: a run as its journal tells it") {
    LoopWorld world;
    world.has_run(4);
    CHECK(world.run("loop-status", {"--json"}) == 0);
    CHECK(world.json()["run"] == "r1");
    CHECK(world.run("loop-status", {}) == 0);
    CHECK(world.printed("t_long"));
    CHECK(world.run("loop-explain", {"2", "--json"}) == 0);
    CHECK(world.json()["outcome"] == "test-fail");
    CHECK(world.run("loop-explain", {"last"}) == 0);
    CHECK(world.printed("iteration 4: "));
    CHECK(world.run("loop-explain", {"9"}) == 6);
    CHECK(world.said.find("hint: it has 1 to 4") != std::string::npos);
    CHECK(world.run("loop-report", {"--html", "report.html"}) == 0);
    CHECK(world.terminal.out_text.empty());
    CHECK(world.read("report.html").find("<svg") != std::string::npos);
    CHECK(world.run("loop-report", {"--json"}) == 0);
    CHECK(world.json()["schema"] == "gdnctl.loop-report/1");
}

TEST_CASE("loop-status: a state that cannot be parsed, and its repair, a damaged journal") {
    LoopWorld world;
    world.has_run(3, "log");
    world.write("log/state.json", "{\"records\": 999");
    CHECK(world.run("loop-status", {"--log-dir", "log"}) == 2);
    CHECK(world.said.find("--rebuild-state") != std::string::npos);
    CHECK(world.run("loop-status", {"--log-dir", "log", "--rebuild-state"}) == 0);
    CHECK(std::filesystem::exists(world.file("log/state.json.bak")));
    CHECK(world.run("loop-status", {"--log-dir", "log"}) == 0);
    std::string journal = world.read("log/journal.jsonl");
    world.write("log/journal.jsonl", journal.replace(journal.find("r1"), 2, "r2"));
    CHECK(world.run("loop-status", {"--log-dir", "log"}) == 7);
}

TEST_CASE("evolve: views of a run, attempts that are not there, and its control files") {
    LoopWorld world;
    world.has_evolve_run();
    CHECK(world.run("evolve log", {"--json"}) == 0);
    CHECK(world.json()["attempts"].size() == 2);
    CHECK(world.run("evolve show", {"1"}) == 0);
    CHECK(world.run("evolve show", {"7"}) == 6);
    CHECK(world.run("evolve lineage", {"--json"}) == 0);
    CHECK(world.json()["run"] == "r1");
    CHECK(world.run("evolve diff", {"0", "1"}) == 6);
    CHECK(world.said.find("attempt 1 left no candidate") != std::string::npos);
    CHECK(world.run("evolve best", {"--json"}) == 0);
    CHECK(world.json()["attempt"] == 0);
    CHECK(world.run("evolve promote", {"best"}) == 1);
    CHECK(world.said.find("nothing was kept") != std::string::npos);
    CHECK(world.run("evolve log", {"--run", "other"}) == 6);
    const auto control = [&](const char* name) { return fs::exists(world.file(".gdnctl/evolve/r1") / name); };
    CHECK(world.run("evolve pause", {}) == 0);
    CHECK(control("PAUSE"));
    CHECK(world.run("evolve pause", {"--off"}) == 0);
    CHECK(!control("PAUSE"));
    CHECK(world.run("evolve stop", {}) == 0);
    CHECK(control("STOP"));
    CHECK(world.run("loop-status", {"--json"}) == 0);
    CHECK(world.json()["mode"] == "evolve");
    CHECK(world.run("loop-explain", {"last", "--json"}) == 0);
    CHECK(world.json()["mode"] == "evolve");
}

TEST_CASE("policy test: agreement is 0, another decision is 1, a file without records is 9") {
    LoopWorld world;
    world.write("state.json", R"({"version": 2, "champion": null, "history": [
 {"iteration": 1, "commit": "1111111111111111", "metric": "throughput/mfu", "metric_value": 4.0, "decision": "baseline"},
 {"iteration": 2, "commit": "2222222222222222", "metric": "throughput/mfu", "metric_value": 4.2, "decision": "promoted"},
 {"iteration": 3, "commit": "3333333333333333", "metric": "throughput/mfu", "metric_value": 4.14, "decision": "regression"}]})");
    CHECK(world.run("policy test", {"state.json"}) == 0);
    CHECK(world.printed("2 records, 0 not judged, 0 decided differently"));
    CHECK(world.run("policy test", {"state.json", "--perf-max-regression-pct", "2", "--json"}) == 1);
    CHECK(world.json()["differences"] == 1);
    world.write("empty.json", "{}");
    CHECK(world.run("policy test", {"empty.json"}) == 9);
}

TEST_CASE("policy show prints a file that it reads, simulate finds a large gain and stops when told") {
    LoopWorld world;
    CHECK(world.run("policy show", {"--perf-max-while-increase-ms", "2"}) == 0);
    const std::string shown = world.terminal.out_text;
    world.write("policy.json", shown);
    CHECK(world.run("policy show", {"--perf-policy-file", "policy.json"}) == 0);
    CHECK(world.terminal.out_text == shown);
    const std::vector<std::string> quick = {"--noise-pct", "0.1", "--gain-pct", "5", "--trials", "50", "--json"};
    CHECK(world.run("policy simulate", quick) == 0);
    REQUIRE(world.json()["rows"].size() == 1);
    CHECK(world.json()["rows"][0]["promoted"] == 1.0);
    world.stop.request_stop();
    CHECK(world.run("policy simulate", quick) == 130);
}

TEST_CASE("prompts: the default is marked, a file is a prompt, directives are appended") {
    LoopWorld world;
    CHECK(world.run("prompts list", {"--json"}) == 0);
    const Json documents = world.json()["documents"];
    CHECK(std::count_if(documents.begin(), documents.end(), [](const Json& one) { return one["default"] == true; }) <=
          1);
    CHECK(world.run("prompts show", {"marin", "--json"}) == 0);
    CHECK(world.json()["kind"] == "prompt");
    world.write("mine.md", "Iteration {{ITERATION}} of {{TOTAL_ITERATIONS}} at {{HEAD_SHA}} {{ODD}}\n");
    CHECK(world.run("prompts render", {"mine.md", "--iteration", "2", "--total", "5", "--head-sha",
                                       std::string(40, 'a'), "--directive", "be brief"}) == 0);
    CHECK(world.printed("Iteration 2 of 5 at aaaa"));
    CHECK(world.printed("be brief"));
    CHECK(world.said.find("unknown placeholder {{ODD}}") != std::string::npos);
    world.process.expect(git_command({"*", "*", "*", "*", "*"}), 128);
    CHECK(world.run("prompts render", {"mine.md"}) == 9);
    CHECK(world.said.find("hint: pass the commit with --head-sha") != std::string::npos);
}

// What codex-loop decides in a repository: a dry run of either mode, and a population from its start to its end.

namespace {

using test::k_runs;
using test::RepositoryWorld;
namespace fs = std::filesystem;

// With an agent that makes this of the kernel.
std::vector<std::string> with_agent(const std::string& script, std::vector<std::string> words) {
    words.insert(words.end(), {"--agent", "command", "--agent-command", script});
    return words;
}

}  // namespace

TEST_CASE("codex-loop --dry-run: the agent's command, the prompt and the plan, and nothing is touched") {
    RepositoryWorld world;
    world.write("mine.md", "Iteration {{ITERATION}} of {{TOTAL_ITERATIONS}} at {{HEAD_SHA}}\n");
    const auto words = with_agent("make it", {"--iterations", "2", "--prompt-file", "mine.md", "--post-check",
                                              "make check", "--directive", "be brief", "--dry-run"});
    std::vector<std::string> for_programs = words;
    for_programs.emplace_back("--json");
    CHECK(world.run("codex-loop", for_programs) == 0);
    CHECK(world.json()["schema"] == "gdnctl.codex-loop-preview/1");
    CHECK(world.json()["agent_argv"] == Json{"bash", "-c", "make it"});
    const std::string prompt = world.json()["prompt"].get<std::string>();
    CHECK(prompt.starts_with("Iteration 1 of 2 at " + world.base));
    CHECK(prompt.find("be brief") != std::string::npos);
    CHECK(world.run("codex-loop", words) == 0);
    CHECK(world.printed("agent: bash -c 'make it'\n2 iterations on refs/heads/main from " + world.base.substr(0, 12)));
    CHECK(world.printed("protected: tests/**\npost-check: make check\n"));
    world.check({"codex-loop", with_agent("", {"--iterations", "2", "--dry-run"}), 2, "--agent-command"});
    CHECK(world.repo.status() == "?? mine.md");
    CHECK(!fs::exists(world.file(".agents")));
    CHECK(test::list_names(world.context.state_dir).empty());
}

TEST_CASE("codex-loop --mode evolve: what is refused ends with its reason, and nothing has begun") {
    RepositoryWorld world;
    const auto evolve = [](std::vector<std::string> words) {
        words.insert(words.begin(), {"--mode", "evolve", "--agent", "command", "--agent-command", "true"});
        return words;
    };
    const std::vector<test::CommandWorld::Case> cases = {
        {"codex-loop", evolve({"--max-attempts", "0"}), 2, "--max-attempts must be at least 1"},
        {"codex-loop", evolve({"--max-attempts", "1", "--seed", "x"}), 2, "--seed x: expected a whole number"},
        {"codex-loop", evolve({"--max-attempts", "1", "--reserve-final", "x"}), 2, "--reserve-final x"},
        {"codex-loop", evolve({"--max-attempts", "1", "--infra-max-wait", "x"}), 2, "--infra-max-wait x"},
        {"codex-loop", evolve({"--max-attempts", "1", "--perf-pairs", "4"}), 2, "3, 5 or 9"},
        {"codex-loop", evolve({"--max-attempts", "1", "--operator-mix", "none"}), 2, "none"},
        {"codex-loop", evolve({"--max-attempts", "1", "--dirty-policy", "stash"}), 2, "--dirty-policy cannot be"},
        {"codex-loop", evolve({"--max-usd", "1"}), 2, "codex-loop stopped: reason=usage attempt=0 rc=2"},
        {"codex-loop", evolve({"--max-attempts", "1", "--from", "nowhere"}), 2, "--from: nowhere is neither"},
        {"codex-loop", evolve({"--max-attempts", "1", "--dry-run", "--resume"}), 2, "cannot be combined"},
        {"codex-loop", evolve({"--max-attempts", "1", "--resume"}), 6, "no evolve run in"},
    };
    for (const auto& one : cases) world.check(one);
    world.configure("[targets.u]\ntest = [\"true\"]\nkernel = [\"kernel.c\"]\n");
    world.configure("target = \"u\"\n");
    world.check({"codex-loop", evolve({"--max-attempts", "1"}), 2, "target u has no profile"});
    CHECK(world.cluster.jobs.empty());
    CHECK(world.repo.status().empty());
}

TEST_CASE("codex-loop --mode evolve: a gain is kept on a ref, the run goes on where it ended, and the branch stays") {
    RepositoryWorld world;
    world.measures(4);
    const auto run = [&](std::vector<std::string> more) {
        more.insert(more.end(), {"--mode", "evolve", "--perf-pairs", "3", "--seed", "5", "--json"});
        return world.run("codex-loop", with_agent("echo 'int speed = 2;' > kernel.c", std::move(more)));
    };
    CHECK(run({"--max-attempts", "1"}) == 0);
    const Json end = world.json();
    CHECK(end["mode"] == "evolve");
    CHECK(end["reason"] == "max-attempts");
    CHECK(end["attempts"] == 1);
    CHECK(end["verdicts"] == Json{{"kept", 1}});
    CHECK(end["best"]["attempt"] == 1);
    CHECK(world.says("codex-loop stopped: reason=max-attempts attempt=1 rc=0"));
    const std::size_t jobs = world.cluster.jobs.size();
    CHECK(run({"--max-attempts", "1", "--resume"}) == 0);
    CHECK(world.cluster.jobs.size() == jobs);
    const std::string folder = std::string(k_runs) + "/" + end["run"].get<std::string>();
    CHECK(run({"--max-attempts", "2", "--log-dir", folder}) == 2);
    CHECK(world.says("hint: continue it with --resume"));
    CHECK(world.repo.head() == world.base);
    CHECK(world.repo.status().empty());
    CHECK(world.repo.sh("git show refs/gdnctl/evolve/" + end["run"].get<std::string>() + "/best:kernel.c") ==
          "int speed = 2;");
}

TEST_CASE("codex-loop --mode evolve: noise that hides the gain, a base that fails, and infrastructure that does") {
    RepositoryWorld world;
    const std::vector<std::string> words = with_agent(
        "false", {"--mode", "evolve", "--max-attempts", "1", "--perf-pairs", "3", "--infra-max-wait", "0", "--json"});
    world.measures(8, {0, 1, 2});
    CHECK(world.run("codex-loop", words) == 1);
    CHECK(world.json()["reason"] == "noise");
    world.jobs_end("FAILED", 1);
    CHECK(world.run("codex-loop", words) == 1);
    CHECK(world.says("the profile of the base commit fails: the profile failed"));
    world.jobs_end("STOPPED", 0);
    CHECK(world.run("codex-loop", words) == 4);
    CHECK(world.json()["reason"] == "infrastructure");
    CHECK(world.json()["attempts"] == 0);
}

TEST_CASE("codex-loop --mode evolve --dry-run: a whole run in a repository of its own") {
    RepositoryWorld world;
    world.env.values["TMPDIR"] = world.folder.path().string();
    const std::vector<std::string> words = {"--mode", "evolve", "--max-attempts", "2",     "--perf-pairs", "3",
                                            "--seed", "5",      "--dry-run",      "--json"};
    CHECK(world.run("codex-loop", words) == 0);
    CHECK(world.json()["attempts"] == 2);
    CHECK(world.json()["reason"] == "max-attempts");
    CHECK(world.cluster.jobs.empty());
    CHECK(world.repo.status().empty());
    CHECK(test::list_names(world.folder.path()) == "home state work");
}

// What commands around an evolve run decide in a repository: imports, exports, promotions, judging again, the noise,
// and the numbers of a log.

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
        {"evolve import", {"--from", from, "--map", "tune"}, 2, "--map: expected REGEX=PATH"},
        {"evolve import", {"--from", from, "--map", "(=kernel.c"}, 2, "--map"},
        {"evolve import", {"--from", from, "--map", ".=tests/cases.txt"}, 2, "is not a file of the target's"},
        {"evolve import", {"--from", "tests"}, 2, "tests"},
    };
    for (const auto& one : refusals) world.check(one);
    CHECK(!fs::exists(world.file(k_runs)));
    CHECK(world.run("evolve import", {"--from", from, "--json"}) == 0);
    CHECK(world.json()["imported"] == 2);
    CHECK(world.json()["best_there"] == "proposal_0_1");
    CHECK(world.repo.status().empty());
    CHECK(world.run("evolve fsck", {}) == 0);
    CHECK(world.printed("2 attempts: the journal is intact"));
    CHECK(world.run("evolve export", {"--to", "../out", "2", "--json"}) == 0);
    CHECK(world.json()["written"] == 2);
    CHECK(test::read_text(world.repo.outside("out") / "proposal_0_1.py") == "int speed = 2;\n");
    CHECK(test::read_text(world.repo.outside("out") / "tune_0_2.py") == "int speed = 3;\n");
    CHECK(world.run("evolve export", {"--to", "../out", "2"}) == 7);
    CHECK(world.says("is not empty"));
    CHECK(world.run("evolve export", {"--to", "../base", "0", "--json"}) == 0);
    CHECK(world.json()["written"] == 0);
    CHECK(world.run("evolve export", {"--to", "../other", "9"}) == 6);
}

TEST_CASE("evolve promote: what was not kept, another judge, a branch that moved, none, and a failed verification") {
    RepositoryWorld world;
    const std::string judge = world.evaluator();
    const std::string good = world.candidate("kernel.c", "int speed = 2;\n");
    const std::string bad = world.candidate("tests/cases.txt", "none\n");
    const auto promote = [&](const char* id, const Json& more) {
        fs::remove_all(world.file(k_runs) / "r1");
        world.has_judged({good, bad}, more);
        return world.run("evolve promote", {id, "--run", "r1", "--json"});
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
    CHECK(world.run("evolve replay", {"best", "--json"}) == 0);
    CHECK(world.json()["schema"] == "gdnctl.evolve-replay/1");
    CHECK(world.json()["commit"] == good);
    CHECK(world.json()["gain"]["est"].get<double>() == doctest::Approx(std::log(2.0)));
    world.measures(8);
    CHECK(world.run("evolve replay", {"2"}) == 1);
    CHECK(world.printed("target     fail   its gain is not distinguishable from the noise"));
    world.cluster.jobs.clear();
    CHECK(world.run("evolve replay", {"1"}) == 1);
    CHECK(world.printed("paths      fail   it differs from the base outside the mutable paths"));
    CHECK(world.cluster.jobs.empty());
    world.jobs_end("FAILED", 1);
    CHECK(world.run("evolve replay", {"2"}) == 1);
    CHECK(world.printed("test       fail   tests failed"));
    world.jobs_end("STOPPED", 0);
    CHECK(world.run("evolve replay", {"2"}) == 4);
    CHECK(world.printed("test       infra  the job was stopped"));
    CHECK(world.run("evolve replay", {"9"}) == 6);
    CHECK(world.repo.head() == world.base);
    CHECK(world.worktrees() == "1");
}

TEST_CASE("evolve noise: a quiet profile, one that hides the gain, one that fails, and one of which nothing is known") {
    RepositoryWorld world;
    world.measures(8);
    CHECK(world.run("evolve noise", {"--pairs", "3", "--json"}) == 0);
    CHECK(world.json()["commit"] == world.base);
    CHECK(world.json()["d"] == Json{0.0, 0.0, 0.0});
    CHECK(world.json()["schema"] == "gdnctl.evolve-noise/1");
    CHECK(world.cluster.count("profile") == 6);
    world.measures(8, {0, 1, 2});
    CHECK(world.run("evolve noise", {"--pairs", "3"}) == 1);
    CHECK(world.printed("with 3 pairs\npairs_needed "));
    world.jobs_end("FAILED", 1);
    CHECK(world.run("evolve noise", {}) == 1);
    CHECK(world.says("the profile of HEAD fails: the profile failed"));
    world.jobs_end("STOPPED", 0);
    CHECK(world.run("evolve noise", {}) == 4);
    CHECK(world.worktrees() == "1");
}

TEST_CASE("evolve lint: numbers with an evaluation of the run, without one, with another's, and the run's own log") {
    RepositoryWorld world;
    world.has_judged({}, Json::object());
    world.write("good.md", "It is 3.1 % faster (eval 1).\n```\n2 ms\n```\n");
    CHECK(world.run("evolve lint", {"good.md", "--json"}) == 0);
    CHECK(world.json()["numbers"] == 1);
    CHECK(world.json()["evaluations"] == 1);
    world.write("bad.md", "It is 3.1 % faster.\nIt takes 2 ms (eval 7).\n");
    CHECK(world.run("evolve lint", {"bad.md"}) == 1);
    CHECK(world.printed("bad.md:1: 3.1 % does not say which evaluation it comes from: add (eval N) after it"));
    CHECK(world.printed("bad.md:2: (eval 7) there is no such evaluation"));
    CHECK(world.run("evolve lint", {"bad.md", "--json"}) == 1);
    CHECK(world.json()["problems"].size() == 2);
    world.check({"evolve lint", {}, 2, "experiment-log.md"});
    world.write(std::string(k_runs) + "/r1/experiment-log.md", "Nothing was measured.\n");
    world.check({"evolve lint", {}, 0, "0 numbers checked, 0 wrong"});
    world.check({"evolve lint", {"--run", "other"}, 6, "no evolve run other"});
}

}  // namespace gdnctl::commands
