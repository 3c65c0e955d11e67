#include <string>

#include <doctest/doctest.h>

#include "runlog/parse/block.h"
#include "runlog/parse/experiment.h"
#include "unit/runlog/lint_fixture.h"

using namespace gdnctl;
using namespace gdnctl::runlog;
using namespace gdnctl::runlog::test;

TEST_CASE("runlog metric spellings: L401 and its fix") {
    const Linted l(
        entry("abcdef1",
              "  - `while: 8.886552 ms -> 8.978471 ms` (+1.03%)\n  * **Conditional:** 1 ms \xE2\x86\x92 2 ms\n"
              "  - Kernel budget: about 9 ms\n"));
    CHECK(l.count("L401") == 3);
    const std::string fixed = apply_fixes(l.text, l.report.findings, false).bytes;
    CHECK(fixed.find("  - while: `8.886552 ms -> 8.978471 ms` (+1.03%)\n  - Conditional: `1 ms -> 2 ms`\n") !=
          std::string::npos);
    CHECK(Linted(fixed).count("L401") == 1);
    CHECK(l.find("L401").severity == Severity::warning);
    CHECK(l.report.count(Severity::warning) >= 3);
}

TEST_CASE("runlog 10.9 and 10.14 arithmetic that holds, and L403 where it does not") {
    const char* const stated =
        "  - Kernel budget: `33.789 ms -> 29.078 ms`\n  - Control budget: `10.176 ms -> 10.095 ms`\n"
        "  - Train-path budget: `43.965 ms -> 39.173 ms`\n  - Step duration: `167.098 ms -> 168.073 ms`\n"
        "  - Remainder budget: `123.133 ms -> 128.900 ms`\n";
    const std::string head = "### Iteration 1\n- Hotspots observed (control -> hybrid):\n";
    CHECK(Linted(head + stated).count("L403") == 0);
    const Linted control(
        head +
        "  - Forward closed-call: `4.301220 ms -> 20.663477 ms`\n  - Backward closed-call: `4.256000 ms -> 13.128558 "
        "ms`\n"
        "  - Kernel budget: `8.557220 ms -> 33.792035 ms`\n  - Control budget: `0.000 ms -> 8.890858 ms`\n"
        "  - Train-path budget: `8.557220 ms -> 42.682894 ms`\n  - Upper-bound gap: `0.000 ms -> 110.535 ms`\n"
        "  - Gap explained by train-path: `0% -> 38.61%`\n");
    CHECK(control.count("L403") == 0);
    const Linted wrong(head +
                       "  - Kernel budget: `1.000 ms -> 29.078 ms`\n  - Control budget: `1.000 ms -> 10.095 ms`\n"
                       "  - Train-path budget: `2.000 ms -> 39.273 ms`\n");
    REQUIRE(wrong.count("L403") == 1);
    CHECK(apply_fixes(wrong.text, wrong.report.findings, false).bytes == wrong.text);
    CHECK(apply_fixes(wrong.text, wrong.report.findings, true).bytes.find("39.173 ms`") != std::string::npos);
    const Linted share(
        head +
        "  - Train-path budget: `1.000 ms -> 42.682894 ms`\n  - Upper-bound gap: `1.000 ms -> 110.535 ms`\n"
        "  - Gap explained by train-path: `100% -> 48.61%`\n");
    CHECK(share.count("L403") == 1);
}

TEST_CASE("runlog 10.14 explained shares are those of their budgets") {
    const auto stated = [](const char* shell, const char* generic) {
        return "### Iteration 93\n- Hotspots observed (control -> hybrid):\n"
               "  - Upper-bound gap: `0.000 ms -> 110.535018 ms`\n"
               "  - Train-path budget: `8.557220 ms -> 42.682894 ms`\n"
               "  - Decoder-layer shell budget: `1.000 ms -> 20.393711 ms`\n"
               "  - Hybrid generic shell delta budget: `0.000 ms -> 20.106320 ms`\n"
               "  - Gap explained by train-path: `0% -> 38.61%`\n"
               "  - Gap explained by decoder-layer shell: `0% -> " +
               std::string(shell) + "`\n  - Gap explained by hybrid generic shell delta: `0% -> " + generic + "`\n";
    };
    const Linted right(stated("18.45%", "18.19%"));
    CHECK(right.count("L403") == 0);
    // Both are read as the shares that they are, else nothing would have been checked.
    const Linted swapped(stated("18.19%", "18.45%"));
    REQUIRE(swapped.count("L403") == 2);
    CHECK(swapped.find("L403").message.find("but budget / gap gives 18.45%") != std::string::npos);
    const Linted one(stated("18.45%", "18.45%"));
    REQUIRE(one.count("L403") == 1);
    CHECK(one.find("L403").message.find("gap_explained_by_hybrid_generic_shell_delta (after) is 18.45%") !=
          std::string::npos);
}

