// Words -> options: every trap of the parser underneath is a test here, either as the options that come of the words
// or as the text of the error.
#include <map>

#include <doctest/doctest.h>

#include "cli/args_cli11.h"
#include "cli/dispatch.h"
#include "sample_command.h"

namespace gdnctl::cli {

namespace {

using Words = std::vector<std::string>;

struct Parsed {
    test::SampleOptions options;
    GlobalFlags flags;
    Status status;
    const std::string& error() const { return status.error().message; }
    const std::string& hint() const { return status.error().hint; }
};

Parsed parse(const Words& words, const std::map<std::string, std::string>& env = {}) {
    Parsed parsed;
    Args globals, args;
    describe_globals(globals, parsed.flags);
    test::describe_sample(args, parsed.options);
    const auto lookup = [&](std::string_view name) -> std::optional<std::string> {
        const auto found = env.find(std::string(name));
        if (found == env.end()) return std::nullopt;
        return found->second;
    };
    const bool& help = parsed.flags.help;
    parsed.status = parse_words(globals, args, words, lookup, [&] { return help; });
    return parsed;
}

void check_usage(const Parsed& parsed, std::string_view message) {
    REQUIRE(!parsed.status);
    CHECK(parsed.status.error().kind == ErrorKind::usage);
    CHECK(parsed.error() == message);
}

}  // namespace

TEST_CASE("args: options that were given are known, also with their default values") {
    bool used = false;
    std::int64_t pairs = 9, other = 1;
    cli::Args args;
    args.option(pairs, {.names = "--perf-pairs", .value = "N", .help = "pairs"});
    args.option(other, {.names = "--other", .value = "N", .help = "other"});
    args.note_use("--perf-", used);
    CHECK(args.options()[1].assign("2"));
    CHECK_FALSE(used);
    CHECK(args.options()[0].assign("9"));
    CHECK(used);
    CHECK(pairs == 9);
}

TEST_CASE("defaults stay when nothing is given") {
    const Parsed p = parse({"in"});
    REQUIRE(p.status);
    CHECK(p.options.model == "small");
    CHECK(!p.options.name);
    CHECK(p.options.iterations == 3);
    CHECK(p.options.wait);
    CHECK(p.options.path == "in");
    CHECK(!p.options.second);
}

TEST_CASE("options, flags and positional words mix in any order") {
    const Parsed p = parse({"--iterations", "5", "in", "-f", "--rtol=1e-3", "out", "--no-wait"});
    REQUIRE(p.status);
    CHECK(p.options.iterations == 5);
    CHECK(p.options.rtol == doctest::Approx(1e-3));
    CHECK(p.options.follow);
    CHECK(!p.options.wait);
    CHECK(p.options.path == "in");
    CHECK(p.options.second == "out");
}

TEST_CASE("a misspelt option is named and the nearest one suggested") {
    const Parsed p = parse({"in", "--modle", "a"});
    check_usage(p, "unknown option '--modle'");
    CHECK(p.hint() == "did you mean `--model`?");
}

TEST_CASE("of several misspelt options the first one is named") {
    check_usage(parse({"3", "--tial", "--mdl"}), "unknown option '--tial'");
}

TEST_CASE("a prefix of an option is suggested and not matched") {
    const Parsed p = parse({"in", "--iter", "5"});
    check_usage(p, "unknown option '--iter'");
    CHECK(p.hint() == "did you mean `--iterations`?");
    CHECK(parse({"in", "--iter=5"}).error() == "unknown option '--iter'");
}

TEST_CASE("a forgotten value does not swallow the option that follows") {
    const Parsed p = parse({"in", "--model", "--quiet"});
    check_usage(p, "--model needs a value, but the option --quiet follows");
    CHECK(p.hint() == "if '--quiet' is the value, write --model=--quiet");
    check_usage(parse({"in", "-m", "-f"}), "-m needs a value, but the option -f follows");
    check_usage(parse({"in", "--model", "--format=json"}),
                "--model needs a value, but the option --format=json follows");
}

TEST_CASE("an option's name may be a value when it is written with an equals sign") {
    const Parsed p = parse({"in", "--model=--quiet"});
    REQUIRE(p.status);
    CHECK(p.options.model == "--quiet");
    CHECK(!p.flags.common.quiet);
}

TEST_CASE("a value that looks like an option of nobody is a value") {
    const Parsed p = parse({"in", "--model", "--not-an-option"});
    REQUIRE(p.status);
    CHECK(p.options.model == "--not-an-option");
}

TEST_CASE("an option at the end without its value") {
    const Parsed p = parse({"in", "--iterations"});
    check_usage(p, "--iterations needs a value");
    CHECK(p.hint() == "--iterations N: how often");
}

TEST_CASE("a list option takes one value a use") {
    check_usage(parse({"--check", "a", "b", "c", "d"}), "unexpected argument 'd'");
    const Parsed q = parse({"--check", "a", "in", "--check", "b"});
    REQUIRE(q.status);
    CHECK(q.options.checks == Words{"a", "b"});
    CHECK(q.options.path == "in");
}

TEST_CASE("brackets, commas and quotes in values come through word for word") {
    const Parsed p = parse({"[in]", "--check", "[ab]", "--check=[a,b]", "--check", "\"q\"", "--check", "a b", "--model",
                            "[m]", "--", "[ab]", "{a,b}"});
    REQUIRE(p.status);
    CHECK(p.options.checks == Words{"[ab]", "[a,b]", "\"q\"", "a b"});
    CHECK(p.options.model == "[m]");
    CHECK(p.options.path == "[in]");
    CHECK(p.options.command == Words{"[ab]", "{a,b}"});
}

TEST_CASE("a repeated scalar takes the last value") {
    const Parsed p = parse(
        {"in", "--model", "a", "--model", "b", "--wait", "--no-wait", "--wait", "--format", "json", "--format=github"});
    REQUIRE(p.status);
    CHECK(p.options.model == "b");
    CHECK(p.options.wait);
    CHECK(p.options.format == test::Format::github);
}

TEST_CASE("an empty value is a value") {
    for (const Words& words : {Words{"in", "--model="}, Words{"in", "--model", ""}, Words{"in", "-m="}}) {
        const Parsed p = parse(words);
        REQUIRE(p.status);
        CHECK(p.options.model.empty());
    }
    const Parsed p = parse({""});
    REQUIRE(p.status);
    CHECK(p.options.path.empty());
    const Parsed q = parse({"in", "--check=", "--check", ""});
    REQUIRE(q.status);
    CHECK(q.options.checks == Words{"", ""});
}

TEST_CASE("numbers are decimal, whole where they should be, and never empty") {
    CHECK(parse({"in", "--iterations", "010"}).options.iterations == 10);
    CHECK(parse({"in", "--iterations", "08"}).options.iterations == 8);
    CHECK(parse({"in", "--limit", "-1"}).options.limit == -1);
    CHECK(parse({"in", "--limit=-1"}).options.limit == -1);
    CHECK(parse({"in", "--scale", "-1e-3"}).options.scale == doctest::Approx(-1e-3));
    check_usage(parse({"in", "--iterations", ""}), "invalid value '' for --iterations: not a whole number");
    check_usage(parse({"in", "--iterations="}), "invalid value '' for --iterations: not a whole number");
    check_usage(parse({"in", "--iterations", "0x10"}), "invalid value '0x10' for --iterations: not a whole number");
    check_usage(parse({"in", "--iterations", "1.5"}), "invalid value '1.5' for --iterations: not a whole number");
    check_usage(parse({"in", "--iterations", "5x"}), "invalid value '5x' for --iterations: not a whole number");
    check_usage(parse({"in", "--limit", "9223372036854775808"}),
                "invalid value '9223372036854775808' for --limit: not a whole number");
    check_usage(parse({"in", "--rtol", ""}), "invalid value '' for --rtol: not a finite decimal number");
    for (const char* word : {"inf", "nan", "-inf", "1e999", "0x1p3", "one"}) {
        check_usage(parse({"in", "--rtol", word}),
                    "invalid value '" + std::string(word) + "' for --rtol: not a finite decimal number");
    }
}

TEST_CASE("words after the first -- are the trailing command, word for word") {
    const Parsed p = parse({"in", "-f", "--", "ls", "-l", "--model", "--", "--quiet", ""});
    REQUIRE(p.status);
    CHECK(p.options.command == Words{"ls", "-l", "--model", "--", "--quiet", ""});
    CHECK(p.options.model == "small");
    CHECK(!p.flags.common.quiet);
}

TEST_CASE("without -- a trailing command's options are not taken for it") {
    check_usage(parse({"in", "ls", "-l"}), "unknown option '-l'");
}

TEST_CASE("a required trailing command must be there") {
    std::vector<std::string> command;
    Args globals, args;
    args.trailing(command, true, {.name = "COMMAND", .help = "what to run"});
    const auto nothing = [](std::string_view) { return std::optional<std::string>(); };
    const auto go_on = [] { return false; };
    for (const Words& words : {Words{}, Words{"--"}}) {
        const Status status = parse_words(globals, args, words, nothing, go_on);
        REQUIRE(!status);
        CHECK(status.error().message == "the argument COMMAND is missing");
        CHECK(status.error().hint == "write it after '--': -- COMMAND");
    }
    CHECK(parse_words(globals, args, {"--", "-x"}, nothing, go_on));
    CHECK(command == Words{"-x"});
}

TEST_CASE("a command line begins at the first word that is no option, or after --") {
    std::string model;
    bool quick = false;
    std::vector<std::string> command;
    Args globals, args;
    args.option(model, {.names = "-m,--model", .value = "M", .help = "which"});
    args.flag(quick, {.names = "-q,--quick", .help = "be quick"});
    args.command_line(command, true, {.name = "COMMAND", .help = "what to run"});
    const auto nothing = [](std::string_view) { return std::optional<std::string>(); };
    const auto parsed = [&](const Words& words) {
        command.clear();
        return parse_words(globals, args, words, nothing, [] { return false; });
    };
    const Words rest = {"ls", "-q", "--model", "--", ""};
    for (const Words& before : {Words{"--model", "small"}, Words{"--model=small"}, Words{"-m", "small", "-q"},
                                Words{"-msmall"}, Words{"-qm", "small"}}) {
        for (const Words& between : {Words{}, Words{"--"}}) {
            Words words = before;
            words.insert(words.end(), between.begin(), between.end());
            words.insert(words.end(), rest.begin(), rest.end());
            model.clear();
            REQUIRE(parsed(words));
            CHECK(model == "small");
            CHECK(command == rest);
        }
    }
    CHECK(!parsed({"--model"}));
    CHECK(!parsed({"--model", "small"}));
    CHECK(!parsed({"-x", "ls"}));
}

TEST_CASE("-- where nothing may follow") {
    Args globals, args;
    const auto nothing = [](std::string_view) { return std::optional<std::string>(); };
    const Status status = parse_words(globals, args, {"--", "x"}, nothing, [] { return false; });
    REQUIRE(!status);
    CHECK(status.error().message == "this command accepts nothing after '--'");
}

TEST_CASE("-- ends the options where no command line may follow") {
    Args globals, args;
    std::string id;
    bool flag = false;
    args.positional(id, {.name = "ID", .help = "an id"});
    args.flag(flag, {.names = "--flag", .help = "a flag"});
    const auto nothing = [](std::string_view) { return std::optional<std::string>(); };
    const auto go_on = [] { return false; };
    CHECK(parse_words(globals, args, {"--flag", "--", "-x"}, nothing, go_on));
    CHECK(id == "-x");
    CHECK(flag);
    CHECK_FALSE(parse_words(globals, args, {"a", "--", "-x"}, nothing, go_on));
}

TEST_CASE("flags take true or false with an equals sign and nothing else") {
    CHECK(!parse({"in", "--follow=false"}).options.follow);
    CHECK(parse({"in", "--follow=YES"}).options.follow);
    CHECK(parse({"in", "--no-wait=false"}).options.wait);
    CHECK(!parse({"in", "--no-wait=true"}).options.wait);
    check_usage(parse({"in", "--follow=maybe"}), "--follow is a flag; its value can only be true or false");
    const Parsed p = parse({"--follow", "false"});
    REQUIRE(p.status);
    CHECK(p.options.follow);
    CHECK(p.options.path == "false");
}

TEST_CASE("short options: bundles, glued and separate values") {
    const Parsed p = parse({"in", "-qvvf", "-mbig"});
    REQUIRE(p.status);
    CHECK(p.flags.common.quiet);
    CHECK(p.flags.common.verbose == 2);
    CHECK(p.options.follow);
    CHECK(p.options.model == "big");
    CHECK(parse({"in", "-m=big"}).options.model == "big");
    CHECK(parse({"in", "-fm", "big"}).options.model == "big");
    CHECK(parse({"in", "-fm[a]"}).options.model == "[a]");
    check_usage(parse({"in", "-fx"}), "unknown option '-x'");
    check_usage(parse({"in", "-fm"}), "-m needs a value");
}

TEST_CASE("a single dash is a word") {
    CHECK(parse({"-"}).options.path == "-");
    CHECK(parse({"in", "--model", "-"}).options.model == "-");
}

TEST_CASE("a value outside a closed set is answered with the set and the nearest member") {
    const Parsed p = parse({"in", "--format", "jsno"});
    check_usage(p, "invalid value 'jsno' for --format: not one of text, json, github");
    CHECK(p.hint() == "did you mean `json`?");
    const Parsed q = parse({"in", "--suite", "zzzzzz"});
    check_usage(q, "invalid value 'zzzzzz' for --suite: not one of kernels, layer, both");
    CHECK(q.hint() == "--suite SUITE: which tests");
}

TEST_CASE("positional words: missing, too many") {
    const Parsed p = parse({});
    check_usage(p, "the argument PATH is missing");
    CHECK(p.hint() == "PATH: what to read");
    check_usage(parse({"a", "b", "c", "d"}), "unexpected argument 'c'");
}

TEST_CASE("a required option must be there, from the words or the environment") {
    std::string token;
    Args globals, args;
    args.option(token, {.names = "--token", .value = "T", .help = "the token", .env = "TOKEN", .required = true});
    const auto unset = [](std::string_view) { return std::optional<std::string>(); };
    const auto set = [](std::string_view) { return std::optional<std::string>("from-env"); };
    const auto go_on = [] { return false; };
    const Status status = parse_words(globals, args, {}, unset, go_on);
    REQUIRE(!status);
    CHECK(status.error().message == "--token is required");
    CHECK(parse_words(globals, args, {}, set, go_on));
    CHECK(token == "from-env");
}

TEST_CASE("the environment gives a value where no option does") {
    CHECK(parse({"in"}, {{"SAMPLE_MODEL", "env"}}).options.model == "env");
    CHECK(parse({"in", "--model", "word"}, {{"SAMPLE_MODEL", "env"}}).options.model == "word");
    CHECK(parse({"in"}, {{"SAMPLE_MODEL", ""}}).options.model == "small");
    check_usage(parse({"in"}, {{"SAMPLE_LIMIT", "many"}}),
                "invalid value 'many' for the environment variable SAMPLE_LIMIT: not a whole number");
}

TEST_CASE("checks run after everything is assigned") {
    check_usage(parse({"in", "--follow", "--limit", "-1"}), "--follow needs a limit of 0 or more");
    CHECK(parse({"in", "--limit", "-1"}).status);
}

TEST_CASE("help needs no arguments and judges no values") {
    const Parsed p = parse({"--help"});
    REQUIRE(p.status);
    CHECK(p.flags.help);
    CHECK(parse({"-h", "--iterations", "x"}).status);
}

TEST_CASE("words that look like the parser's own marks are only words") {
    const Parsed p = parse({"\x01", "--model",
                            "\x01"
                            "0",
                            "--check",
                            "\x01"
                            "99"});
    REQUIRE(p.status);
    CHECK(p.options.path == "\x01");
    CHECK(p.options.model ==
          "\x01"
          "0");
    CHECK(p.options.checks == Words{"\x01"
                                    "99"});
}

TEST_CASE("global options have their own values") {
    const Parsed p = parse({"in", "--color", "never", "-C", "dir", "--target", "t", "--config=c.toml", "--json"});
    REQUIRE(p.status);
    CHECK(p.flags.color == ColorMode::never);
    CHECK(p.flags.directory == "dir");
    CHECK(p.flags.common.target == "t");
    CHECK(p.flags.common.config_file == "c.toml");
    CHECK(p.flags.common.json);
    const Parsed q = parse({"in", "--color", "nver"});
    check_usage(q, "invalid value 'nver' for --color: not one of auto, always, never");
    CHECK(q.hint() == "did you mean `never`?");
}

TEST_CASE("the first word given replaces the initial list of a list option") {
    std::vector<std::string> globs = {"a", "b"};
    Args globals, args;
    args.option(globs, {.names = "--glob", .value = "GLOB", .help = "which"});
    const auto unset = [](std::string_view) { return std::optional<std::string>(); };
    CHECK(parse_words(globals, args, {"--glob", "c", "--glob", "d"}, unset, [] { return false; }));
    CHECK(globs == Words{"c", "d"});
}

}  // namespace gdnctl::cli
