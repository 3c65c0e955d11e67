#include "commands/log/lint_fix.h"

#include <fmt/format.h>

#include "commands/log/common.h"
#include "platform/fs.h"

namespace gdnctl::commands::lint_log {

Result<FixedLog> fixed_log(std::string bytes, const Options& options, runlog::LintInput input,
                           const runlog::LintOptions& lint_options) {
    FixedLog fixed{std::move(bytes), 0};
    constexpr int k_rounds = 500;  // one fix may have to wait for another, and each round has a limit
    for (int round = 0; round < k_rounds; ++round) {
        GDNCTL_TRY_ASSIGN(const runlog::Document document, runlog::parse_document(fixed.bytes, options.log_template));
        input.document = &document;
        const runlog::LintReport report = runlog::lint(input, lint_options);
        runlog::FixResult applied = runlog::apply_fixes(fixed.bytes, report.findings, options.fix_unsafe);
        if (applied.fixed == 0 || applied.bytes == fixed.bytes) break;
        fixed.count += applied.fixed;
        fixed.bytes = std::move(applied.bytes);
    }
    return fixed;
}

Status replace_log(const std::filesystem::path& path, std::string_view shown, std::string_view before,
                   std::string_view after, const Context& context) {
    // The lock of all writers: otherwise an entry that `log append` adds between the check and the replacement would be
    // lost.
    GDNCTL_TRY_ASSIGN(const auto lock, FileLock::acquire_folder(path.parent_path(), writer_wait(context)));
    GDNCTL_TRY_ASSIGN(const std::string now, read_file(path));
    if (now != before) {
        return fail(ErrorKind::conflict, fmt::format("{} changed while it was checked", shown),
                    "run the command again");
    }
    return atomic_replace(path, after);
}

}  // namespace gdnctl::commands::lint_log