TEST_CASE("runlog 10.14 L406 holds for both arms") {
    const std::string head = "### Iteration 1\n- Throughput deltas (attention-only control -> hybrid):\n";
    CHECK(Linted(head + "  - throughput/mfu: `21.3070 -> 6.0369`\n  - throughput/duration: `0.05726 -> 0.16779`\n")
              .count("L406") == 0);
    CHECK(
        Linted(head +
               "  - throughput/tokens_per_second: `572267 -> 195292`\n  - throughput/duration: `0.05726 -> 0.16779`\n")
            .count("L406") == 0);
    CHECK(Linted(head + "  - throughput/mfu: `21.3070 -> 6.1369`\n  - throughput/duration: `0.05726 -> 0.16779`\n")
              .count("L406") == 1);
    CHECK(Linted("### Iteration 1\n- throughput/tokens_per_second: 190000\n- throughput/duration: 0.16779\n")
              .count("L406") == 1);
}

TEST_CASE("runlog 10.16 stated percentages") {
    const auto with = [](const char* percent) {
        return Linted("### Iteration 1\n- Throughput (vs champion):\n  - `throughput/mfu`: `4.1533 -> 4.2092` (`" +
                      std::string(percent) + "`)\n");
    };
    CHECK(with("+1.34%").count("L404") == 0);
    const Linted wrong = with("+2.34%");
    REQUIRE(wrong.count("L404") == 1);
    CHECK(apply_fixes(wrong.text, wrong.report.findings, false).bytes.find("(`+1.35%`)") != std::string::npos);
}

TEST_CASE("runlog numbers: L402, L405, L407, L408, L409, L410, L411, L412") {
    const std::string head = "### Iteration 2\n- Hotspots observed (champion -> candidate):\n";
    CHECK(Linted(head + "  - while: `1 ms -> 2 ms`\n  - while: `1 ms -> 3 ms`\n").count("L402") == 1);
    CHECK(Linted(head + "  - while: `1.0 ms -> 2.0 ms`\n  - while: `1.02 ms -> 2.04 ms`\n").count("L402") == 0);
    CHECK(Linted(head + "  - Step duration: `167 ms -> 160 ms`\n  - throughput/duration: `167 -> 160`\n")
              .find("L405")
              .message.find("wrong unit") != std::string::npos);
    CHECK(Linted(head + "  - Step duration: `167 ms -> 160 ms`\n  - throughput/duration: `0.167 -> 0.160`\n")
              .count("L405") == 0);
    std::vector<RecordFacts> records(2);
    records[0].number = 1;
    records[0].champion = true;
    records[0].metrics = {{"step_duration_ms", 170.0, 160.0}};
    records[1].number = 2;
    CHECK(Linted(head + "  - Step duration: `167 ms -> 160 ms`\n", {}, nullptr, &records).count("L407") == 1);
    records[1].measured_anew = true;
    CHECK(Linted(head + "  - Step duration: `167 ms -> 160 ms`\n", {}, nullptr, &records).count("L407") == 0);
    CHECK(Linted(head, {}, nullptr, &records).count("L412") == 0);
    records[1].gain_fault = "the record says 2x faster, but the runs give 3x faster";
    CHECK(Linted(head, {}, nullptr, &records).find("L412").message.find("but the runs give 3x faster") !=
          std::string::npos);
    records[1] = {};
    records[1].number = 2;
    records[0].fingerprint = "other";
    CHECK(Linted(head + "  - Step duration: `167 ms -> 160 ms`\n", {}, nullptr, &records).count("L407") == 0);
    CHECK(Linted("### Iteration 2\n- Hotspots observed:\n  - while: `1 ms -> 2 ms`\n").count("L408") == 1);
    CHECK(Linted("### Iteration 2\n- Control:\n  - while: `1 ms`\n- Hybrid:\n  - while: `2 ms`\n").count("L408") == 1);
    CHECK(Linted(head + "  - while: `3 ms -> 2 ms`\n").count("L409") == 1);
    CHECK(Linted(head + "  - while: `3 ms -> 2 ms`\n  - Step duration: `9 ms -> 8 ms`\n").count("L409") == 0);
    CHECK(Linted(head + "  - Points: 3\n").count("L410") == 1);
    CHECK(Linted(head + "  - Metric source: wandb-summary\n").count("L410") == 1);
    CHECK(Linted(head + "  - Metric source: wandb-history-median[10:18]\n  - Points: 9\n").count("L410") == 0);
    CHECK(Linted(head + "  - Forward closed-call: `40 ms -> 20 ms`\n  - Backward closed-call: `26 ms -> 13 ms`\n  - "
                        "All-gather: `4 ms -> 2 ms`\n")
              .count("L411") == 1);
    CHECK(Linted(head + "  - Forward closed-call: `40 ms -> 20 ms`\n  - Backward closed-call: `26 ms -> 14 ms`\n  - "
                        "All-gather: `4 ms -> 2 ms`\n")
              .count("L411") == 0);
}

