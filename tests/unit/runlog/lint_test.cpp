#include <string>

#include <doctest/doctest.h>

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

TEST_CASE("runlog a good entry has no findings") {
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
