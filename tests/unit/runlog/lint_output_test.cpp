#include <fstream>
#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include "core/json.h"
#include "runlog/lint/lint.h"
#include "unit/runlog/lint_fixture.h"

using namespace gdnctl;
using namespace gdnctl::runlog;
using gdnctl::runlog::test::entry;
using gdnctl::runlog::test::Linted;

namespace {

// A log whose findings quote a title with everything that needs escaping.
const std::string k_text =
    "### Iteration 2 - 50%, a: b\n- Date: 2026-02-18\n- Commit: (pending)\n\n### Iteration 2 - 50%, a: b\n- Date: "
    "`2026-02-18`\n- Commit: this commit\n";

struct LintedSample {
    LintedSample() {
        document = *parse_document(k_text);
        LintInput input;
        input.document = &document;
        LintOptions options;
        options.all_entries = true;
        report = lint(input, options);
        report.findings[0].message += "\nsecond line";
    }
    Document document;
    LintReport report;
};

std::string fixture(const char* name) {
    std::ifstream in(std::string(GDNCTL_FIXTURES) + "/runlog/" + name, std::ios::binary);
    std::ostringstream all;
    all << in.rdbuf();
    return all.str();
}

// The file of that name in the fixtures; what came instead is left in the build folder under the same name.
bool is_golden(const char* name, const std::string& actual) {
    std::ofstream(std::string(GDNCTL_TEST_BIN) + "/" + name, std::ios::binary) << actual;
    return fixture(name) == actual;
}

const LintOutput k_output{"logs/a b.md", "all", "0.0.0", 1};

}  // namespace

TEST_CASE("runlog 10.17 github golden file") {
    const LintedSample l;
    CHECK(is_golden("lint.github", lint_as_github(l.report, "logs/a,b: c%.md")));
}

TEST_CASE("runlog 10.17 sarif golden file") {
    const LintedSample l;
    Json sarif = *parse_json(lint_as_sarif(l.report, l.document, k_output), "sarif");
    CHECK(sarif["$schema"] == "https://json.schemastore.org/sarif-2.1.0.json");
    Json& run = sarif["runs"][0];
    CHECK(run["tool"]["driver"]["rules"].size() == lint_rules().size());
    for (const Json& result : run["results"]) {
        const auto index = result["ruleIndex"].get<std::size_t>();
        CHECK(run["tool"]["driver"]["rules"][index]["id"] == result["ruleId"]);
    }
    run["tool"]["driver"].erase("rules");
    CHECK(is_golden("lint.sarif", to_text(sarif, 1) + "\n"));
    LintReport clean;
    const Json empty = *parse_json(lint_as_sarif(clean, l.document, k_output), "sarif");
    CHECK(empty["runs"][0]["results"].is_array());
}

TEST_CASE("lint output: json schema and order") {
    const LintedSample l;
    const std::string text = lint_as_json(l.report, k_output);
    CHECK(text.starts_with(
        R"({"schema":"gdnctl.lint/1","tool":{"name":"gdnctl","version":"0.0.0"},"file":"logs/a b.md","scope":"all","entries":2,"summary":{"error":)"));
    const Json json = *parse_json(text, "json");
    std::uint32_t line = 0;
    for (const Json& finding : json["findings"]) {
        CHECK(finding["line"].get<std::uint32_t>() >= line);
        line = finding["line"].get<std::uint32_t>();
    }
    CHECK(json["findings"][0].contains("fix"));
}

TEST_CASE("runlog text: the blocks that scripts match, in their order") {
    const LintedSample l;
    const LintText text = lint_as_text(l.report, "log.md");
    CHECK(text.blocks ==
          "[gdnctl] unresolved `Commit: (pending)` entries in log.md:\n[gdnctl]   line 3\n"
          "[gdnctl] non-monotonic iteration headings in log.md:\n"
          "[gdnctl]   duplicate iteration number: line 1 `### Iteration 2 - 50%, a: b` -> line 5 `### Iteration 2 - "
          "50%, a: b`\n");
    CHECK(text.findings.find("log.md:7:1: warning L002 ") != std::string::npos);
    CHECK(text.verdict.empty());
    CHECK(lint_as_text(Linted(entry("abcdef1")).report, "log.md").verdict == "[gdnctl] log lint passed: log.md\n");
}

TEST_CASE("runlog text: other findings, then how many there are, nothing checked is not passed") {
    const Linted found(entry("abcdef1  ", "- Date: 2026-02-18\n- while: 1 ms -> 2 ms\n"));
    const LintText text = lint_as_text(found.report, "log.md");
    CHECK(text.blocks.empty());
    CHECK(text.findings.find("log.md:4:") != std::string::npos);
    CHECK(text.counts == "0 errors, 3 warnings, 1 note, 2 fixable\n");
    CHECK(text.verdict == "[gdnctl] log lint passed: log.md\n");
    LintOptions strict;
    strict.strict = true;
    const Linted one(entry("abcdef1", "- Date: 2026-02-18\n"), strict);
    CHECK(lint_as_text(one.report, "log.md").counts == "1 error, 0 warnings, 0 fixable\n");
    CHECK(lint_as_text(one.report, "log.md").verdict.empty());
    CHECK(lint_as_text(one.report, "log.md", {.color = true}).findings.find(": \x1b[31merror\x1b[0m L") !=
          std::string::npos);

    const std::string nothing = "[gdnctl] nothing was checked: no entry in log.md\n";
    CHECK(lint_as_text(Linted("# Log\n").report, "log.md").verdict == nothing);
    const Linted failed("", strict);
    CHECK(failed.report.failed());
    CHECK(lint_as_text(failed.report, "log.md").verdict == nothing);
    const Linted secret("ghp_" + std::string(36, 'a') + "\n", strict);
    CHECK(lint_as_text(secret.report, "log.md").findings.find("L602") != std::string::npos);
    CHECK(lint_as_text(secret.report, "log.md").verdict == nothing);
    const Linted unchanged(entry("abcdef1"), {}, nullptr, nullptr, &found.document);
    CHECK(lint_as_text(unchanged.report, "log.md", {true, "main"}).verdict == "[gdnctl] log lint passed: log.md\n");
    const Linted same(found.text, {}, nullptr, nullptr, &found.document);
    CHECK(lint_as_text(same.report, "log.md", {true, "main"}).verdict ==
          "[gdnctl] nothing was checked: no entry in log.md is new or changed since main\n");
    CHECK(lint_as_text(same.report, "log.md", {false, "main"}).verdict.empty());
}

TEST_CASE("runlog github: ten annotations of a kind, then one line with the rest, the step summary is cut") {
    std::string text = "### Iteration 1\n";
    for (int i = 0; i < 15; ++i) text += "- Commit: (pending)\n";
    const Document document = *parse_document(text);
    LintInput input;
    input.document = &document;
    const LintReport report = lint(input, {});
    const std::string out = lint_as_github(report, "l.md");
    std::size_t errors = 0;
    for (std::size_t at = out.find("::error "); at != std::string::npos; at = out.find("::error ", at + 1)) ++errors;
    CHECK(errors == 10);
    CHECK(out.find("more findings are not annotated: 5 errors, ") != std::string::npos);
    CHECK(out.find("::error ") < out.find("::warning "));
    CHECK(lint_as_step_summary(report, "l.md").find("| 2 | 1 | error | L001 pending-commit |") != std::string::npos);
}
