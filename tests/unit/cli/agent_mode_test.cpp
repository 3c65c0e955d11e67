// Agent mode: who gets it, what it prints.
#include "cli/agent_mode.h"

#include <map>

#include <doctest/doctest.h>

#include "core/json.h"
#include "core/text.h"
#include "support/fake_terminal.h"

namespace gdnctl::cli {

namespace {

using Set = std::map<std::string, std::string, std::less<>>;

std::string mode(const AgentCase& it, const Set& set) {
    return std::string(agent_mode(it, [&](std::string_view name) -> std::optional<std::string> {
        const auto found = set.find(name);
        return found == set.end() ? std::nullopt : std::optional(found->second);
    }));
}

}  // namespace

TEST_CASE("agent mode: the decision table") {
    struct Row {
        bool report, tty, chosen;
        Set set;
        std::string want;
    };
    const Row rows[] = {
        {true, false, false, {}, ""},
        {true, false, false, {{"CLAUDECODE", "1"}}, "CLAUDECODE"},
        {true, false, false, {{"CODEX_THREAD_ID", "t-1"}}, "CODEX_THREAD_ID"},
        {true, false, false, {{"GDNCTL_LOOP_ID", "l-1"}}, "GDNCTL_LOOP_ID"},
        {true, false, false, {{"GDNCTL_AGENT", "1"}}, "GDNCTL_AGENT"},
        {true, false, false, {{"CLAUDECODE", ""}}, ""},
        {true, false, false, {{"CODEX_HOME", "/home/me/.codex"}}, ""},
        {true, false, false, {{"GDNCTL_AGENT", "yes"}}, ""},
        {true, false, false, {{"GDNCTL_AGENT", "0"}, {"CLAUDECODE", "1"}}, ""},
        // The output of a job on this machine, which inherits the agent's environment.
        {true, false, false, {{"CLAUDECODE", "1"}, {"GDNCTL_SUBMISSION_ID", "j"}}, ""},
        {true, false, false, {{"CLAUDECODE", "1"}, {"GDNCTL_VERDICT_LINE", "1"}}, ""},
        {true, true, false, {{"CLAUDECODE", "1"}}, ""},
        {true, false, true, {{"CLAUDECODE", "1"}}, ""},
        {false, false, false, {{"CLAUDECODE", "1"}}, ""},
        {false, false, false, {{"GDNCTL_AGENT", "1"}}, ""},
    };
    for (const Row& row : rows) {
        CAPTURE(row.want);
        CHECK(mode({row.report, row.tty, row.chosen}, row.set) == row.want);
    }
}

TEST_CASE("agent mode: options that choose the output") {
    CHECK(chooses_output({"loop-status", "--json"}));
    CHECK(chooses_output({"sweep", "report", "--format=markdown", "a.log"}));
    CHECK(chooses_output({"loop-report", "--html", "r.html"}));
    CHECK(chooses_output({"oracle", "verify", "gdn", "--cluster", "local"}));
    CHECK_FALSE(chooses_output({"oracle", "verify", "gdn", "--kernel", "src:k.c"}));
    CHECK_FALSE(chooses_output({"oracle", "verify", "--", "--json"}));
}

TEST_CASE("agent mode: text becomes a code block, and Markdown stays") {
    CHECK(agent_markdown("loop-status", "run  r\n") == "# gdnctl loop-status\n\n```\nrun  r\n```\n");
    CHECK(agent_markdown("loop-report", "# Run r\n\n```\nx\n```\n") == "# Run r\n\n```\nx\n```\n");
    CHECK(agent_markdown("oracle verify", "a\n```\n") == "# gdnctl oracle verify\n\n````\na\n```\n````\n");
    CHECK(agent_markdown("oracle verify", "\x1b[31mWRONG") == "# gdnctl oracle verify\n\n```\n\\x1b[31mWRONG\n```\n");
}

TEST_CASE("agent mode: a long report keeps its start and its end") {
    for (const std::string start : {"first line\n", "# Run\n"}) {
        std::string text = start;
        for (int i = 0; i < 2000; ++i) text += "a line of the middle\n";
        text += "verdict: WRONG\n";
        const std::string shown = agent_markdown("oracle verify", text);
        CHECK(shown.size() <= k_agent_bytes);
        CHECK(shown.size() > k_agent_bytes - 200);
        CHECK(shown.find(start) != std::string::npos);
        CHECK(shown.find("verdict: WRONG\n") != std::string::npos);
        CHECK(shown.find(" lines are left out; --json prints everything") != std::string::npos);
    }
    CHECK(agent_markdown("oracle verify", std::string(100'000, 'x')).size() <= k_agent_bytes);
}

TEST_CASE("agent mode: an error is one JSON line with its hint") {
    const std::string line = agent_error({ErrorKind::usage, "unknown option", "did you mean `--kernel`?", "step"});
    CHECK(line == R"({"schema":"gdnctl.error/1","error":"step: unknown option","exit_code":2,)"
                  R"("hint":"did you mean `--kernel`?"})"
                  "\n");
    const Json json = Json::parse(agent_error({ErrorKind::bad_input, "line\nbreak", "", ""}));
    CHECK(json["hint"].is_null());
    CHECK(json["exit_code"] == 9);
}

TEST_CASE("agent mode: stdout is printed once, at the end") {
    test::FakeTerminal real;
    AgentTerminal terminal(real, "evolve log");
    terminal.out("a\n");
    CHECK(terminal.flush());
    CHECK(real.out_text.empty());
    terminal.out("b\n");
    terminal.err("note\n");
    terminal.finish();
    terminal.finish();
    CHECK(real.out_text == "# gdnctl evolve log\n\n```\na\nb\n```\n");
    CHECK(real.err_text == "note\n");
}

}  // namespace gdnctl::cli
