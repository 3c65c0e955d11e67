// The pure parts: events, rollout, filter, environment.
#include <doctest/doctest.h>

#include "core/log.h"
#include "core/redact.h"
#include "services/agent/codex_events.h"
#include "services/agent/rollout.h"
#include "support/fake_env.h"
#include "unit/services/agent/codex_fixture.h"

using namespace gdnctl;
using namespace gdnctl::codex;
using namespace gdnctl::test;
using Type = Event::Type;

TEST_CASE("codex events: what each line is") {
    CHECK(parse_event("").type == Type::text);
    CHECK(parse_event("[1]").type == Type::text);
    CHECK(parse_event(R"({"type":"turn.started")").type == Type::text);
    CHECK(parse_event(R"({"type":"turn.started"})").type == Type::turn_started);
    CHECK(parse_event("  {\"type\":\"turn.started\"}\r").type == Type::turn_started);
    CHECK(parse_event(R"({"type":7})").type == Type::unknown);
    CHECK(parse_event(R"({"type":"thread.started","thread_id":["x"]})").thread_id.empty());
    CHECK(parse_event(R"({"type":"turn.failed","error":{"message":"no"}})").message == "no");
    CHECK(parse_event(R"({"type":"turn.failed","error":"no"})").message.empty());
    const auto usage =
        parse_event(R"({"type":"turn.completed","usage":{"input_tokens":1e300,"output_tokens":-4}})").usage;
    CHECK(usage == AgentTokens{});
    CHECK_FALSE(parse_event(R"({"type":"turn.completed"})").usage);
    CHECK(is_progress(parse_event(R"({"type":"error","message":"boom"})")));
    CHECK_FALSE(is_progress(parse_event(R"({"type":"error","message":"Reconnecting... 1/5"})")));
    CHECK(shown_command("/bin/bash -lc 'git status'") == "git status");
    CHECK(shown_command("/bin/bash -lc 'open") == "/bin/bash -lc 'open");
    CHECK(shown_command("ls") == "ls");
}

TEST_CASE("codex rollout: facts from lines in any pieces") {
    const std::string text =
        R"({"timestamp":"t","type":"session_meta","payload":{"cwd":"/x"}})"
        "\n"
        R"({"timestamp":"t","type":"turn_context","payload":{"model":"m","effort":"high"}})"
        "\n"
        R"({"timestamp":"t","type":"token_usage_record","payload":{"usage":{"input_tokens":10,"cached_input_tokens":4,"output_tokens":3,"reasoning_output_tokens":1}}})"
        "\n"
        R"({"timestamp":"t","type":"compacted","payload":{"message":")" +
        std::string(RolloutReader::k_longest_line, 'x') +
        "\"}}\n"
        "broken {\n"
        R"({"timestamp":"t","type":"response_item","payload":{"type":"message","text":"\"type\":\"compacted\""}})"
        "\n"
        R"({"timestamp":"t","type":"token_usage_record","payload":{"usage":{"input_tokens":5,"output_tokens":2}}})"
        "\n"
        R"({"timestamp":"t","type":"event_msg","payload":{"type":"token_count","info":null,"rate_limits":{"primary":{"used_percent":97.5,"resets_at":1700000000},"secondary":null}}})"
        "\n"
        R"({"timestamp":"t","type":"event_msg","payload":{"type":"task_complete","last_agent_message":null,"error":{"message":"no","codex_error_info":{"http_connection_failed":{"http_status_code":503}}}}})"
        "\n"
        R"({"timestamp":"t","type":"token_usage_record","payload":{"usage":{"input_tokens":9)";
    for (const std::size_t piece : {text.size(), std::size_t{7777}}) {
        RolloutReader reader;
        for (std::size_t at = 0; at < text.size(); at += piece) reader.feed(std::string_view(text).substr(at, piece));
        const RolloutFacts& facts = reader.facts();
        CHECK(facts.model == "m");
        CHECK(facts.effort == "high");
        CHECK(facts.requests == 2);
        CHECK(facts.tokens == AgentTokens{15, 4, 5, 1});
        CHECK(facts.compactions == 1);
        REQUIRE(facts.rate_windows.size() == 1);
        CHECK(facts.rate_windows[0].used_percent == 97.5);
        REQUIRE(facts.error_info);
        CHECK(facts.error_info->name == "http_connection_failed");
        CHECK(facts.error_info->http_status == 503);
        CHECK(facts.error_message == "no");
    }
}

