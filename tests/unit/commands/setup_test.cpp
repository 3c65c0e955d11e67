// What the commands for a setup decide.
#include <algorithm>

#include "cli/config.h"
#include "cli/reference.h"
#include "command_world.h"
#include "commands/table.h"

namespace gdnctl::commands {

namespace {

using test::CommandWorld;
namespace fs = std::filesystem;

}  // namespace

TEST_CASE("config init: an existing file stays, --force replaces it, --user needs a home") {
    CommandWorld world;
    CHECK(world.run("config init", {"--json"}) == 0);
    CHECK(world.json()["path"] == world.file("gdnctl.toml").string());
    CHECK(parse_toml(world.read("gdnctl.toml"), {}));
    world.write("gdnctl.toml", "target = \"mine\"\n");
    CHECK(world.run("config init", {}) == 7);
    CHECK(world.read("gdnctl.toml") == "target = \"mine\"\n");
    CHECK(world.run("config init", {"--force"}) == 0);
    CHECK(world.read("gdnctl.toml") != "target = \"mine\"\n");
    CHECK(world.run("config init", {"--user"}) == 0);
    CHECK(fs::exists(world.folder / "home/.config/gdnctl/config.toml"));
    world.env.values.erase("HOME");
    CHECK(world.run("config init", {"--user"}) == 2);
    CHECK(world.said.find("hint: set HOME or XDG_CONFIG_HOME") != std::string::npos);
}

TEST_CASE("config show: every table is checked, and secrets are masked") {
    CommandWorld world;
    world.configure(
        "target = \"t\"\n[targets.t]\ntest = [\"true\"]\n[targets.t.profile]\nargv = [\"true\"]\n"
        "env = { HF_TOKEN = \"hf_abcdefghijklmnopqrstuvwxyz0123456789\", LEVEL = \"2\" }\n");
    CHECK(world.run("config show", {"--json"}) == 0);
    CHECK(world.json()["target"] == "t");
    CHECK(world.json()["target_detected"] == false);
    CHECK(world.terminal.out_text.find("hf_abc") == std::string::npos);
    CHECK(world.printed("\"***\""));
    world.configure("[codex-loop]\nno-such-option = 1\n");
    world.check({"config show", {}, 2, "no-such-option"});
    CommandWorld other;
    other.configure("target = \"t\"\n[targets.t]\ntest = [\"true\"]\n[targets.broken]\nkernel = [\"k\"]\n");
    other.check({"config show", {}, 2, "broken"});
}

TEST_CASE("init marin: only in a Marin checkout, a file that differs is kept") {
    CommandWorld world;
    world.check({"init marin", {}, 2, "not inside a git repository"});
    world.write(".git/HEAD", "ref: refs/heads/main\n");
    world.check({"init marin", {}, 2, "is not a Marin checkout"});
    world.write("lib/levanter/src/levanter/layers/gated_deltanet.py", "\n");
    CHECK(world.run("init marin", {"--dry-run"}) == 0);
    CHECK(world.printed("+++ "));
    CHECK(!fs::exists(world.file("scripts")));
    CHECK(world.run("init marin", {}) == 0);
    CHECK((fs::status(world.file("scripts/gdn/gdnctl.py")).permissions() & fs::perms::owner_exec) != fs::perms::none);
    CHECK(world.run("init marin", {}) == 0);
    CHECK(world.said.find("everything is in place") != std::string::npos);
    world.write("scripts/gdn/gdnctl.py", "mine\n");
    CHECK(world.run("init marin", {"--json"}) == 7);
    CHECK(world.json()["files"][0]["action"] == "kept");
    CHECK(world.read("scripts/gdn/gdnctl.py") == "mine\n");
    CHECK(world.run("init marin", {"--force"}) == 0);
    CHECK(world.read("scripts/gdn/gdnctl.py") != "mine\n");
}

TEST_CASE("doctor: a required program that is missing is 1, an optional one is not") {
    CommandWorld world;
    world.env.values["PATH"] = (world.folder / "bin").string();
    const auto no_uv = [&] { world.process.expect({"bash", "-lc", "*"}, 0, "welcome\n\n\n"); };
    no_uv();
    CHECK(world.run("doctor", {"--json"}) == 1);
    CHECK(world.json()["ok"] == false);
    test::write_text(world.folder / "bin/git", "#!/bin/sh\n");
    fs::permissions(world.folder / "bin/git", fs::perms::owner_all);
    world.process.expect({"*", "--version"}, 0, "git version 2.39.5\n");
    no_uv();
    CHECK(world.run("doctor", {}) == 0);
    CHECK(world.printed("git version 2.39.5"));
    CHECK(world.printed("absent"));
    world.process.expect({"*", "--version"}, 3, "");
    no_uv();
    CHECK(world.run("doctor", {}) == 1);
    CHECK(world.said.find("something required is missing") != std::string::npos);
}

TEST_CASE("completion: a script for each shell, and what can follow the words so far") {
    CommandWorld world;
    for (const char* shell : {"bash", "zsh", "fish"}) {
        CHECK(world.run("completion", {shell}) == 0);
        CHECK(world.printed("__complete --"));
    }
    world.check({"completion", {"tcsh"}, 2, "tcsh"});
    world.write("gdnctl.toml", "cluster = \"mine\"\n[targets.t]\ntest = [\"true\"]\n");
    fs::create_directories(world.context.state_dir / "local/jobs/job-1");
    fs::create_directories(world.context.state_dir / "local/jobs/.new");
    world.write("got/a/b.json", "{}");
    const auto offers = [&](std::vector<std::string> words) {
        words.insert(words.begin(), "--");
        CHECK(world.run("__complete", std::move(words)) == 0);
        return world.terminal.out_text;
    };
    CHECK(offers({"--target", ""}).find("t\n") != std::string::npos);
    CHECK(offers({"--target=t"}) == "--target=t\n");
    CHECK(offers({"ray-test", "--cluster", ""}) == "local\nmine\n");
    CHECK(offers({"ray-wait", "j"}) == "job-1\n");
    CHECK(offers({"hf-download-trace", "--output-dir", "got", "--path-prefix", ""}) == "a\na/b.json\n");
    CHECK(offers({"log", "show", ""}).empty());
    CHECK(offers({"log", "append", "--outcome", "te"}).find("test-fail\n") != std::string::npos);
    CHECK(offers({"oracle", "verify", "gdn", "--kernel", "b"}).find("builtin:") != std::string::npos);
    CHECK(offers({"loop-report", "--html", "x"}) == ":file\n");
    CHECK(offers({"lint-l"}) == "lint-log\tcheck the running log\n");
    CHECK(offers({"loop-report", "--ht"}) == "--html\twrite the report to this file as an HTML page\n");
    CHECK(offers({"nonsense", ""}).empty());
    world.write("gdnctl.toml", "[");
    CHECK(offers({"config", "in"}).starts_with("init\t"));
    CHECK(offers({"ray-test", "--cluster", ""}) == "local\n");
}

TEST_CASE("ce-infer: block sizes of a known chip, a shape without all three sizes is refused") {
    CommandWorld world;
    CHECK(world.run("ce-infer",
                    {"--device", "TPU v5", "--batch", "8192", "--hidden", "4096", "--vocab", "128256", "--json"}) == 0);
    CHECK(world.printed("block"));
    world.check({"ce-infer", {"--device", "TPU v5", "--batch", "0", "--hidden", "4096", "--vocab", "9"}, 2, "0"});
}

TEST_CASE("words: each means commands or a global option that exist, and none is a command itself") {
    const cli::Table commands = table();
    const auto is_command = [&](std::string_view name) {
        return std::any_of(commands.begin(), commands.end(), [&](const cli::Command& c) { return c.is_named(name); });
    };
    CHECK(commands.words.size() > 40);
    for (const cli::Word& word : commands.words) {
        CAPTURE(std::string(word.typed));
        CAPTURE(std::string(word.meant));
        CHECK((is_command(word.meant) || word.meant == "--version"));
        CHECK_FALSE(is_command(word.typed));
    }
}

TEST_CASE("options: each one that takes a path of this machine is marked, so that ~ is the home folder") {
    const cli::Table commands = table();
    const auto all = cli::describe_all(commands);
    int paths = 0;
    for (const cli::Described& one : all->commands) {
        for (const cli::OptionDef& option : one.args.options()) {
            const std::string& value = option.value;
            const bool is_path = value.starts_with("FILE") || value.starts_with("PATH") || value.starts_with("DIR");
            if (!is_path || option.canonical() == "--worktree-link") continue;  // that one is of the repository
            ++paths;
            CAPTURE(option.canonical());
            CHECK(cli::with_home(option, "~/x", "/home/me") == "/home/me/x");
        }
    }
    CHECK(paths > 40);
}

}  // namespace gdnctl::commands
