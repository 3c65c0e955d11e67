// A command with every kind of option, for the tests of parsing, help and what is generated.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"

namespace gdnctl::test {

enum class Format { text, json, github };

inline constexpr std::array k_formats = {
    cli::Choice<Format>{"text", Format::text, "for people"},
    cli::Choice<Format>{"json", Format::json, "for programs"},
    cli::Choice<Format>{"github", Format::github, "annotations"},
};

enum class Suite { kernels, layer, both };

inline constexpr std::array k_suites = {
    cli::Choice<Suite>{"kernels", Suite::kernels},
    cli::Choice<Suite>{"layer", Suite::layer},
    cli::Choice<Suite>{"both", Suite::both},
};

struct SampleOptions {
    std::string model = "small";
    std::optional<std::string> name;
    std::int64_t iterations = 3;
    std::optional<std::int64_t> limit;
    double rtol = 0.001;
    std::optional<double> scale;
    bool follow = false;
    bool wait = true;
    Format format = Format::text;
    Suite suite = Suite::both;
    std::vector<std::string> checks;
    std::string path;
    std::optional<std::string> second;
    std::vector<std::string> command;
};

inline void describe_sample(cli::Args& args, SampleOptions& o) {
    args.about(
        "Runs the sample with everything that an option can be, so that a page holds a paragraph which is long enough "
        "to be wrapped at eighty and at a hundred columns.");
    args.example("gdnctl sample run data.npz --iterations 5", "five times");
    args.example("gdnctl sample run data.npz --check '[ab]' -- ls -l");
    args.positional(o.path, {.name = "PATH", .help = "what to read", .complete = cli::Complete::file});
    args.positional(o.second, {.name = "SECOND", .help = "what to compare with"});
    args.trailing(o.command, false, {.name = "COMMAND", .help = "what to run"});
    args.option(o.model, {.names = "-m,--model", .value = "NAME", .help = "which model", .env = "SAMPLE_MODEL"});
    args.option(o.name, {.names = "--name", .value = "NAME", .help = "what to call it"});
    args.option(o.iterations, {.names = "--iterations", .value = "N", .help = "how often"});
    args.option(o.limit, {.names = "--limit", .value = "N", .help = "at most so many", .env = "SAMPLE_LIMIT"});
    args.option(o.rtol, {.names = "--rtol", .value = "X", .help = "relative tolerance", .group = "Tolerances"});
    args.option(o.scale, {.names = "--scale", .value = "X", .help = "scale", .group = "Tolerances"});
    args.flag(o.follow, {.names = "-f,--follow", .help = "go on until the end of the job, and print what it prints"});
    args.flag(o.wait, {.names = "--wait|--no-wait", .help = "wait for the end"});
    args.option<Format>(o.format, k_formats, {.names = "--format", .value = "FORMAT", .help = "how to print"});
    args.option<Suite>(o.suite, k_suites, {.names = "--suite", .value = "SUITE", .help = "which tests"});
    args.option(o.checks, {.names = "--check", .value = "REGEX", .help = "what must be found"});
    args.check([&o]() -> Status {
        if (o.limit && *o.limit < 0 && o.follow) return fail(ErrorKind::usage, "--follow needs a limit of 0 or more");
        return {};
    });
    args.exit_code(1, "the sample failed");
    args.see_also("sample list");
    args.see_also("docs/samples.md");
}

inline Result<ExitCode> run_sample(const SampleOptions&, Context&) { return ExitCode::ok; }

struct NoOptions {};
inline void describe_nothing(cli::Args& args, NoOptions&) { args.example("gdnctl sample list"); }
inline Result<ExitCode> run_nothing(const NoOptions&, Context&) { return ExitCode::ok; }

inline constexpr cli::Command k_sample_rows[] = {
    cli::make<&describe_sample, &run_sample>("sample run", "Samples", "run the sample", Tier::none),
    cli::make<&describe_nothing, &run_nothing>("sample list", "Samples", "list the samples", Tier::none),
    cli::make<&describe_nothing, &run_nothing>("lint-log", "Logs", "check the running log", Tier::none),
    cli::make<&describe_nothing, &run_nothing>("log append", "Logs", "append an entry", Tier::none),
    cli::make<&describe_nothing, &run_nothing>("log init", "Logs", "start a log", Tier::none),
    cli::make<&describe_nothing, &run_nothing>("__hidden", "", "for scripts", Tier::none),
};
inline constexpr cli::TableRow k_sample_table[] = {k_sample_rows[0], k_sample_rows[1], k_sample_rows[2],
                                                   k_sample_rows[3], k_sample_rows[4], k_sample_rows[5]};

}  // namespace gdnctl::test