TEST_CASE("codex rollout: found by thread over the day folders") {
    const Scratch home;
    const auto first = home.file("sessions/2026/11/20/rollout-2026-11-20T23-59-59-aaa.jsonl", "");
    const auto old = home.file("sessions/2025/01/02/rollout-2025-01-02T00-00-00-bbb.jsonl", "");
    (void)home.file("sessions/2026/11/21/rollout-2026-11-21T00-00-00-ccc.jsonl", "");
    (void)home.file("sessions/2026/11/22/notes.txt", "");
    CHECK(find_rollout(home.path(), "aaa", true) == first);
    CHECK_FALSE(find_rollout(home.path(), "bbb", true));
    CHECK(find_rollout(home.path(), "bbb", false) == old);
    CHECK_FALSE(find_rollout(home.path(), "", false));
    CHECK_FALSE(find_rollout(home.path(), "../aaa", false));
    CHECK_FALSE(find_rollout(home / "nowhere", "aaa", false));
}

namespace {

std::string filtered(const std::vector<std::string>& lines, bool show = false) {
    OutputFilter filter(show);
    std::string out;
    for (const auto& line : lines) {
        if (filter.shows(line)) out += line + "|";
    }
    return out;
}

}  // namespace

TEST_CASE("output filter: file updates and their diffs are hidden") {
    const std::vector<std::string> update = {"before",
                                             "file update: src/a.c",
                                             "diff --git a/a b/a",
                                             "index 83db48f..bf269f4 100644",
                                             "--- a/a",
                                             "+++ b/a",
                                             "@@ -1,2 +1,2 @@ int f()",
                                             " one",
                                             "-two",
                                             "+2",
                                             "\\ No newline at end of file",
                                             "after"};
    CHECK(filtered(update) == "before|after|");
    CHECK(filtered(update, true).find("+2|") != std::string::npos);
    for (const std::string word : {"update", "create", "add", "delete", "rename"}) {
        CHECK(filtered({"file " + word + ": x", "+line", "", " line", "prose"}) == "prose|");
    }
    CHECK(filtered({"file updates: x", "+line"}) == "file updates: x|+line|");
    CHECK(filtered({" file update: x", "+line"}) == " file update: x|+line|");
    CHECK(filtered({"file update: x", "old mode 100644", "new mode 100755", "similarity index 90%", "rename from a",
                    "rename to b", "Binary files a and b differ", "end"}) == "end|");
    CHECK(filtered({"file update: x", "index finger"}) == "index finger|");
}

TEST_CASE("output filter: prose after a hunk that is used up is shown") {
    CHECK(filtered({"file update: x", "@@ -1,1 +1,2 @@", "-a", "+b", "+c", "- I will run tests", "  indented"}) ==
          "- I will run tests|  indented|");
    // Without counts whatever looks like a diff is one, as it always was.
    CHECK(filtered({"file update: x", "@@", "-a", "- I will run tests", "end"}) == "@@|-a|- I will run tests|end|");
    CHECK(filtered({"file update: x", "@@ f()", "-a", "- prose", "end"}) == "end|");
    // Several hunks and files.
    CHECK(filtered({"file update: x", "@@ -1 +1 @@", "-a", "+b", "@@ -9 +9 @@", "-a", "+b", "--- a/y", "+++ b/y",
                    "@@ -1 +1 @@", "-a", "+b", "+ shown"}) == "+ shown|");
    CHECK(filtered({"file update: x", "@@ -1,2 +1,2 @@", " a", "cut short", "-x"}) == "cut short|-x|");
}

