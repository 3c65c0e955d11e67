// What the commands for a setup decide.
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
    CHECK(world.run(k_config_init_row, {"--json"}) == 0);
    CHECK(world.json()["path"] == world.file("gdnctl.toml").string());
    CHECK(parse_toml(world.read("gdnctl.toml"), {}));
    world.write("gdnctl.toml", "target = \"mine\"\n");
    CHECK(world.run(k_config_init_row, {}) == 7);
    CHECK(world.read("gdnctl.toml") == "target = \"mine\"\n");
    CHECK(world.run(k_config_init_row, {"--force"}) == 0);
    CHECK(world.read("gdnctl.toml") != "target = \"mine\"\n");
    CHECK(world.run(k_config_init_row, {"--user"}) == 0);
    CHECK(fs::exists(world.folder / "home/.config/gdnctl/config.toml"));
    world.env.values.erase("HOME");
    CHECK(world.run(k_config_init_row, {"--user"}) == 2);
    CHECK(world.said.find("hint: set HOME or XDG_CONFIG_HOME") != std::string::npos);
}

TEST_CASE("config show: every table is checked, and secrets are masked") {
    CommandWorld world;
    world.configure(
        "target = \"t\"\n[targets.t]\ntest = [\"true\"]\n[targets.t.profile]\nargv = [\"true\"]\n"
        "env = { HF_TOKEN = \"hf_abcdefghijklmnopqrstuvwxyz0123456789\", LEVEL = \"2\" }\n");
    CHECK(world.run(k_config_show_row, {"--json"}) == 0);
    CHECK(world.json()["target"] == "t");
    CHECK(world.json()["target_detected"] == false);
    CHECK(world.terminal.out_text.find("hf_abc") == std::string::npos);
    CHECK(world.printed("\"***\""));
    world.configure("[codex-loop]\nno-such-option = 1\n");
    world.check({k_config_show_row, {}, 2, "no-such-option"});
    CommandWorld other;
    other.configure("target = \"t\"\n[targets.t]\ntest = [\"true\"]\n[targets.broken]\nkernel = [\"k\"]\n");
    other.check({k_config_show_row, {}, 2, "broken"});
}

TEST_CASE("init marin: only in a Marin checkout, a file that differs is kept") {
    CommandWorld world;
    world.check({k_init_marin_row, {}, 2, "not inside a git repository"});
    world.write(".git/HEAD", "ref: refs/heads/main\n");
    world.check({k_init_marin_row, {}, 2, "is not a Marin checkout"});
    world.write("lib/levanter/src/levanter/layers/gated_deltanet.py", "\n");
    CHECK(world.run(k_init_marin_row, {"--dry-run"}) == 0);
    CHECK(world.printed("+++ "));
    CHECK(!fs::exists(world.file("scripts")));
    CHECK(world.run(k_init_marin_row, {}) == 0);
    CHECK((fs::status(world.file("scripts/gdn/gdnctl.py")).permissions() & fs::perms::owner_exec) != fs::perms::none);
    CHECK(world.run(k_init_marin_row, {}) == 0);
    CHECK(world.said.find("everything is in place") != std::string::npos);
    world.write("scripts/gdn/gdnctl.py", "mine\n");
    CHECK(world.run(k_init_marin_row, {"--json"}) == 7);
    CHECK(world.json()["files"][0]["action"] == "kept");
    CHECK(world.read("scripts/gdn/gdnctl.py") == "mine\n");
    CHECK(world.run(k_init_marin_row, {"--force"}) == 0);
    CHECK(world.read("scripts/gdn/gdnctl.py") != "mine\n");
}

TEST_CASE("doctor: a required program that is missing is 1, an optional one is not") {
    CommandWorld world;
    world.env.values["PATH"] = (world.folder / "bin").string();
    const auto no_uv = [&] { world.process.expect({"bash", "-lc", "*"}, 0, "welcome\n\n\n"); };
    no_uv();
    CHECK(world.run(k_doctor_row, {"--json"}) == 1);
    CHECK(world.json()["ok"] == false);
    test::write_text(world.folder / "bin/git", "#!/bin/sh\n");
    fs::permissions(world.folder / "bin/git", fs::perms::owner_all);
    world.process.expect({"*", "--version"}, 0, "git version 2.39.5\n");
    no_uv();
    CHECK(world.run(k_doctor_row, {}) == 0);
    CHECK(world.printed("git version 2.39.5"));
    CHECK(world.printed("absent"));
    world.process.expect({"*", "--version"}, 3, "");
    no_uv();
    CHECK(world.run(k_doctor_row, {}) == 1);
    CHECK(world.said.find("something required is missing") != std::string::npos);
}

TEST_CASE("completion: a script for each shell, and values for what is typed") {
    CommandWorld world;
    for (const char* shell : {"bash", "zsh", "fish"}) {
        CHECK(world.run(k_completion_row, {shell}) == 0);
        CHECK(world.printed("ray-test"));
    }
    world.check({k_completion_row, {"tcsh"}, 2, "tcsh"});
    world.configure("cluster = \"mine\"\n[targets.t]\ntest = [\"true\"]\n");
    fs::create_directories(world.context.state_dir / "local/jobs/job-1");
    fs::create_directories(world.context.state_dir / "local/jobs/.new");
    world.write("got/a/b.json", "{}");
    const auto values = [&](std::vector<std::string> words) {
        CHECK(world.run(k_complete_values_row, std::move(words)) == 0);
        return world.terminal.out_text;
    };
    CHECK(values({"target"}).find("t\n") != std::string::npos);
    CHECK(values({"cluster"}) == "local\nmine\n");
    CHECK(values({"local-job"}) == "job-1\n");
    CHECK(values({"download", "--", "hf-download-trace", "--output-dir", "got"}) == "a\na/b.json\n");
    CHECK(values({"iteration"}).empty());
    CHECK(values({"outcome"}).find("test-fail\n") != std::string::npos);
    CHECK(values({"kernel"}).find("builtin:") != std::string::npos);
    world.check({k_complete_values_row, {"colour"}, 2, "colour"});
}

TEST_CASE("ce-infer: block sizes of a known chip, a shape without all three sizes is refused") {
    CommandWorld world;
    CHECK(world.run(k_ce_infer_row,
                    {"--device", "TPU v5", "--batch", "8192", "--hidden", "4096", "--vocab", "128256", "--json"}) == 0);
    CHECK(world.printed("block"));
    world.check({k_ce_infer_row, {"--device", "TPU v5", "--batch", "0", "--hidden", "4096", "--vocab", "9"}, 2, "0"});
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
