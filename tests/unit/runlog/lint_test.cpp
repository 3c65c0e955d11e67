#include "runlog/lint/lint.h"

#include <string>

#include <doctest/doctest.h>

#include "runlog/parse/block.h"
#include "runlog/parse/log.h"
#include "unit/runlog/lint_fixture.h"

using namespace gdnctl;
using namespace gdnctl::runlog;
using namespace gdnctl::runlog::test;

TEST_CASE("runlog 10.2 empty file and no entry pass") {
    for (const char* text : {"", "\n", "# Log\n\ntext\n"}) {
        const Linted l(text);
        CHECK_FALSE(l.report.failed());
        CHECK(l.ids() == "L004 ");
    }
}

TEST_CASE("runlog 10.3 pending commits") {
    const Linted last("### Iteration 1\n\n- Commit: (pending)\n");
    CHECK(last.report.failed());
    CHECK(last.find("L001").line == 3);
    CHECK(last.find("L001").column == 1);
    CHECK(last.find("L001").end_column == 20);
    LintOptions allow;
    allow.allow_pending = true;
    CHECK(Linted("### Iteration 1\n\n- Commit: (pending)\n", allow).count("L001") == 0);
    const std::string older = "### Iteration 1\n- Commit: (pending)\n### Iteration 2\n- Commit: abcdef1\n";
    CHECK_FALSE(Linted(older).report.failed());
    CHECK(Linted(older, all_entries()).count("L001") == 1);
    for (const char* line : {"- **Commit:** (pending)", "- Commit: `(pending)`", "* Commit: (pending)",
                             "- commit: (pending)", "- Commit:  (pending).", "  + `Commit: pending`"}) {
        CHECK_MESSAGE(Linted("### Iteration 1\n" + std::string(line) + "\n").count("L001") == 1, line);
    }
    CHECK(Linted("- Commit: (pending)\n", all_entries()).count("L001") == 1);
    CHECK(Linted("- Commit: (pending)\n").count("L001") == 0);
    const Linted behind("- Commit: (pending)\n### Iteration 1\n- Commit: abcdef1\n\n## Notes\n- Commit: (pending)\n");
    REQUIRE(behind.count("L001") == 1);
    CHECK(behind.find("L001").line == 6);
}

TEST_CASE("runlog 10.4 this commit (case 22, defect 3)") {
    const std::string plain = "### Iteration 9\n- Commit: this commit\n";
    const Linted l(plain);
    CHECK_FALSE(l.report.failed());
    CHECK(l.find("L002").severity == Severity::warning);
    LintOptions strict;
    strict.strict = true;
    CHECK(Linted(plain, strict).report.failed());
    strict.allow_this_commit = true;
    CHECK_FALSE(Linted(plain, strict).report.failed());
}

TEST_CASE("runlog this commit in history: note, fix in an older entry, merge, not committed") {
    FakeFacts facts;
    facts.lines["### Iteration 9"] = commit(k_sha);
    const std::string one = "### Iteration 9\n- Commit: this commit\n";
    CHECK(Linted(one, {}, &facts).find("L002").severity == Severity::note);
    const Linted older(one + "### Iteration 10\n- Commit: abcdef1\n", all_entries(), &facts);
    CHECK(older.find("L002").severity == Severity::warning);
    const FixResult fixed = apply_fixes(older.text, older.report.findings, false);
    CHECK(fixed.bytes.find("- Commit: " + std::string(k_sha) + "\n") != std::string::npos);
    facts.lines["### Iteration 9"].is_merge = true;
    CHECK(Linted(one, {}, &facts).find("L002").severity == Severity::warning);
    facts.lines.clear();
    CHECK(Linted(one, {}, &facts).find("L002").message.find("when the entry is committed") != std::string::npos);
    // The trailer of the code commit wins over the commit that added the heading.
    facts.trailers["20260310T165307Z-9"] = commit(k_sha);
    std::vector<RecordFacts> records(1);
    records[0].id = "20260310T165307Z-9";
    records[0].number = 9;
    CHECK(Linted(one, {}, &facts, &records).find("L002").message.find("0123456789ab") != std::string::npos);
}