TEST_CASE("runlog 10.15 evidence: L501-L507") {
    const auto with_result = [](const std::string& result) {
        std::string text = entry("abcdef1");
        text.replace(text.find("87 passed, 2 skipped"), 20, result);
        return text;
    };
    CHECK(Linted(with_result("49 passed, 40 skipped"), marin()).count("L502") == 1);
    CHECK(Linted(with_result("88 passed, 3 skipped"), marin()).count("L502") == 1);
    CHECK(Linted(with_result("88 passed, 2 skipped in 231.29s (0:03:51)"), marin()).count("L502") == 0);
    CHECK(Linted(with_result("49 passed, 40 skipped")).count("L502") == 0);  // no expectations: a verdict is enough
    CHECK(Linted(with_result("fine"), marin()).count("L501") == 1);
    CHECK(Linted(with_result("fine")).count("L501") == 1);
    CHECK(Linted(with_result("verdict: OK")).count("L501") == 0);
    CHECK(Linted(with_result("1 failed, 87 passed, 2 skipped"), marin()).count("L503") == 1);
    CHECK(Linted(entry("abcdef1", "- Profile runs:\n  - Ray job: ray-run-me-120000\n")).count("L504") == 1);
    CHECK(Linted(entry("abcdef1", "  - Ray job: `ray-run-me-gdn-20260310-165307`\n")).count("L504") == 0);
    CHECK(Linted(entry("abcdef1", "  - W&B run: https://wandb.ai/me/p/runs/\n  - Profiler artifact: run-x\n"))
              .count("L504") == 2);
    CHECK(Linted("### Iteration 1\n- Commit: abcdef1\n").count("L505") == 1);
    CHECK(Linted(entry("abcdef1", "```\nNo accelerator found\n```\n")).count("L506") == 1);
    CHECK(Linted(entry("abcdef1", "- CE backend selected: requested=auto, effective=xla\n")).count("L507") == 1);
    CHECK(Linted(entry("abcdef1", "- Chunk: 96 run as 128\n")).count("L507") == 1);
}

TEST_CASE("runlog hygiene: L601, L602, L603, L604, L607") {
    const Linted home(
        entry("abcdef1", "- Trace: /home/someone/runs/x, `/Users/me/t`, C:\\Users\\me\\t, https://h/home/x/y\n"));
    CHECK(home.count("L601") == 3);
    CHECK(apply_fixes(home.text, home.report.findings, false).bytes.find("~/runs/x, `~/t`, ~\\t, https://h/home/x/y") !=
          std::string::npos);
    const Linted url(entry("abcdef1", "- Job URL: `file:///home/bob/a`, file:///srv/home/x, ~/home/y\n"));
    REQUIRE(url.count("L601") == 1);
    CHECK(apply_fixes(url.text, url.report.findings, false).bytes.find("`~/a`, file:///srv/home/x") !=
          std::string::npos);
    const std::string token = "hf_" + std::string(34, 'Q');
    const Linted secret(entry("abcdef1", "- Note: " + token + "\n"));
    REQUIRE(secret.count("L602") == 1);
    CHECK(secret.report.failed());
    CHECK(secret.find("L602").message.find(token.substr(0, 5)) == std::string::npos);
    CHECK(apply_fixes(secret.text, secret.report.findings, true).bytes.find("hf_Q") == std::string::npos);
    CHECK(Linted(entry("abcdef1", std::string(9000, 'x') + "\n")).count("L603") == 1);
    CHECK(Linted(entry("abcdef1", "- a 167.744487\n- b 167.744487\n- c 167.744487\n")).count("L603") == 1);
    const Linted blanks("### Iteration 1  \r\n- Commit: abcdef1\n- Date: 2026-02-18 \r\n");
    CHECK(blanks.count("L604") == 2);
    CHECK(apply_fixes(blanks.text, blanks.report.findings, false).bytes ==
          "### Iteration 1\r\n- Commit: abcdef1\r\n- Date: 2026-02-18\r\n");
    const Linted invalid("### Iteration 1\n- Note: a\xFF z\n");
    CHECK(invalid.find("L607").line == 2);
    CHECK(invalid.find("L607").column == 10);
    const Linted hidden(entry("abcdef1", "- Note: \u202Etxt.exe\n"));
    CHECK(hidden.find("L607").message == "the character \\u202e is invisible and can hide or reorder text");
    CHECK(Linted(entry("abcdef1", "- Note: \x1B[2J\n")).count("L607") == 1);
    CHECK(Linted(entry("abcdef1", "- Note: \u03B2 -> \u2014 \u2764\uFE0F\r\n")).count("L607") == 0);
}