TEST_CASE("agent environment: what is on the list, and the marker, and nothing secret") {
    const FakeEnv env{{"PATH", "/bin"},           {"HOME", "/h"},           {"LC_ALL", "C"},
                      {"HF_TOKEN", "s1"},         {"WANDB_API_KEY", "s2"},  {"RAY_AUTH_TOKEN", "s3"},
                      {"OPENAI_API_KEY", "key"},  {"GITHUB_TOKEN", "s4"},   {"AWS_SECRET_ACCESS_KEY", "s5"},
                      {"UV_PUBLISH_TOKEN", "s6"}, {"UV_CACHE_DIR", "/u"},   {"GDNCTL_LOOP_ID", "other"},
                      {"RUST_BACKTRACE", "1"},    {"MOCK_KEY", "m"},        {"RAY_AUTH_TOKEN_PATH", "/t"},
                      {"GIT_DIR", "/g"},          {"GIT_AUTHOR_NAME", "n"}, {"TPU_NAME", "t"},
                      {"GDNCTL", "/opt/gdnctl"}};
    const auto plain = agent_environment(env, {}, "loop-1");
    REQUIRE(plain);
    const std::map<std::string, std::string> expected = {{"PATH", "/bin"},
                                                         {"HOME", "/h"},
                                                         {"LC_ALL", "C"},
                                                         {"OPENAI_API_KEY", "key"},
                                                         {"UV_CACHE_DIR", "/u"},
                                                         {"GDNCTL_LOOP_ID", "loop-1"},
                                                         {"RAY_AUTH_TOKEN_PATH", "/t"},
                                                         {"GIT_AUTHOR_NAME", "n"},
                                                         {"GDNCTL", "/opt/gdnctl"},
                                                         {"TPU_NAME", "t"}};
    CHECK(*plain == expected);
    const auto more = agent_environment(env, {"MOCK_KEY", "NOT_SET"}, "loop-1");
    REQUIRE(more);
    CHECK(more->at("MOCK_KEY") == "m");
    CHECK(more->size() == expected.size() + 1);
    for (const std::string name : {"HF_TOKEN", "WANDB_API_KEY", "RAY_AUTH_TOKEN", "A=B", ""}) {
        const auto refused = agent_environment(env, {name}, "loop-1");
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind == ErrorKind::usage);
    }
}

TEST_CASE("agent environment: git's settings in variables are whole, and hold no password") {
    const FakeEnv env{{"GIT_CONFIG_COUNT", "3"},
                      {"GIT_CONFIG_KEY_0", "http.https://x/.extraHeader"},
                      {"GIT_CONFIG_VALUE_0", "AUTHORIZATION: basic abcdefgh"},
                      {"GIT_CONFIG_KEY_1", "safe.directory"},
                      {"GIT_CONFIG_VALUE_1", "*"},
                      {"GIT_CONFIG_KEY_2", "User.name"},
                      {"GIT_CONFIG_VALUE_2", "n"},
                      {"GIT_CONFIG_PARAMETERS", "'http.x.extraheader=y'"},
                      {"GIT_CONFIG_GLOBAL", "/g"}};
    const auto given = agent_environment(env, {}, "loop-1");
    REQUIRE(given);
    const std::map<std::string, std::string> expected = {
        {"GIT_CONFIG_COUNT", "2"},   {"GIT_CONFIG_KEY_0", "safe.directory"}, {"GIT_CONFIG_VALUE_0", "*"},
        {"GIT_CONFIG_VALUE_1", "n"}, {"GIT_CONFIG_KEY_1", "User.name"},      {"GIT_CONFIG_GLOBAL", "/g"},
        {"GDNCTL_LOOP_ID", "loop-1"}};
    CHECK(*given == expected);
    CHECK(redact("AUTHORIZATION: basic abcdefgh") != "AUTHORIZATION: basic abcdefgh");
}

