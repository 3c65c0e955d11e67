// What codex-loop decides in a repository: a dry run of either mode, and a population from its start to its end.
#include "repository_world.h"

namespace gdnctl::commands {
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
    CHECK(world.run(k_codex_loop_row, for_programs) == 0);
    CHECK(world.json()["schema"] == "gdnctl.codex-loop-preview/1");
    CHECK(world.json()["agent_argv"] == Json{"bash", "-c", "make it"});
    const std::string prompt = world.json()["prompt"];
    CHECK(prompt.starts_with("Iteration 1 of 2 at " + world.base));
    CHECK(prompt.find("be brief") != std::string::npos);
    CHECK(world.run(k_codex_loop_row, words) == 0);
    CHECK(
        world.printed("agent: bash -c 'make it'\n2 iteration(s) on refs/heads/main from " + world.base.substr(0, 12)));
    CHECK(world.printed("protected: tests/**\npost-check: make check\n"));
    world.check({k_codex_loop_row, with_agent("", {"--iterations", "2", "--dry-run"}), 2, "--agent-command"});
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
        {k_codex_loop_row, evolve({"--max-attempts", "0"}), 2, "--max-attempts must be at least 1"},
        {k_codex_loop_row, evolve({"--max-attempts", "1", "--seed", "x"}), 2, "--seed x: expected a whole number"},
        {k_codex_loop_row, evolve({"--max-attempts", "1", "--reserve-final", "x"}), 2, "--reserve-final x"},
        {k_codex_loop_row, evolve({"--max-attempts", "1", "--infra-max-wait", "x"}), 2, "--infra-max-wait x"},
        {k_codex_loop_row, evolve({"--max-attempts", "1", "--perf-pairs", "4"}), 2, "3, 5 or 9"},
        {k_codex_loop_row, evolve({"--max-attempts", "1", "--operator-mix", "none"}), 2, "none"},
        {k_codex_loop_row, evolve({"--max-attempts", "1", "--dirty-policy", "stash"}), 2, "--dirty-policy cannot be"},
        {k_codex_loop_row, evolve({"--max-usd", "1"}), 2, "codex-loop stopped: reason=usage attempt=0 rc=2"},
        {k_codex_loop_row, evolve({"--max-attempts", "1", "--from", "nowhere"}), 2, "--from: nowhere is neither"},
        {k_codex_loop_row, evolve({"--max-attempts", "1", "--dry-run", "--resume"}), 2, "cannot be combined"},
        {k_codex_loop_row, evolve({"--max-attempts", "1", "--resume"}), 6, "no evolve run in"},
    };
    for (const auto& one : cases) world.check(one);
    world.configure("[targets.u]\ntest = [\"true\"]\nkernel = [\"kernel.c\"]\n");
    world.configure("target = \"u\"\n");
    world.check({k_codex_loop_row, evolve({"--max-attempts", "1"}), 2, "target u has no profile"});
    CHECK(world.cluster.jobs.empty());
    CHECK(world.repo.status().empty());
}

TEST_CASE("codex-loop --mode evolve: a gain is kept on a ref, the run goes on where it ended, and the branch stays") {
    RepositoryWorld world;
    world.measures(4);
    const auto run = [&](std::vector<std::string> more) {
        more.insert(more.end(), {"--mode", "evolve", "--perf-pairs", "3", "--seed", "5", "--json"});
        return world.run(k_codex_loop_row, with_agent("echo 'int speed = 2;' > kernel.c", std::move(more)));
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
    CHECK(world.run(k_codex_loop_row, words) == 1);
    CHECK(world.json()["reason"] == "noise");
    world.jobs_end("FAILED", 1);
    CHECK(world.run(k_codex_loop_row, words) == 1);
    CHECK(world.says("the profile of the base commit fails: the profile failed"));
    world.jobs_end("STOPPED", 0);
    CHECK(world.run(k_codex_loop_row, words) == 4);
    CHECK(world.json()["reason"] == "infrastructure");
    CHECK(world.json()["attempts"] == 0);
}

TEST_CASE("codex-loop --mode evolve --dry-run: a whole run in a repository of its own") {
    RepositoryWorld world;
    world.env.values["TMPDIR"] = world.folder.path().string();
    const std::vector<std::string> words = {"--mode", "evolve", "--max-attempts", "2",     "--perf-pairs", "3",
                                            "--seed", "5",      "--dry-run",      "--json"};
    CHECK(world.run(k_codex_loop_row, words) == 0);
    CHECK(world.json()["attempts"] == 2);
    CHECK(world.json()["reason"] == "max-attempts");
    CHECK(world.cluster.jobs.empty());
    CHECK(world.repo.status().empty());
    CHECK(test::list_names(world.folder.path()) == "home state work");
}

}  // namespace gdnctl::commands
