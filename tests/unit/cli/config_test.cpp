#include "cli/config.h"

#include <doctest/doctest.h>

#include "cli/args_cli11.h"
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

namespace {

struct TableOptions {
    std::int64_t number = 4;
    double share = 0.5;
    std::string word = "usual";
    bool flag = false;
    std::vector<std::string> items;
    std::vector<GivenOption> given;
};

void describe_table(Args& args, TableOptions& o) {
    args.option(o.number, {.names = "-n,--number", .value = "N", .help = "a number", .required = true});
    args.option(o.share, {.names = "--share", .value = "X", .help = "a share"});
    args.option(o.word, {.names = "--word", .value = "W", .help = "a word", .env = "WORD"});
    args.flag(o.flag, {.names = "--flag|--no-flag", .help = "a flag"});
    args.option(o.items, {.names = "--item", .value = "I", .help = "an item"});
    args.note_given(o.given);
}

ConfigTable table_of(std::string_view text) {
    auto table = parse_toml(text, {ConfigOrigin::Kind::project_file, "f", 0});
    REQUIRE(table);
    return std::move(*table);
}

Status parse_with(
    TableOptions& options, const std::vector<std::string>& words, const ConfigTable& table,
    const Lookup& environment = [](std::string_view) { return std::nullopt; }) {
    Args globals, args;
    describe_table(args, options);
    return parse_words(globals, args, words, environment, [] { return false; },
                       {"cmd", [&]() -> Result<const ConfigTable*> { return &table; }});
}

}  // namespace

TEST_CASE("option table: a leading ~ in a path, or after a kernel's prefix, is the home folder") {
    OptionDef def;
    CHECK(with_home(def, "~/x", "/home/me") == "~/x");  // not a path
    for (const Complete path : {Complete::file, Complete::directory}) {
        def.complete = path;
        CHECK(with_home(def, "~/x", "/home/me") == "/home/me/x");
        CHECK(with_home(def, "~", "/home/me") == "/home/me");
        CHECK(with_home(def, "~root/x", "/home/me") == "/root/x");
        CHECK(with_home(def, "~no-such-user/x", "/home/me") == "~no-such-user/x");
        CHECK(with_home(def, "./~/x", "/home/me") == "./~/x");
        CHECK(with_home(def, "", "/home/me").empty());
    }
    def.complete = Complete::kernel;
    CHECK(with_home(def, "src:~/k.c", "/home/me") == "src:/home/me/k.c");
    CHECK(with_home(def, "builtin:chunk", "/home/me") == "builtin:chunk");
}

TEST_CASE("option table: a path in it may begin with the home folder") {
    const ConfigTable table = table_of("folder = '~/x'\n");
    Args globals, args;
    std::string folder;
    args.option(folder, {.names = "--folder", .value = "DIR", .help = "a folder", .complete = Complete::directory});
    const auto environment = [](std::string_view name) {
        return name == "HOME" ? std::optional<std::string>("/home/me") : std::nullopt;
    };
    REQUIRE(parse_words(globals, args, {}, environment, [] { return false; },
                        {"cmd", [&]() -> Result<const ConfigTable*> { return &table; }}));
    CHECK(folder == "/home/me/x");
}

TEST_CASE("option table: its values stand below words and environment, and count as given") {
    const ConfigTable table = table_of("number = 7\nshare = 2\nword = 'file'\nflag = true\nitem = ['a', 'b']\n");
    TableOptions options;
    REQUIRE(parse_with(options, {}, table));
    CHECK(options.number == 7);
    CHECK(options.share == 2.0);
    CHECK(options.word == "file");
    CHECK(options.flag);
    CHECK(options.items == std::vector<std::string>{"a", "b"});
    REQUIRE(options.given.size() == 6);
    CHECK(options.given[1].option == "--item");
    CHECK(options.given[1].value == "a");
    CHECK(options.given[1].origin == "f:5");
    CHECK_FALSE(options.given[1].typed);

    TableOptions over;
    REQUIRE(
        parse_with(over, {"-n", "1", "--no-flag", "--item", "c"}, table, [](std::string_view) { return "variable"; }));
    CHECK(over.number == 1);
    CHECK_FALSE(over.flag);
    CHECK(over.word == "variable");
    CHECK(over.items == std::vector<std::string>{"c"});
    CHECK(over.given[0].typed);
    CHECK(over.given[0].option == "--number");
}

TEST_CASE("option table: what an option does not take is an error with its line") {
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"nmuber = 1\n", "f:1: unknown key 'cmd.nmuber'"},
        {"\nflag = 'yes'\n", "f:2: 'cmd.flag' must be true or false"},
        {"word = ['a']\n", "f:1: 'cmd.word' must be a string or a number"},
        {"number = 1.5\n", "f:1: invalid value '1.5' for 'cmd.number': not a whole number"},
        {"item = [\n'a',\ntrue]\n", "f:3: 'cmd.item' must be a string or a list of strings"},
        {"number = { a = 1 }\n", "f:1: 'cmd.number' must be a string or a number"},
    };
    for (const auto& [text, message] : cases) {
        TableOptions options;
        const Status status = parse_with(options, {}, table_of(text));
        REQUIRE(!status);
        CHECK(status.error().kind == ErrorKind::config);
        CHECK(status.error().message == message);
    }
    TableOptions options;
    CHECK(parse_with(options, {}, table_of("nmuber = 1\n")).error().hint == "did you mean `number`?");
    CHECK(parse_with(options, {}, {}).error().message == "--number is required");
}

}  // namespace gdnctl::cli