TEST_CASE("agent environment: secrets are masked whatever their names and values look like") {
    const FakeEnv env{{"OPENAI_KEY", "/b64+begins+so"},
                      {"DB_PASS", "pass-of-a-base"},
                      {"GITHUB_PAT", "pat-of-somebody"},
                      {"my_api_token", "in-small-letters"},
                      {"TLS_PRIVATE_KEY", "head-of-it\nline-two-of-it\nx"},
                      {"BOT_SSH_KEY", "no-secret-name"},
                      {"GIT_CONFIG_KEY_0", "filter.x.clean"},
                      {"CA_KEY", "/usr/bin/"},
                      {"GDNCTL_my_token", "not-for-agents"}};
    const auto seen = agent_environment(env, {}, "loop-1");
    REQUIRE(seen);
    CHECK_FALSE(seen->contains("GDNCTL_my_token"));
    for (const char* secret : {"/b64+begins+so", "pass-of-a-base", "pat-of-somebody", "in-small-letters", "head-of-it",
                               "line-two-of-it", "not-for-agents"}) {
        CHECK(redact(secret) != secret);
    }
    for (const char* plain : {"no-secret-name", "filter.x.clean", "/usr/bin/ls", "x"}) CHECK(redact(plain) == plain);
}

// Finding a codex, and refusing what it would refuse.
using namespace gdnctl;
using namespace gdnctl::test;

namespace {

CodexWanted wanted_in(const CodexFixture& world) {
    CodexWanted wanted;
    wanted.program = fake_codex();
    wanted.effort = "xhigh";
    wanted.environment = world.request.environment;
    return wanted;
}

// No call of `exec` came with a prompt.
bool no_prompt_was_sent(const CodexFixture& world) {
    for (const auto& call : world.calls()) {
        if (call["stdin_bytes"] != 0) return false;
    }
    return true;
}

Result<CodexChecked> check(const CodexFixture& world, const CodexSettings& settings) {
    return check_codex(settings, world.request.worktree, world.request.environment, system_process());
}

}  // namespace

TEST_CASE("codex program: models, efforts and features are asked for, nothing is started") {
    const CodexFixture world;
    const auto program = find_codex(wanted_in(world), system_process());
    REQUIRE(program);
    CHECK(program->version == "codex-cli 0.169.0");
    CHECK(program->models.size() == 2);
    CHECK(codex_efforts(*program) == std::vector<std::string>{"low", "medium", "high", "xhigh", "max", "ultra"});
    CHECK(program->features == std::vector<std::string>{"some_feature", "unbounded_connection_retries"});
    CHECK_FALSE(program->search_flag);
    CHECK(program->has_json);
    CHECK(world.calls().empty());
}

TEST_CASE("codex program: no codex, and one that lacks the effort") {
    CodexFixture world;
    auto wanted = wanted_in(world);
    wanted.program = "/nowhere/codex";
    wanted.environment["PATH"] = (world.scratch / "tree").string();
    const auto none = find_codex(wanted, system_process());
    REQUIRE_FALSE(none);
    CHECK(none.error().kind == ErrorKind::usage);
    CHECK(none.error().message ==
          "Could not find a `codex` binary. Install Codex CLI or pass --codex-bin /path/to/codex.");
    wanted = wanted_in(world);
    wanted.effort = "hyper";
    const auto lacks = find_codex(wanted, system_process());
    REQUIRE_FALSE(lacks);
    CHECK(lacks.error().message.find("low, medium, high, xhigh, max, ultra") != std::string::npos);
}

