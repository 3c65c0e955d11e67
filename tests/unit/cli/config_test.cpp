#include "cli/config.h"

#include <doctest/doctest.h>

#include "platform/toml.h"
#include "support/fake_env.h"
#include "support/temp_dir.h"

namespace gdnctl::cli {

namespace {

namespace fs = std::filesystem;

// A home with a user file and, below it, project/deep as the working directory.
struct World {
    test::TempDir folder;
    fs::path root = folder.path();
    test::FakeEnv env{{"HOME", root.string()}};
    ConfigRequest request{root / "project" / "deep", {}, {}};

    World() { fs::create_directories(request.cwd); }
    void write(const fs::path& relative, std::string_view text) const { test::write_text(root / relative, text); }
    LoadedConfig load() const {
        auto loaded = load_config(env, request);
        REQUIRE_MESSAGE(loaded, (loaded ? std::string() : loaded.error().text()));
        return std::move(*loaded);
    }
    Error error() const {
        const auto loaded = load_config(env, request);
        REQUIRE(!loaded);
        return loaded.error();
    }
};

std::string origin_of(const LoadedConfig& loaded, std::string_view path) {
    const ConfigValue* value = loaded.config.find(path);
    return value == nullptr ? "absent" : value->origin.text();
}

std::string text_of(const LoadedConfig& loaded, std::string_view path) {
    const auto value = loaded.config.string(path);
    return value && *value ? **value : "absent";
}

}  // namespace

TEST_CASE("each layer wins over the one below, and every value knows its origin") {
    World world;
    CHECK(text_of(world.load(), "cluster") == "local");
    CHECK(origin_of(world.load(), "cluster") == "built-in");

    world.write(".config/gdnctl/config.toml", "cluster = \"user\"\ntarget = \"u\"\n");
    CHECK(text_of(world.load(), "cluster") == "user");
    CHECK(origin_of(world.load(), "cluster") == (world.root / ".config/gdnctl/config.toml").string() + ":1");

    world.write("project/gdnctl.toml", "\ncluster = \"project\"\n");
    CHECK(text_of(world.load(), "cluster") == "project");
    CHECK(origin_of(world.load(), "cluster") == (world.root / "project/gdnctl.toml").string() + ":2");
    CHECK(text_of(world.load(), "target") == "u");

    world.env.values["GDNCTL_CLUSTER"] = "env";
    world.env.values["GDNCTL_TARGET"] = "env-target";
    CHECK(text_of(world.load(), "cluster") == "env");
    CHECK(origin_of(world.load(), "cluster") == "environment GDNCTL_CLUSTER");

    world.request.target = "flag-target";
    CHECK(text_of(world.load(), "target") == "flag-target");
    CHECK(origin_of(world.load(), "target") == "option --target");
    CHECK(world.load().files.size() == 2);
}

TEST_CASE("the nearest gdnctl.toml is the project's, and a file below the working directory is shown relative") {
    World world;
    world.write("gdnctl.toml", "cluster = \"far\"\n");
    world.write("project/deep/gdnctl.toml", "cluster = \"near\"\n");
    CHECK(text_of(world.load(), "cluster") == "near");
    CHECK(origin_of(world.load(), "cluster") == "gdnctl.toml:1");
    CHECK(find_project_config(world.root / "project") == world.root / "gdnctl.toml");
}

TEST_CASE("--config replaces the project file and not the user's") {
    World world;
    world.write(".config/gdnctl/config.toml", "target = \"u\"\n");
    world.write("project/gdnctl.toml", "cluster = \"project\"\n");
    world.write("other.toml", "cluster = \"other\"\n");
    world.request.file = "../../other.toml";
    CHECK(text_of(world.load(), "cluster") == "other");
    CHECK(text_of(world.load(), "target") == "u");
    world.request.file = "missing.toml";
    CHECK(world.error().kind == ErrorKind::usage);
    CHECK(world.error().message == "--config: no such file: missing.toml");
}

TEST_CASE("XDG_CONFIG_HOME wins over the home directory, without either there is no user file") {
    World world;
    world.write(".config/gdnctl/config.toml", "cluster = \"home\"\n");
    world.write("xdg/gdnctl/config.toml", "cluster = \"xdg\"\n");
    world.env.values["XDG_CONFIG_HOME"] = (world.root / "xdg").string();
    CHECK(text_of(world.load(), "cluster") == "xdg");
    world.env.values.clear();
    CHECK(user_config_path(world.env).empty());
    CHECK(text_of(world.load(), "cluster") == "local");
}

TEST_CASE("empty variables of the environment count as not set") {
    World world;
    world.env.values["GDNCTL_CLUSTER"] = "";
    CHECK(origin_of(world.load(), "cluster") == "built-in");
}

TEST_CASE("an unknown key at the top is a warning with file, line and a suggestion") {
    World world;
    world.write("project/deep/gdnctl.toml", "# settings\nclutser = \"x\"\nwholly_unknown = 1\n");
    const LoadedConfig loaded = world.load();
    REQUIRE(loaded.warnings.size() == 2);
    CHECK(loaded.warnings[0] == "gdnctl.toml:2: unknown key 'clutser'; did you mean `cluster`?");
    CHECK(loaded.warnings[1] == "gdnctl.toml:3: unknown key 'wholly_unknown'");
}

TEST_CASE("a value of the wrong type is an error with file and line") {
    World world;
    world.write("project/deep/gdnctl.toml", "\ncluster = 3\n");
    CHECK(world.error().kind == ErrorKind::config);
    CHECK(world.error().message == "gdnctl.toml:2: 'cluster' must be a string");
    world.write("project/deep/gdnctl.toml", "targets = \"x\"\n");
    CHECK(world.error().message == "gdnctl.toml:1: 'targets' must be a table");
    world.write("project/deep/gdnctl.toml", "[targets]\nx = 1\n");
    CHECK(world.error().message == "gdnctl.toml:2: 'targets.x' must be a table");
}

TEST_CASE("what is no TOML is an error with file, line and column") {
    World world;
    world.write("project/deep/gdnctl.toml", "cluster = \"x\"\ntarget = [1,\n");
    CHECK(world.error().kind == ErrorKind::config);
    CHECK(world.error().message.starts_with("gdnctl.toml:"));
    CHECK(world.error().message.find("not valid TOML") != std::string::npos);
    world.write("project/deep/gdnctl.toml", "cluster = \"a\"\ncluster = \"b\"\n");
    CHECK(world.error().message.starts_with("gdnctl.toml:2:"));
    world.write("project/deep/gdnctl.toml", std::string_view("cluster = \"\xff\xfe\"\n"));
    CHECK(world.error().kind == ErrorKind::config);
    world.write("project/deep/gdnctl.toml", std::string_view("a\0b", 3));
    CHECK(world.error().kind == ErrorKind::config);
}

TEST_CASE("an empty file is a configuration, a folder and a huge file are none") {
    World world;
    world.write("project/deep/gdnctl.toml", "");
    CHECK(text_of(world.load(), "cluster") == "local");
    world.write("project/deep/gdnctl.toml", std::string((std::size_t{1} << 20) + 1, '#'));
    CHECK(world.error().message.find("gdnctl.toml") != std::string::npos);
    fs::remove(world.root / "project/deep/gdnctl.toml");
    fs::create_directory(world.root / "project/deep/gdnctl.toml");
    CHECK(world.error().message.find("gdnctl.toml") != std::string::npos);
}

TEST_CASE("tables merge key by key, everything else is replaced") {
    World world;
    world.write(".config/gdnctl/config.toml", "[targets.a]\nlog = \"user.md\"\nkernel = [\"x\", \"y\"]\n");
    world.write("project/deep/gdnctl.toml", "[targets.a]\nkernel = [\"z\"]\n[targets.b]\nlog = \"b.md\"\n");
    const LoadedConfig loaded = world.load();
    CHECK(text_of(loaded, "targets.a.log") == "user.md");
    CHECK(origin_of(loaded, "targets.a.kernel") == "gdnctl.toml:2");
    CHECK(loaded.config.find("targets.a.kernel")->as_array()->size() == 1);
    CHECK(text_of(loaded, "targets.b.log") == "b.md");
    CHECK(loaded.config.find("targets.c") == nullptr);
    CHECK(loaded.config.find("cluster.x") == nullptr);
}

TEST_CASE("typed access reports a value of another type with its origin") {
    World world;
    world.write("project/deep/gdnctl.toml", "[targets.a]\nlog = true\nn = 4\n");
    const Config config = world.load().config;
    CHECK(config.boolean("targets.a.log").value() == true);
    CHECK(config.integer("targets.a.n").value() == 4);
    CHECK(!config.integer("targets.a.none").value());
    const auto wrong = config.string("targets.a.log");
    REQUIRE(!wrong);
    CHECK(wrong.error().message == "gdnctl.toml:2: 'targets.a.log' must be a string");
}

TEST_CASE("the template is valid and sets nothing, made live, it still is") {
    const ConfigOrigin file{ConfigOrigin::Kind::project_file, "f", 0};
    const std::string text = config_template();
    const auto table = parse_toml(text, file);
    REQUIRE(table);
    CHECK(table->empty());
    // Every line that holds a setting, without its mark.
    std::string live;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = text.find('\n', at);
        const std::string line = text.substr(at, end - at);
        if (line.starts_with("# ") && (line.find(" = ") != std::string::npos || line.starts_with("# ["))) {
            live += line.substr(2) + "\n";
        }
        at = end + 1;
    }
    const auto set = parse_toml(live, file);
    REQUIRE_MESSAGE(set, (set ? std::string() : set.error().text()));
    for (const ConfigKey& key : config_keys()) CHECK_MESSAGE(set->count(key.name) == 1, key.name);
}

}  // namespace gdnctl::cli