TEST_CASE("runlog generated parts and records: L605, L606, L701") {
    const std::string body = "### Iteration 1 - x\n- Step duration: `2.000 ms -> 1.000 ms`\n";
    const auto block = [&](const std::string& content) {
        return "<!-- gdnctl:begin 20260310T165307Z-1 sha256=" + block_digest(body) + " -->\n" + content +
               "<!-- gdnctl:end -->\n";
    };
    CHECK(Linted(block(body)).count("L605") == 0);
    CHECK(Linted(block(body + "edited\n")).count("L605") == 1);
    const std::vector<RecordFacts> none;  // the records file is empty, or gone: a generated entry came from somewhere
    CHECK(Linted(block(body), {}, nullptr, &none).count("L605") == 1);
    CHECK(Linted(body, {}, nullptr, &none).count("L605") == 1);
    std::vector<RecordFacts> records(1);
    records[0].number = 2;
    CHECK(Linted(body, {}, nullptr, &records).count("L605") == 2);
    records[0].number = 1;
    records[0].metrics = {{"step_duration_ms", 2.0, 1.5}};
    CHECK(Linted(body, {}, nullptr, &records).count("L605") == 1);
    records[0].metrics[0].after = 1.0004;
    CHECK(Linted(body, {}, nullptr, &records).count("L605") == 0);
    const std::string report = "#### Trace report\ntext\n";
    const std::string marker = "<!-- gdnctl.trace/1 sha256:" + block_digest(report) + " -->\n";
    CHECK(Linted("### Iteration 1\n\n" + report + marker).count("L606") == 0);
    CHECK(Linted("### Iteration 1\n\n" + report + "x\n" + marker).count("L606") == 1);
    std::vector<RecordFacts> ideas(3);
    for (std::size_t i = 0; i < 3; ++i) {
        ideas[i].number = static_cast<std::int64_t>(i) + 1;
        ideas[i].move = "fuse";
        ideas[i].outcome = "rejected";
        ideas[i].files = {"a.py"};
    }
    CHECK(Linted("### Iteration 3\n", {}, nullptr, &ideas).count("L701") == 1);
    CHECK(Linted("### Iteration 3\n- New argument: the tile fits now\n", {}, nullptr, &ideas).count("L701") == 0);
}

TEST_CASE("runlog a secret is quoted by no message, fix or diff") {
    const std::string token = "hf_" + std::string(34, 'Q');
    const Linted l("### Iteration 1 - " + token + "\n### Iteration 1 - " + token + "\n- Decision: " + token +
                       "\n- `while: 1 ms -> 2 ms` (" + token + ")\n- Date: `2026-02-18`\n",
                   all_entries());
    for (const char* rule : {"L003", "L104", "L401", "L602"}) CHECK_MESSAGE(l.count(rule) >= 1, rule);
    const LintOutput output{"log.md", "all", "1", 1};
    const LintText text = lint_as_text(l.report, "log.md");
    const std::string fixed = apply_fixes(l.text, l.report.findings, true).bytes;
    const std::string diff = unified_diff(l.text, fixed, "log.md");
    for (const std::string& shown : {text.blocks, text.findings, text.verdict, lint_as_json(l.report, output),
                                     lint_as_sarif(l.report, l.document, output), lint_as_github(l.report, "log.md"),
                                     lint_as_step_summary(l.report, "log.md"), diff}) {
        CAPTURE(shown);
        CHECK(shown.find("hf_QQ") == std::string::npos);
    }
    CHECK(diff.find("-- Decision: hf_Q…\n") != std::string::npos);
    CHECK(diff.find("+- Decision: ***\n") != std::string::npos);
    CHECK(Linted(fixed).count("L106") == 0);  // masked is not empty
}