TEST_CASE("codex program: an old one cannot list models: a warning, and it goes on") {
    CodexFixture world;
    world.request.environment["GDNCTL_FAKE_CODEX_OLD"] = "1";
    const auto program = find_codex(wanted_in(world), system_process());
    REQUIRE(program);
    CHECK(program->models.empty());
    CHECK(program->features.empty());
    CHECK(program->search_flag);
    auto settings = world.settings;
    settings.program = *program;
    settings.search = true;
    const auto checked = check(world, settings);
    REQUIRE(checked);
    CHECK(checked->warnings.size() == 1);
    const auto words = codex_argv(checked->settings, "/w", "/m", "");
    CHECK(std::find(words.begin(), words.end(), "--search") != words.end());
    CHECK(std::find(words.begin(), words.end(), "--disable") == words.end());
    CHECK(no_prompt_was_sent(world));
}

TEST_CASE("codex program: behind npm's wrapper, and on PATH") {
    CodexFixture world;
    const auto wrapper = world.scratch.file("npm/node_modules/@openai/codex/bin/codex.js", "#!/bin/sh\nexit 99\n");
    const auto vendor = world.scratch / "npm/node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin";
    std::filesystem::create_directories(vendor);
    std::filesystem::copy_file(fake_codex(), vendor / "codex");
    std::filesystem::permissions(wrapper, std::filesystem::perms::owner_all);
    std::filesystem::create_directories(world.scratch / "npm/node_modules/.bin");
    std::filesystem::create_symlink(wrapper, world.scratch / "npm/node_modules/.bin/codex");
    auto wanted = wanted_in(world);
    wanted.program.clear();
    wanted.environment["PATH"] = (world.scratch / "npm/node_modules/.bin").string() + ":" + wanted.environment["PATH"];
    const auto program = find_codex(wanted, system_process());
    REQUIRE(program);
    CHECK(program->path == vendor / "codex");
    // The program itself gets the signals: one process, not two.
    world.settings.program.path = program->path;
    CHECK(world.run("thread\nmessage done\ncompleted 1 0 1 0").ok());
}

TEST_CASE("codex program: of several the first that takes the effort, else the first that does not say") {
    CodexFixture world;
    const auto script = [&](const char* name, const std::string& efforts) {
        const std::string models = "{\"models\":[{\"slug\":\"m\",\"supported_reasoning_levels\":[" + efforts + "]}]}";
        const auto file = world.scratch.file(
            name, "#!/bin/sh\ncase $1 in debug) " +
                      (efforts.empty() ? std::string("exit 2") : "echo '" + models + "'") + ";; *) echo v;; esac\n");
        std::filesystem::permissions(file, std::filesystem::perms::owner_all);
        return file;
    };
    const auto lacks = script("given/codex", R"({"effort":"low"})");
    const auto on_path = script("path/codex", R"({"effort":"low"},{"effort":"xhigh"})");
    auto wanted = wanted_in(world);
    wanted.program = lacks;
    wanted.environment["PATH"] = on_path.parent_path().string() + ":/usr/bin:/bin";
    CHECK(find_codex(wanted, system_process())->path == on_path);
    (void)script("path/codex", "");
    CHECK(find_codex(wanted, system_process())->path == on_path);
    (void)script("path/codex", R"({"effort":"medium"})");
    const auto none = find_codex(wanted, system_process());
    REQUIRE_FALSE(none);
    CHECK(none.error().message.find(lacks.string() + ": low; " + on_path.string() + ": medium") != std::string::npos);
}

