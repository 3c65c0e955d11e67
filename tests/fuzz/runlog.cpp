// Any bytes as a running log: parse, lint, fix until nothing is left to fix, print in every format.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "fuzz/fuzz.h"
#include "runlog/lint/lint.h"
#include "runlog/parse/block.h"

using namespace gdnctl::runlog;

namespace {

LintReport lint_text(const Document& document) {
    LintInput input;
    input.document = &document;
    LintOptions options;
    options.all_entries = true;
    options.evidence = {87, 2};
    return lint(input, options);
}

}  // namespace

FUZZ(runlog) {
    std::string bytes(reinterpret_cast<const char*>(data), size);
    const auto document = parse_document(bytes);
    if (!document) return 0;
    const LintReport report = lint_text(*document);
    const LintOutput output{"log.md", "all", "0", 0};
    (void)lint_as_text(report, "log.md");
    (void)lint_as_json(report, output);
    (void)lint_as_sarif(report, *document, output);
    (void)lint_as_github(report, "log.md");
    (void)lint_as_step_summary(report, "log.md");
    (void)find_blocks(bytes);
    const FixResult fixed = apply_fixes(bytes, report.findings, true);
    // Without a fix no byte may differ.
    if (fixed.fixed == 0 && fixed.bytes != bytes) std::abort();
    if (bytes.size() < 4096) (void)unified_diff(bytes, fixed.bytes, "log.md");
    return 0;
}