TEST_CASE("runlog 10.5 sequence") {
    const auto message = [](std::initializer_list<const char*> names, bool allow = false) {
        std::string text;
        for (const char* name : names) text += "### Iteration " + std::string(name) + "\n\n";
        LintOptions options;
        options.allow_non_monotonic = allow;
        const Linted l(text, options);
        return l.count("L003") == 0 ? std::string() : l.find("L003").message;
    };
    CHECK(message({"3", "4", "4"}) ==
          "duplicate iteration number: line 3 `### Iteration 4` -> line 5 `### Iteration 4`");
    CHECK(message({"5", "4"}).starts_with("iteration number decreased: line 1 "));
    CHECK(message({"12", "12a", "12b", "13"}).empty());
    CHECK(message({"12b", "12"}).starts_with("sub-iteration returned to base number"));
    CHECK(message({"12b", "12a"}).starts_with("sub-iteration suffix is not increasing"));
    CHECK(message({"12z", "12aa"}).empty());
    CHECK(message({"12a", "12B"}).empty());
    CHECK(message({"3", "5"}).empty());
    CHECK(message({"5", "4"}, true).empty());
    CHECK(message({"3", "4", "3"}).starts_with("iteration number decreased"));
    CHECK(message({"12a", "13", "14", "12a"}).starts_with("iteration number decreased"));
}

TEST_CASE("lint: a good entry has no findings") {
    FakeFacts facts;
    facts.commits[k_sha] = commit(k_sha);
    facts.ancestors = {k_sha};
    const Linted l("# Log\n" + entry(k_sha), marin(), &facts);
    CHECK(l.ids().empty());
}

TEST_CASE("runlog headings: L101 and its fix, L107") {
    const Linted l("###  Iteration  12 \xE2\x80\x93 Title\n### Iteration <N>\n", all_entries());
    CHECK(l.count("L101") == 2);
    CHECK(apply_fixes(l.text, l.report.findings, false).bytes == "### Iteration 12 - Title\n### Iteration <N>\n");
    const Linted dash("### Iteration 12 \xE2\x80\x93 Title\n");
    CHECK(apply_fixes(dash.text, dash.report.findings, false).bytes == "### Iteration 12 - Title\n");
    const Linted fence("### Iteration 1\n```\nx\n\n### Iteration 2\n- Commit: (pending)\n");
    CHECK(fence.report.entries == 1);
    CHECK(fence.count("L107") == 1);
    CHECK(apply_fixes(fence.text, fence.report.findings, false).bytes ==
          "### Iteration 1\n```\nx\n```\n\n### Iteration 2\n- Commit: (pending)\n");
}

TEST_CASE("runlog fields: L102, L103, L104, L105, L106") {
    CHECK(Linted("### Iteration 1\n- Commit: abcdef1\n").find("L102").severity == Severity::warning);
    CHECK(Linted("### Iteration 1\n- Commit: abcdef1\n").find("L102").message ==
          "missing: Date, Hypothesis, Change summary, Correctness checks, Profile run, Step duration or a throughput "
          "delta");
    CHECK(Linted("### Iteration 1\n- Date: 2026-02-18\n- Commit: none\n- Hypothesis: x\n").find("L102").message ==
          "missing: a reason behind `none`, Next hypothesis");
    CHECK(
        Linted("### Iteration 1\n- Date: 2026-02-18\n- Commit: none (infra)\n- Hypothesis: x\n- Next hypothesis: y\n- "
               "Decision: infra-blocked\n")
            .find("L102")
            .message == "missing: the failing command, the error text");
    CHECK(Linted(entry("the best one we have")).count("L103") == 1);
    const Linted words(entry("abcdef1", "- Change clas: CE backend\n- Change class: CE bakend\n- Decision: promotd\n"));
    CHECK(words.count("L104") == 3);
    const std::string fixed = apply_fixes(words.text, words.report.findings, false).bytes;
    CHECK(fixed.find("- Change class: CE backend\n- Change class: CE backend\n- Decision: promoted\n") !=
          std::string::npos);
    LintOptions more;
    REQUIRE(add_rules_file(more, "# ours\nchange-class = new idea\nL603 = off\n", "rules"));
    CHECK(Linted(entry("abcdef1", "- Change class: new idea\n"), more).count("L104") == 0);
    CHECK(Linted(entry("abcdef1", "- Change class: cut of the entry, smallest first\n")).count("L104") == 0);
    CHECK(Linted(entry("abcdef1", "- Commit: abcdef2\n")).count("L105") == 1);
    CHECK(Linted(entry("abcdef1", "- Assessment: <text>\n- Interpretation:\n")).count("L106") == 2);
}

