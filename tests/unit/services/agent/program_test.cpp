// Finding a codex, and refusing what it would refuse.
#include <doctest/doctest.h>

#include "core/log.h"
#include "unit/services/agent/codex_world.h"

using namespace gdnctl;
using namespace gdnctl::test;

namespace {

CodexWanted wanted_in(const CodexWorld& world) {
    CodexWanted wanted;
    wanted.program = fake_codex();
    wanted.effort = "xhigh";
    wanted.environment = world.request.environment;
    return wanted;
}

// No call of `exec` came with a prompt.
bool no_prompt_was_sent(const CodexWorld& world) {
    for (const auto& call : world.calls()) {
        if (call["stdin_bytes"] != 0) return false;
    }
    return true;
}

Result<CodexChecked> check(const CodexWorld& world, const CodexSettings& settings) {
    return check_codex(settings, world.request.worktree, world.request.environment, system_process());
}

}  // namespace

TEST_CASE("codex program: models, efforts and features are asked for, nothing is started") {
    const CodexWorld world;
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
    CodexWorld world;
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
    CodexWorld world;
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
    CodexWorld world;
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
    CodexWorld world;
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

TEST_CASE("codex preflight: effort, model, profile, schema and words are refused without a request") {
    CodexWorld world;
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
    settings.output_schema = world.scratch.file("schema.json", "{");
    CHECK_FALSE(check(world, settings));
    settings.output_schema = world.scratch / "no-schema.json";
    CHECK_FALSE(check(world, settings));

    settings = good;
    settings.config = {"zzz=1"};
    checked = check(world, settings);
    REQUIRE_FALSE(checked);
    CHECK(checked.error().kind == ErrorKind::config);
    CHECK(checked.error().message.find("unknown variant `zzz`") != std::string::npos);
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
    const CodexWorld world;
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
