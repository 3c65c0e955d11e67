#include "cli/help.h"

#include <doctest/doctest.h>

#include "cli/dispatch.h"
#include "sample_command.h"

namespace gdnctl::cli {

namespace {

std::string sample_page(int columns, bool color = false) {
    test::SampleOptions options;
    Args args, globals;
    test::describe_sample(args, options);
    bool quiet = false;
    globals.flag(quiet, {.names = "-q,--quiet", .help = "warnings and errors only", .group = "Global options"});
    return help_page(test::k_sample_table[0], args, globals, {columns, color});
}

}  // namespace

TEST_CASE("the short page has the common options in one column, and names the long one") {
    std::string a, b;
    bool c = false;
    Args args, globals;
    args.option(a, {.names = "--alpha", .value = "WORD", .help = "the first", .group = "One", .common = true});
    args.option(b, {.names = "--beta-is-longer", .value = "N", .help = "not here", .group = "One"});
    args.flag(c, {.names = "--gamma-gamma", .help = "the third", .group = "Two", .common = true});
    const Command& command = test::k_sample_table[0];
    CHECK(short_help_page(command, args, globals, {80, false}) == R"page(gdnctl sample run: run the sample

Usage:
  gdnctl sample run [OPTIONS]

One:
      --alpha WORD   the first

Two:
      --gamma-gamma  the third

`gdnctl sample run --help` shows all 3 options and the exit codes.
)page");
    CHECK(help_page(command, args, globals, {80, false}).find("      --gamma-gamma       the third") !=
          std::string::npos);
    Args none;
    CHECK(short_help_page(command, none, globals, {80, false}) == help_page(command, none, globals, {80, false}));
}

TEST_CASE("help page at 80 columns") {
    CHECK(sample_page(80) == R"page(gdnctl sample run: run the sample

Usage:
  gdnctl sample run [OPTIONS] PATH [SECOND] [-- COMMAND...]

Runs the sample with everything that an option can be, so that a page holds a
paragraph which is long enough to be wrapped at eighty and at a hundred columns.

Examples:
  gdnctl sample run data.npz --iterations 5
      five times
  gdnctl sample run data.npz --check '[ab]' -- ls -l

Arguments:
  PATH        what to read
  SECOND      what to compare with
  -- COMMAND  what to run

Options:
  -m, --model NAME       which model (default: small; environment: SAMPLE_MODEL)
      --name NAME        what to call it
      --iterations N     how often (default: 3)
      --limit N          at most so many (environment: SAMPLE_LIMIT)
  -f, --follow           go on until the end of the job, and print what it
                         prints
      --wait, --no-wait  wait for the end (default: --wait)
      --format FORMAT    how to print (default: text)
            text         for people
            json         for programs
            github       annotations
      --suite SUITE      which tests: kernels, layer, both (default: both)
      --check REGEX      what must be found (repeatable)

Tolerances:
      --rtol X   relative tolerance (default: 0.001)
      --scale X  scale

Global options:
  -q, --quiet  warnings and errors only

Exit codes:
  0         success
  1         the sample failed
  2         usage or configuration error
  8         local I/O: disk full, permission, unsafe path
  70        internal error (a bug)
  130, 143  interrupted by SIGINT / SIGTERM, after cleaning up

See also:
  gdnctl sample list, docs/samples.md
)page");
}

TEST_CASE("help page at 100 columns") {
    CHECK(sample_page(100) == R"page(gdnctl sample run: run the sample

Usage:
  gdnctl sample run [OPTIONS] PATH [SECOND] [-- COMMAND...]

Runs the sample with everything that an option can be, so that a page holds a paragraph which is
long enough to be wrapped at eighty and at a hundred columns.

Examples:
  gdnctl sample run data.npz --iterations 5
      five times
  gdnctl sample run data.npz --check '[ab]' -- ls -l

Arguments:
  PATH        what to read
  SECOND      what to compare with
  -- COMMAND  what to run

Options:
  -m, --model NAME       which model (default: small; environment: SAMPLE_MODEL)
      --name NAME        what to call it
      --iterations N     how often (default: 3)
      --limit N          at most so many (environment: SAMPLE_LIMIT)
  -f, --follow           go on until the end of the job, and print what it prints
      --wait, --no-wait  wait for the end (default: --wait)
      --format FORMAT    how to print (default: text)
            text         for people
            json         for programs
            github       annotations
      --suite SUITE      which tests: kernels, layer, both (default: both)
      --check REGEX      what must be found (repeatable)

Tolerances:
      --rtol X   relative tolerance (default: 0.001)
      --scale X  scale

Global options:
  -q, --quiet  warnings and errors only

Exit codes:
  0         success
  1         the sample failed
  2         usage or configuration error
  8         local I/O: disk full, permission, unsafe path
  70        internal error (a bug)
  130, 143  interrupted by SIGINT / SIGTERM, after cleaning up

See also:
  gdnctl sample list, docs/samples.md
)page");
}

TEST_CASE("colour adds bold headings and nothing else") {
    std::string page = sample_page(100, true);
    CHECK(page.find("\x1b[1mUsage:\x1b[0m") != std::string::npos);
    for (const std::string_view code : {"\x1b[1m", "\x1b[0m"}) {
        for (std::size_t at = 0; (at = page.find(code, at)) != std::string::npos;) page.erase(at, code.size());
    }
    CHECK(page == sample_page(100));
}

TEST_CASE("the overview lists visible commands under their headings, in the order of the table") {
    Args globals;
    GlobalFlags flags;
    describe_globals(globals, flags);
    const std::string page = overview(test::k_sample_table, globals, {100, false});
    const auto samples = page.find("\nSamples:\n  sample run "), logs = page.find("\nLogs:\n  lint-log ");
    CHECK(samples != std::string::npos);
    CHECK(logs != std::string::npos);
    CHECK(samples < logs);
    CHECK(page.find("__hidden") == std::string::npos);
}

TEST_CASE("exit codes: 0, 2, 8, 70 and 130, 143 are always there, in order, and a command's own words win") {
    Args args;
    args.exit_code(6, "no such job");
    args.exit_code(0, "the job succeeded");
    const auto rows = exit_codes(args);
    std::string codes;
    for (const ExitRow& row : rows) codes += row.codes + ';';
    REQUIRE(codes == "0;2;6;8;70;130, 143;");
    CHECK(rows[0].text == "the job succeeded");
    CHECK(rows[2].text == "no such job");
    CHECK(rows[3].text == "local I/O: disk full, permission, unsafe path");
    CHECK(rows[5].text == "interrupted by SIGINT / SIGTERM, after cleaning up");
    args.exit_code(130, "interrupted; the job goes on");
    args.exit_code(8, "no folder");
    REQUIRE(exit_codes(args).size() == 6);
    CHECK(exit_codes(args)[3].text == "no folder");
    CHECK(exit_codes(args)[5].codes == "130, 143");
    CHECK(exit_codes(args)[5].text == "interrupted; the job goes on");
}

TEST_CASE("the page of a group has its purpose, an example, the codes of its commands and where to read on") {
    static constexpr Group k_groups[] = {
        {"", "samples of everything", "gdnctl sample run x", "one", {"lint-log", "docs/samples.md"}},
        {"sample", "runs and lists samples", "gdnctl sample list", "all of them", {"lint-log", "docs/samples.md"}}};
    const Table table{test::k_sample_table, k_groups};
    const std::string page = group_overview(table, "sample", {80, false});
    CHECK(page.starts_with("gdnctl sample: runs and lists samples\n\nUsage:\n"));
    CHECK(page.find("\nExamples:\n  gdnctl sample list\n      all of them\n") != std::string::npos);
    CHECK(page.find("\n  1         the check failed\n") != std::string::npos);
    CHECK(page.find("\n  130, 143  ") != std::string::npos);
    CHECK(page.find("\nSee also:\n  gdnctl lint-log, docs/samples.md\n") != std::string::npos);
    CHECK(group_overview(table, "log", {80, false}).find("\n  1  ") == std::string::npos);
    const std::string all = overview(table, Args(), {80, false});
    CHECK(all.starts_with("gdnctl: samples of everything\n\nUsage:\n"));
    CHECK(all.find("\nExamples:\n  gdnctl sample run x\n      one\n") != std::string::npos);
    CHECK(all.find("\n  1         the check failed\n") != std::string::npos);
    CHECK(all.find("\nSee also:\n  gdnctl lint-log, docs/samples.md\n") != std::string::npos);
}

TEST_CASE("a synopsis shows what must be given") {
    std::string token;
    std::vector<std::string> paths, command;
    Args args;
    args.option(token, {.names = "-t,--token", .value = "T", .help = "the token", .required = true});
    args.positional(paths, {.name = "PATH", .help = "where"});
    args.trailing(command, true, {.name = "COMMAND", .help = "what"});
    CHECK(synopsis("x", args) == "gdnctl x --token T [OPTIONS] [PATH...] -- COMMAND...");
}

TEST_CASE("text is wrapped between words, by code points, and long words stand alone") {
    CHECK(wrap("aa bb cc", 0, 5) == "aa bb\ncc\n");
    CHECK(wrap("aa bb cc", 2, 5) == "  aa\n  bb\n  cc\n");
    CHECK(wrap("a verylongword b", 0, 5) == "a\nverylongword\nb\n");
    CHECK(wrap("\xc3\xa4\xc3\xa4 \xc3\xb6\xc3\xb6", 0, 5) == "\xc3\xa4\xc3\xa4 \xc3\xb6\xc3\xb6\n");
    CHECK(wrap("", 2, 5) == "  \n");
    CHECK(wrap("  a \n b ", 0, 80) == "a b\n");
}

TEST_CASE("the right column moves down when the left one reaches into it") {
    CHECK(two_columns("ab", "cd", 6, 80) == "  ab  cd\n");
    CHECK(two_columns("abcdef", "gh", 6, 80) == "  abcdef\n      gh\n");
    CHECK(two_columns("ab", "", 6, 80) == "  ab\n");
    CHECK(two_columns("ab", "cc dd ee", 6, 11) == "  ab  cc dd\n      ee\n");
}

}  // namespace gdnctl::cli
