// gdnctl sweep report
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/args.h"
#include "platform/context.h"
#include "sweep/report.h"

namespace gdnctl::commands::sweep_report {

enum class Format { table, json, patch, markdown, html };

struct Options {
    std::vector<std::string> logs;
    Format format = Format::table;
    bool strict = false;
    std::optional<std::int64_t> shards;
    std::string device_kind, dtype;
    std::optional<std::string> comparisons;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::sweep_report
