// gdnctl log append
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/args.h"
#include "platform/context.h"
#include "runlog/parse/log.h"

namespace gdnctl::commands::log_append {

struct Options {
    std::optional<std::string> log_file;
    std::vector<std::string> from_job;
    std::optional<std::string> record;
    std::optional<std::string> title;
    std::optional<std::string> goal;
    std::optional<std::string> hypothesis;
    std::vector<std::string> changes;
    std::optional<std::string> commit;
    std::optional<std::string> starting_commit;
    std::optional<std::string> decision;
    std::optional<std::string> outcome;
    std::optional<std::string> change_class;
    std::optional<std::string> slot;
    std::vector<std::string> metrics;
    runlog::Comparison comparison = runlog::Comparison::unknown;
    std::optional<std::string> assessment;
    std::vector<std::string> interpretation;
    std::optional<std::string> next;
};

// The words that --outcome takes.
std::span<const std::string_view> outcome_words();

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::log_append
