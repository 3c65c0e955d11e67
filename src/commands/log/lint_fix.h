// What `lint-log --fix` and `--diff` do to a log.
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

// The log after as many rounds of fixing as it takes. Error: bad_input.
Result<FixedLog> fixed_log(std::string bytes, const Options& options, runlog::LintInput input,
                           const runlog::LintOptions& lint_options);

// Replaces the log, unless it is no longer what was checked. Errors: conflict, local_io, interrupted.
Status replace_log(const std::filesystem::path& path, std::string_view shown, std::string_view before,
                   std::string_view after, const Context& context);

}  // namespace gdnctl::commands::lint_log