TEST_CASE("runlog history: what a shallow clone lacks is one finding, and no entry is called wrong for it") {
    FakeFacts facts;
    facts.shallow = true;
    LintOptions all;
    all.all_entries = true;
    const std::string two = entry(k_sha) + entry(std::string(40, 'b'));
    const Linted l(two, all, &facts);
    REQUIRE(l.count("L201") == 1);
    const auto found = std::find_if(l.report.findings.begin(), l.report.findings.end(),
                                    [](const Finding& one) { return one.rule->id == "L201"; });
    CHECK(found->message.find("fetch-depth: 0") != std::string::npos);
    facts.shallow = false;
    CHECK(Linted(two, all, &facts).count("L201") == 2);
}

TEST_CASE("runlog history: L201-L205") {
    FakeFacts facts;
    CHECK(Linted(entry(k_sha), {}, &facts).count("L201") == 1);
    facts.commits[k_sha] = commit(k_sha);
    CHECK(Linted(entry(k_sha), {}, &facts).count("L202") == 1);
    facts.parked = {k_sha};
    CHECK(Linted(entry(k_sha), {}, &facts).count("L202") == 0);
    CHECK(Linted(entry(k_sha, "- Starting commit: 0123456789\n"), {}, &facts).count("L203") == 1);
    const std::string two = entry("abcdef1") + entry(k_sha, "- Starting commit: 1111111\n", "2");
    CHECK(Linted(two).find("L204").severity == Severity::note);
    CHECK(Linted(entry("none (slower)", "- Decision: promoted\n")).count("L205") == 1);
    CHECK(Linted(entry("none (slower)", "- Assessment: not promoted\n")).count("L205") == 0);
    facts.ancestors = {k_sha};
    CHECK(Linted(entry(k_sha, "- Decision: regressed + reverted\n"), {}, &facts).count("L205") == 1);
    facts.reverted = {k_sha};
    CHECK(Linted(entry(k_sha, "- Decision: regressed + reverted\n"), {}, &facts).count("L205") == 0);
}

TEST_CASE("runlog dates: L301, L302, L303") {
    const auto with_date = [](const std::string& date) {
        return "### Iteration 1\n- Date: " + date + "\n- Commit: none (x)\n";
    };
    const auto fixed = [&](const std::string& date) {
        const Linted l(with_date(date));
        CHECK(l.count("L301") == 1);
        return apply_fixes(l.text, l.report.findings, false).bytes == l.text
                   ? std::string("none")
                   : apply_fixes(l.text, l.report.findings, false).bytes.substr(24, 20);
    };
    CHECK(Linted(with_date("2026-02-18")).count("L301") == 0);
    CHECK(fixed("`2026-02-18T12:55:20Z`") == "2026-02-18T12:55:20Z");
    CHECK(Linted(with_date("`2026-02-18`")).find("L301").message == "the date needs no backticks");
    CHECK(Linted(with_date("`2026-02-18`")).find("L301").severity == Severity::warning);
    CHECK(Linted(with_date("**2026-02-18**")).find("L301").message == "the date needs no asterisks");
    CHECK(fixed("**2026-02-18T12:55:20Z**") == "2026-02-18T12:55:20Z");
    CHECK(fixed("2026-02-18 12:55:20 UTC") == "2026-02-18T12:55:20Z");
    CHECK(fixed("2026-02-18T12:55:20+02:00") == "2026-02-18T10:55:20Z");
    CHECK(fixed("2026-02-18 12:55:20") == "none");
    CHECK(fixed("18 February") == "none");
    CHECK(Linted(with_date("2026-02-18") + "### Iteration 2\n- Date: 2026-02-17T10:00:00Z\n").count("L302") == 1);
    CHECK(Linted(with_date("2026-02-18") + "### Iteration 2\n- Date: 2026-13-45\n### Iteration 3\n- Date: 2026-02-17\n",
                 all_entries())
              .find("L302")
              .message == "earlier than the date of iteration 1, 2026-02-18T00:00:00Z");
    CHECK(Linted(with_date("2026-02-18T20:00:00Z") + "### Iteration 2\n- Date: 2026-02-18\n").count("L302") == 0);
    LintOptions options;
    options.now = WallTime(std::chrono::sys_days(std::chrono::year(2026) / 2 / 17));
    CHECK(Linted(with_date("2026-02-18"), options).count("L303") == 1);
    FakeFacts facts;
    facts.commits["abcdef1"] = commit(k_sha);  // 2026-02-18T12:55:20Z
    const std::string late = "### Iteration 1\n- Date: 2026-02-22\n- Commit: abcdef1\n";
    CHECK(Linted(late, {}, &facts).find("L303").fix->safe == false);
    CHECK(Linted("### Iteration 1\n- Date: 2026-02-20\n- Commit: abcdef1\n", {}, &facts).count("L303") == 0);
}

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
    const std::string sections = "#### Trace report\n\n##### Verdict\n\n#### Kernels\n- a\n";
    const std::string end = "<!-- gdnctl.trace/1 sha256:" + block_digest(sections) + " -->\n";
    CHECK(Linted("### Iteration 1\n\n" + report + marker + sections + end).count("L606") == 0);
    CHECK(Linted("### Iteration 1\n\n" + sections + "- b\n" + end).count("L606") == 1);
    CHECK(Linted("### Iteration 1\n\n" + sections.substr(sections.find('\n')) + end).count("L606") == 1);
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