TEST_CASE("runlog options: severities, strict, suggestions") {
    LintOptions options;
    REQUIRE(add_rule_option(options, "L004=error"));
    CHECK(Linted("", options).report.failed());
    REQUIRE(add_rule_option(options, " no-entries = off "));
    CHECK(Linted("", options).report.findings.empty());
    CHECK(add_rule_option(options, "L50=off").error().hint.find("did you mean") != std::string::npos);
    CHECK(add_rule_option(options, "L501=warn").error().hint.find("warning") != std::string::npos);
    CHECK_FALSE(add_rule_option(options, "L501"));
    CHECK(add_rules_file(options, "a=b\n", "r").error().text().find("r:1") != std::string::npos);
    LintOptions strict;
    strict.strict = true;
    REQUIRE(add_rule_option(strict, "L102=warning"));
    const Linted l("### Iteration 1\n- Commit: abcdef1\n", strict);
    CHECK(l.find("L102").severity == Severity::warning);  // said so by name
    CHECK(l.find("L505").severity == Severity::error);
}

TEST_CASE("runlog since: only entries that are new or changed") {
    const std::string before = entry("(pending)") + entry("(pending)", "", "2");
    const auto base = parse_document(before);
    REQUIRE(base);
    const Linted l(entry("(pending)") + entry("(pending)", "- Assessment: x\n", "2") + entry("(pending)", "", "3"), {},
                   nullptr, nullptr, &*base);
    REQUIRE(l.count("L001") == 2);
    CHECK(l.find("L001").iteration == "2");
}

TEST_CASE("runlog 10.18 fixes are idempotent and keep untouched bytes") {
    const std::string text =
        "\xEF\xBB\xBF# L \r\n### Iteration 1 \xE2\x80\x94 t\r\n- Date: `2026-02-18`  \r\n- x \xFF\r\n- `while: 1 ms -> "
        "2 ms`";
    std::string bytes = text;
    for (int round = 0; round < 3; ++round) {
        const Linted l(bytes, all_entries());
        bytes = apply_fixes(bytes, l.report.findings, false).bytes;
    }
    CHECK(bytes ==
          "\xEF\xBB\xBF# L\r\n### Iteration 1 - t\r\n- Date: 2026-02-18\r\n- x \xFF\r\n- while: `1 ms -> 2 ms`");
    const Linted again(bytes, all_entries());
    CHECK(apply_fixes(bytes, again.report.findings, false).fixed == 0);
}

TEST_CASE("runlog unified diff") {
    CHECK(unified_diff("a\n", "a\n", "l.md").empty());
    CHECK(unified_diff("1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nfive\n6\n7\n8\n9\n", "l.md") ==
          "--- a/l.md\n+++ b/l.md\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n");
    CHECK(unified_diff("a\nb", "a\nx\nb", "l.md") ==
          "--- a/l.md\n+++ b/l.md\n@@ -1,2 +1,3 @@\n a\n+x\n b\n\\ No newline at end of file\n");
}