TEST_CASE("codex preflight: effort, model, profile and words are refused without a request") {
    CodexFixture world;
    const auto program = find_codex(wanted_in(world), system_process());
    REQUIRE(program);
    auto good = world.settings;
    good.program = *program;
    REQUIRE(check(world, good));

    auto settings = good;
    settings.effort = "ultra";
    auto checked = check(world, settings);
    REQUIRE_FALSE(checked);
    CHECK(checked.error().kind == ErrorKind::usage);
    CHECK(checked.error().message == "the model 'model-a' does not support the reasoning effort 'ultra'");
    CHECK(checked.error().hint == "supported: low, medium, high, xhigh");

    settings = good;
    settings.model = "model-c";
    settings.model_given = true;
    checked = check(world, settings);
    REQUIRE(checked);
    CHECK(checked->settings.model == "model-c");
    REQUIRE(checked->warnings.size() == 1);
    CHECK(checked->warnings[0].find("model-a") != std::string::npos);
    settings.strict_model = true;
    CHECK_FALSE(check(world, settings));
    settings.model_given = false;  // our own default, which this codex does not have
    checked = check(world, settings);
    REQUIRE(checked);
    CHECK(checked->settings.model.empty());

    settings = good;
    settings.profile = "gone";
    checked = check(world, settings);
    REQUIRE_FALSE(checked);
    CHECK(checked.error().message == "codex has no profile 'gone'");
    (void)world.scratch.file("home/gone.config.toml", "");
    CHECK(check(world, settings));
    settings.profile = "../home/gone";
    CHECK_FALSE(check(world, settings));

    settings = good;
    settings.program.search_flag = settings.search = true;
    checked = check(world, settings);
    REQUIRE_FALSE(checked);
    CHECK(checked.error().kind == ErrorKind::config);
    CHECK(checked.error().message.find("unexpected argument '--search' found") != std::string::npos);
    CHECK(no_prompt_was_sent(world));
}

TEST_CASE("codex preflight: what codex 0.169 says to an empty prompt, each row as it prints it") {
    struct Answer final : Process {
        int rc = 1;
        std::string err;
        Result<ProcessResult> run(const ProcessSpec& /*spec*/) override {
            ProcessResult result;
            result.exit_code = rc;
            result.err = err;
            return result;
        }
    } answer;
    const CodexFixture world;
    const auto program = find_codex(wanted_in(world), system_process());
    REQUIRE(program);
    auto settings = world.settings;
    settings.program = *program;
    const auto refused = [&](int rc, const char* err) {
        answer.rc = rc;
        answer.err = err;
        const auto checked = check_codex(settings, world.request.worktree, world.request.environment, answer);
        if (checked) return std::string(checked->warnings.empty() ? "accepted" : "not understood");
        CHECK(checked.error().kind == ErrorKind::config);
        const std::string words = "codex rejects its command line or configuration: ";
        REQUIRE(checked.error().message.starts_with(words));
        return checked.error().message.substr(words.size());
    };
    CHECK(refused(1, "No prompt provided via stdin.\n") == "accepted");
    CHECK(
        refused(2,
                "error: unexpected argument '--nope' found\n\n  tip: to pass '--nope' as a value, use '-- --nope'\n") ==
        "error: unexpected argument '--nope' found");
    CHECK(
        refused(2, "error: invalid value 'nowhere' for '--sandbox <SANDBOX_MODE>'\n  [possible values: read-only]\n") ==
        "error: invalid value 'nowhere' for '--sandbox <SANDBOX_MODE>'");
    CHECK(refused(1, "Error: No such file or directory (os error 2)\n") ==
          "Error: No such file or directory (os error 2)");
    CHECK(refused(1, "Error: Model provider `nope` not found\n") == "Error: Model provider `nope` not found");
    CHECK(refused(
              1, "Error loading config.toml: unknown variant `zzz`, expected one of `a`, `b`\nin `sandbox_mode`\n\n") ==
          "Error loading config.toml: unknown variant `zzz`, expected one of `a`, `b` in `sandbox_mode`");
    CHECK(
        refused(1,
                "Error loading config.toml: `wire_api = \"chat\"` is no longer supported.\nHow to fix: set it.\n"
                "in `model_providers.mock.wire_api`\n") ==
        "Error loading config.toml: `wire_api = \"chat\"` is no longer supported. in `model_providers.mock.wire_api`");
    CHECK(refused(1, "Error loading config.toml: unknown configuration field `k` in -c/--config override\n") ==
          "Error loading config.toml: unknown configuration field `k` in -c/--config override");
    // --strict-config, and TOML that is none: what is wrong stands on the next line.
    CHECK(refused(
              1, "Error loading config.toml:\n/h/config.toml:1:1: unknown configuration field `k`\n  |\n1 | k = 1\n") ==
          "Error loading config.toml: /h/config.toml:1:1: unknown configuration field `k`");
    CHECK(refused(1, "Error loading config.toml:\n") == "Error loading config.toml:");
    CHECK(refused(1, "what is this\n") == "not understood");
    CHECK(no_prompt_was_sent(world));
}