TEST_CASE("lint: a secret is quoted by no message, fix or diff") {
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

TEST_CASE("lint: unified diff") {
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

TEST_CASE("lint: experiment template: a heading of three # without a space, underlined, is no part of an entry") {
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

TEST_CASE("lint: L602: a secret is found wherever it stands, at every scope") {
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

// What stands behind an entry's claims, in the words that people use: L102, L401, L410, L5xx.

namespace {

// An entry without a commit, with more lines.
std::string attempt(const std::string& commit, const std::string& more) {
    return "### Iteration 1 - a\n- Date: 2026-02-18\n- Commit: " + commit + "\n- Hypothesis: x\n" + more +
           "- Next hypothesis: y\n";
}

std::string with_result(const std::string& result) {
    std::string text = entry("abcdef1");
    text.replace(text.find("`87 passed, 2 skipped`"), 22, result);
    return text;
}

}  // namespace

TEST_CASE("lint: L503: a bad verdict with a commit, in every spelling, L501 knows it for a verdict") {
    for (const char* verdict : {"verdict: WRONG", "`WRONG`", "WRONG (3 cases: 3 WRONG)", "`verdict: NO_DATA`",
                                "`FAILED (exit 1, verdict WRONG: 3 WRONG)`", "UNSTABLE_INPUT.", "`run` -> `FAILED`"}) {
        CAPTURE(verdict);
        const Linted l(with_result(verdict));
        CHECK(l.count("L503") == 1);
        CHECK(l.count("L501") == 0);
    }
    for (const char* verdict : {"verdict: OK", "`OK`", "OK (3 cases: 3 OK)", "passed, no WRONG verdict"}) {
        CAPTURE(verdict);
        CHECK(Linted(with_result(verdict)).count("L503") == 0);
        CHECK(Linted(with_result(verdict)).count("L501") == 0);
    }
    CHECK(Linted(with_result("1 failed, 87 passed")).count("L503") == 1);
    CHECK(Linted(attempt("none (wrong)", "- Correctness checks:\n  - Result: WRONG\n")).count("L503") == 0);
}

TEST_CASE("lint: L102: infra-blocked wherever it is said asks for command and error text") {
    const std::string missing = "missing: the failing command, the error text";
    for (const auto& text :
         {attempt("`none (infra-blocked: no TPU)`", ""), attempt("none (x)", "- Interpretation: infra-blocked\n"),
          attempt("none (x)", "- Profile run:\n  - Result: infra-blocked\n"),
          attempt("none (x)", "- Decision: infra-blocked\n")}) {
        CAPTURE(text);
        CHECK(Linted(text).find("L102").message == missing);
    }
    CHECK(Linted(attempt("none (infra-blocked)", "- Command: `run`\n- Error: no TPU\n")).count("L102") == 0);
    CHECK(Linted(entry("abcdef1", "- Interpretation: iteration 0 was infra-blocked, this one ran\n")).count("L102") ==
          0);
}

TEST_CASE("lint: L410: few points and last-step values in the words of real entries") {
    const auto with = [](const std::string& line) { return Linted(entry("abcdef1", line + "\n")).count("L410"); };
    for (const char* line :
         {"- throughput/mfu: 4.1 (last step)", "- throughput/mfu: 4.1 (last-step value only)",
          "- Step duration: `9 ms`, median of 2 points", "- window: steps 10-11 (2 points)", "- Mean over 3 points",
          "- Window: steps 10-11 (v5p, 2 points)", "- 3-point median", "- Metric source: last step", "- Points: 1"}) {
        CAPTURE(line);
        CHECK(with(line) == 1);
    }
    for (const char* line : {"- window: steps 10-18 (9 points)", "- MFU is up by 2 points", "- the last step was slow",
                             "- median of the window, not the last-step value", "- Hypothesis: (last step) is noisy",
                             "- an improvement of 2 points", "- Points: 9", "- 2 pointers are passed (last)"}) {
        CAPTURE(line);
        CHECK(with(line) == 0);
    }
}

TEST_CASE("lint: L401: a known label and a unit, but no value") {
    const auto with = [](const std::string& line) { return Linted(entry("abcdef1", line + "\n")).count("L401"); };
    for (const char* line : {"- while: 8.8 -> ms", "- while: ?? ms", "- while: about 9 ms", "- while: ms",
                             "- gap explained by train-path: ?%"}) {
        CAPTURE(line);
        CHECK(with(line) == 1);
    }
    for (const char* line : {"- while: n/a", "- while: `8.8 ms`", "- while: unchanged", "- notes: ?? ms"}) {
        CAPTURE(line);
        CHECK(with(line) == 0);
    }
}

TEST_CASE("lint: L504: job ids") {
    const auto with = [](const std::string& id) {
        return Linted(entry("abcdef1", "- Profile runs:\n  - Job ID: " + id + "\n")).count("L504");
    };
    for (const char* id : {"job42", "`ray-run-bob-20260218-125520`", "raysubmit_x", "job42 (failed)"}) {
        CAPTURE(id);
        CHECK(with(id) == 1);
    }
    for (const char* id : {"ray-run-bob-gdn-20260218-125520", "`raysubmit_0123456789abcdef`", "n/a", "not submitted",
                           "gdnctl-test-me-20260310T165307-0123abcd", "none (infra)"}) {
        CAPTURE(id);
        CHECK(with(id) == 0);
    }
}

TEST_CASE("lint: L507: settings that took effect otherwise, on one line and on two") {
    const auto lint_of = [](const std::string& lines) { return Linted(entry("abcdef1", lines + "\n")); };
    const auto message = [&](const std::string& lines) {
        const Linted l = lint_of(lines);
        CAPTURE(lines);
        CHECK(l.count("L507") == 1);
        return l.count("L507") == 1 ? l.find("L507").message : std::string();
    };
    const std::string chosen = "requested auto, but xla took effect";
    CHECK(message("- CE backend requested: auto\n- CE backend selected: xla") == chosen);
    CHECK(message("- CE backend selected: auto -> xla") == chosen);
    CHECK(message("- CE `auto` chose `xla`") == chosen);
    CHECK(message("- CE backend selected: requested=auto, effective=xla") == chosen);
    CHECK(message("- Command: `run --ce-implementation auto`\n- CE backend selected: `xla`") == chosen);
    CHECK(message("- requested chunk: 96\n- effective chunk: 128") == "requested 96, but 128 took effect");
    CHECK(message("- Chunk:\n  - requested: 96\n  - effective: 128") == "requested 96, but 128 took effect");
    CHECK(message("- chunk: requested 96, effective 128") == "requested 96, but 128 took effect");
    CHECK(message("- requested gdn_layer_fraction: 0.75, effective gdn_layer_fraction: 0.83") ==
          "requested 0.75, but 0.83 took effect");
    CHECK(message("- gdn_layer_fraction: requested gdn_layer_fraction: 0.75, effective: 0.83") ==
          "requested 0.75, but 0.83 took effect");
    // As our own entries have it.
    const std::string setting =
        "- Profile run:\n  - Setting: `gdn_layer_fraction`, requested `0.75`, effective `0.833333`";
    CHECK(message(setting) == "requested 0.75, but 0.833333 took effect");
    const std::string other = "\n  - Setting: `ce_implementation`, requested `pallas_tpu`, effective `xla`";
    CHECK(lint_of(setting + other).count("L507") == 2);
    CHECK(lint_of("- Chunk: 96 run as 128").count("L507") == 1);
    for (const char* lines :
         {"- CE backend requested: xla\n- CE backend selected: xla", "- requested chunk: 128\n- effective chunk: 128.0",
          "- requested chunk: 96\n- effective segment: 128", "- CE backend selected: pallas_tpu -> xla",
          "- requested by the team, effective at once", "- Chunk: 96 run as 96", "- automatic -> manual",
          "- requested chunk: 96\n- effective chunk: 96\n- requested chunk: 128\n- effective chunk: 128"}) {
        CAPTURE(lines);
        CHECK(lint_of(lines).count("L507") == 0);
    }
}