TEST_CASE("runlog 10.20 experiment template") {
    const std::string full =
        "### Goal\ng\n\n### Hypothesis\nh\n\n### Action\na `run-7.json`\n\n### Outcome\nbest is 22.4212\n\n### Next "
        "Step\nn\n\n";
    const std::string text =
        "# Experiment Log\n\n## 2026-02-13 - First\n\n### Goal\ng\n\n### Experiment 1 - a\n- Hypothesis: x\n"
        "- Files:\n  - `f`\n\n### Experiment 2 - b\n\n### Breakthrough\nb\n\n## 2026-02-13 - Second\n\n" +
        full + "## Ongoing Template\n\n```markdown\n## 2026-02-14 - <experiment name>\n### Goal\n```\n";
    const auto document = parse_document(text);
    REQUIRE(document);
    CHECK(document->kind == Template::experiment);
    const auto entries = parse_experiments(*document);
    REQUIRE(entries.size() == 2);
    CHECK(entries[0].numbered.size() == 2);
    CHECK(entries[0].section("Breakthrough / Insight") != nullptr);
    CHECK(entries[1].name == "Second");
    CHECK(entries[1].section("outcome")->body == "best is 22.4212\n\n");

    const Linted l(text, all_entries());
    CHECK(l.report.entries == 2);
    CHECK(l.count("L102") == 2);  // no next step in the first, no reasoning (a note) in the second
    CHECK(l.report.count(Severity::warning) == 1);
    const auto with = [&](const std::string& more) {
        return Linted("# L\n## 2026-02-13 - A\n" + full + more, all_entries());
    };
    CHECK(with("## 2026-02-12 - B\n" + full).count("L302") == 1);
    CHECK(with("## 2026-02-31 - B\n" + full).count("L301") == 1);
    CHECK(with("### Experiment 2 - x\n### Experiment 2 - y\n### Experiment 1 - z\n").count("L801") == 2);
    CHECK(with("## 2026-02-14 - B\n### Outcome\nspeedup 28.5238\n").count("L802") == 1);
    CHECK(with("## 2026-02-14 - B\n### Outcome\nno improvement\n").count("L803") == 1);
    CHECK(with("## 2026-02-14 - <experiment name>\n### Goal\n<what>\n").count("L106") == 2);
    CHECK(with("## 2026-02-14 - B\n### Goal\n/home/me/x \n").count("L601") == 1);
}

TEST_CASE("experiment template: a heading of three # without a space, underlined, is no part of an entry") {
    for (const std::string part : {"###x", "###Experiment 1", "####y"}) {
        const std::string text = "# L\n\n## 2026-02-13 - A\n\n### Goal\ng\n\n" + part + "\n===\n\nmore\n";
        const auto document = parse_document(text);
        REQUIRE(document);
        const auto entries = parse_experiments(*document);
        REQUIRE(entries.size() == 1);
        REQUIRE(entries[0].sections.size() == 1);
        CHECK(entries[0].sections[0].body == "g\n\n");
        CHECK(entries[0].numbered.empty());
    }
}

TEST_CASE("L602: a secret is found wherever it stands, at every scope") {
    const std::string token = "ghp_" + std::string(36, 'a');
    const std::string last = entry("abcdef1", "", "2");
    for (const std::string& before : {"# Log " + token + "\n", entry("abcdef1", "- Note: " + token + "\n"),
                                      "<!-- " + token + " -->\n", "```\n" + token + "\n```\n"}) {
        const Linted found(before + last);
        CHECK_MESSAGE(found.count("L602") == 1, before);
        const Linted changed(before + last, {}, nullptr, nullptr, &found.document);
        CHECK_MESSAGE(changed.count("L602") == 1, before);
    }
    CHECK(Linted(last + "## Appendix\n" + token + "\n").find("L602").iteration.empty());
    CHECK(Linted(entry("abcdef1", "- Note: " + token + "\n") + last).find("L602").iteration == "1");
    CHECK(Linted(token).count("L602") == 1);
}

TEST_CASE("runlog messages: at most five significant digits, with a unit, and never two equal numbers that differ") {
    const auto message = [](const std::string& lines, const char* rule) {
        return Linted(entry("abcdef1", lines)).find(rule).message;
    };
    CHECK(
        message(
            "- Kernel budget: `29.078123 ms`\n- Control budget: `10.095001 ms`\n- Train-path budget: `40.173999 ms`\n",
            "L403") == "train_path_budget_ms (after) is 40.174 ms, but kernel + control gives 39.173 ms");
    CHECK(
        message("- Kernel budget: `129.000000 ms`\n- Control budget: `10.000000 ms`\n- Train-path budget: `139.003000 "
                "ms`\n",
                "L403") == "train_path_budget_ms (after) is 139 ms, but kernel + control gives 0.003 ms less");
    CHECK(message("- throughput/duration: 0.1234567 s\n", "L405") ==
          "throughput/duration is 0.12346 s, but the step duration is 160 ms");
    std::vector<RecordFacts> records(1);
    records[0].number = 1;
    records[0].metrics = {{"throughput/tokens_per_second", {}, 195287.805612}, {"step_duration_ms", {}, 160.00001}};
    const Linted recorded(entry("abcdef1", "- throughput/tokens_per_second: 194000.5\n"), {}, nullptr, &records);
    std::string all;
    for (const Finding& finding : recorded.report.findings) all += finding.message + "\n";
    CHECK(all.find("throughput/tokens_per_second is 195290 tokens/s in the record\n") != std::string::npos);
}