TEST_CASE("codex models: a list that is none") {
    CHECK_FALSE(parse_codex_models("{}"));
    CHECK_FALSE(parse_codex_models("nothing"));
    const auto odd =
        parse_codex_models(R"({"models":[1,{},{"slug":"a","supported_reasoning_levels":[{"effort":"x"},7]}]})");
    REQUIRE(odd);
    REQUIRE(odd->size() == 1);
    CHECK((*odd)[0].efforts == std::vector<std::string>{"x"});
}

TEST_CASE("codex home: CODEX_HOME, and without it, or when it is empty, ~/.codex") {
    CHECK(codex_home_of({{"CODEX_HOME", "/c"}, {"HOME", "/h"}}) == "/c");
    CHECK(codex_home_of({{"CODEX_HOME", ""}, {"HOME", "/h"}}) == "/h/.codex");
    CHECK(codex_home_of({{"HOME", "/h"}}) == "/h/.codex");
}

TEST_CASE("codex home: configuration is linked, conversations are the run's own") {
    const Scratch scratch;
    (void)scratch.file("user/auth.json", "a");
    (void)scratch.file("user/config.toml", "c");
    (void)scratch.file("user/sessions/x", "s");
    (void)scratch.file("user/state_5.sqlite-wal", "s");
    for (int i = 0; i < 2; ++i) {
        REQUIRE(make_codex_home(scratch / "run/home", scratch / "user"));
        CHECK(read_whole(scratch / "run/home/auth.json") == "a");
        CHECK(std::filesystem::is_symlink(scratch / "run/home/config.toml"));
        CHECK_FALSE(std::filesystem::exists(scratch / "run/home/sessions"));
        CHECK_FALSE(std::filesystem::exists(scratch / "run/home/state_5.sqlite-wal"));
    }
    const auto missing = make_codex_home(scratch / "run/home", scratch / "nobody");
    REQUIRE_FALSE(missing);
    CHECK(missing.error().kind == ErrorKind::config);
}

TEST_CASE("codex home: a log-in in a keyring is found from the user's own home alone") {
    const Scratch scratch;
    const auto with = [&](const char* toml) {
        (void)scratch.file("user/config.toml", toml);
        return codex_login_needs_home(scratch / "user");
    };
    CHECK_FALSE(codex_login_needs_home(scratch / "user"));
    CHECK_FALSE(with("model = \"m\"\n"));
    CHECK_FALSE(with("cli_auth_credentials_store = \"file\"\n"));
    CHECK_FALSE(with("# cli_auth_credentials_store = \"keyring\"\n"));
    CHECK_FALSE(with("[other]\ncli_auth_credentials_store = \"keyring\"\n"));
    CHECK(with("model = \"m\"\n cli_auth_credentials_store='keyring' # here\n[features]\n"));
    CHECK(with("cli_auth_credentials_store = \"auto\"\n"));
    (void)scratch.file("user/auth.json", "{}");
    CHECK_FALSE(with("cli_auth_credentials_store = \"auto\"\n"));
    CHECK(with("cli_auth_credentials_store = \"keyring\"\n"));
}
