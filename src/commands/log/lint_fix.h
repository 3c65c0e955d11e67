// Applies the fixes of `lint-log --fix` and `--diff` to a log.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "commands/log/lint_log.h"
#include "runlog/lint/lint.h"

namespace gdnctl::commands::lint_log {

struct FixedLog {
    std::string bytes;
    std::size_t count = 0;  // findings
};

// The log after repeated fixing until nothing changes. Error: bad_input.
Result<FixedLog> fixed_log(std::string bytes, const Options& options, runlog::LintInput input,
                           const runlog::LintOptions& lint_options);

// Replaces the log unless it has changed since it was checked. Errors: conflict, local_io, interrupted.
Status replace_log(const std::filesystem::path& path, std::string_view shown, std::string_view before,
                   std::string_view after, const Context& context);

}  // namespace gdnctl::commands::lint_log
