// What Markdown does not show is no entry, and what it shows as a heading ends one.
#include <doctest/doctest.h>

#include "runlog/parse/log.h"
#include "runlog/render/stamp.h"
#include "unit/runlog/entry_fixture.h"
#include "unit/runlog/lint_fixture.h"

using namespace gdnctl;
using namespace gdnctl::runlog;
using namespace gdnctl::runlog::test;

namespace {

// Which lines are hidden, as one character a line: '#' hidden, '.' not.
std::string hidden(std::string_view text) {
    BlockTracker tracker;
    std::string marks;
    Line line;
    for (LineCursor cursor(text); cursor.next(line);) {
        const bool inside = tracker.inside(line.text);
        marks += inside || tracker.commented() ? '#' : '.';
    }
    return marks;
}

// Number of lines of the paragraph that the last line underlines.
std::uint32_t underlined(std::string_view text) {
    BlockTracker tracker;
    Line line;
    for (LineCursor cursor(text); cursor.next(line);) tracker.inside(line.text);
    return tracker.underlined().lines;
}

// Of a text that outlives it.
Document document(std::string_view text) {
    const auto parsed = parse_document(text);
    REQUIRE(parsed);
    return *parsed;
}

}  // namespace

TEST_CASE("blocks: an HTML comment hides its lines up to the one with its end") {
    CHECK(hidden("a\n<!-- b\nc\n\nd --> e\nf\n") == ".####.");
    CHECK(hidden("<!-- one -->\na\n<!-- two\n-->\n<!--> b\nc\n") == "#.###.");
    CHECK(hidden("<!-- a\n<!-- b -->\nc\n-->\n") == "##..");  // comments do not nest
    CHECK(hidden("a <!-- b\n- c -->\n") == "..");             // in running text a bullet ends it
    CHECK(hidden("<!-- a\n```\n-->\nb\n```\nc\n```\n") == "###.###");
    CHECK(hidden("```\n<!-- a\n```\nb\n-->\n") == "###..");
    CHECK(hidden("~~~\n<!--\n~~~\nb\n") == "###.");
    CHECK(hidden("<pre>\n- a\n</pre>\nb\n") == "###.");
    CHECK(hidden("<pre>a</pre>\nb\n<PRE class=x>\n\n</pre> c\nd\n<preface>\ne\n") == "#.###...");
    CHECK(hidden("<details>\n- a\n</details>\n") == "...");
}

TEST_CASE("blocks: a comment in a list item ends with the item") {
    CHECK(hidden("- a\n  <!-- b\n  - c\n- d\n") == ".##.");
    CHECK(hidden("- <!-- b\n  - c\n\n  d\ne\n") == ".###.");
    CHECK(hidden("- <!-- b\n  -->\n  - c\n") == ".#.");
    CHECK(hidden("a\n\n  <!-- b\n- c\n-->\n") == "..###");
    CHECK(hidden("- a\n\nb\n\n  <!-- c\n- d\n-->\n") == "....###");  // the list has ended
    CHECK(hidden("- a\n  ```\npasted without indentation\n  ```\nb\n") == ".###.");
    CHECK(hidden("- ```\n  a\n  ```\n- b\n") == ".##.");
}

TEST_CASE("blocks: an underline makes a heading of a paragraph outside lists, of nothing else") {
    CHECK(underlined("Title\n=====\n") == 1);
    CHECK(underlined("Title\n--\n") == 1);
    CHECK(underlined("Two\nlines\n   ===  \n") == 2);
    CHECK(underlined("- bullet\n\nTitle\n=====\n") == 1);
    CHECK(underlined("<!-- a -->\nTitle\n=====\n") == 1);
    CHECK(underlined("- bullet\n=====\n") == 0);
    CHECK(underlined("- bullet\ntext\n=====\n") == 0);
    CHECK(underlined("> quoted\n=====\n") == 0);
    CHECK(underlined("text\n\n-----\n") == 0);
    CHECK(underlined("# Title\n=====\n") == 0);
    CHECK(underlined("text\n=== x\n") == 0);
    CHECK(underlined("text\n- - -\n") == 0);
    CHECK(underlined("    code\n=====\n") == 0);
    CHECK(underlined("```\ntext\n=====\n") == 0);
    CHECK(underlined("| a |\n|---|\n") == 0);
    CHECK(underlined("1. one\n=====\n") == 0);
    CHECK(underlined("text\n2. two\n=====\n") == 2);  // only a list that starts at 1 ends a paragraph
}

TEST_CASE("blocks: commented entries and headings are none, an underlined heading ends an entry") {
    const Document d = document(
        "# Log\n### Iteration 1 - a\n- Commit: abcdef1\n\n<!-- draft\n## Not shown\n### Iteration 2 - b\n"
        "- Commit: (pending)\n### Iteration nine\n-->\n- Date: 2026-02-18\n\nHow to\nwrite one\n=========\n"
        "- Commit: (pending)\n");
    REQUIRE(d.entries.size() == 1);
    CHECK(d.malformed_headings.empty());
    CHECK(d.entries[0].text.ends_with("- Date: 2026-02-18\n\n"));
    CHECK(d.entries[0].line_count == 11);
    const Entry entry = parse_entry(d.entries[0]);
    CHECK(entry.commit_value.sha == "abcdef1");
    CHECK(entry.repeated.empty());
    CHECK(entry.fields.size() == 2);
    CHECK(document("### Iteration 1 - a\n  ## Appendix\n- Commit: (pending)\n").entries[0].line_count == 1);
    CHECK(document("### Iteration 1 - a\n- b\n  ## In the item\n").entries[0].line_count == 3);
}

TEST_CASE("blocks: a comment that is never closed hides the rest of the file, and that is found") {
    const std::string text =
        "### Iteration 1 - a\n- Commit: abcdef1\n<!-- open\n### Iteration 2 - b\n- Commit: (pending)\n";
    const Document d = document(text);
    CHECK(d.entries.size() == 1);
    REQUIRE(d.unclosed);
    CHECK(d.unclosed->line.number == 3);
    const Linted open(text);
    CHECK(open.count("L001") == 0);
    CHECK(open.find("L107").message == "the HTML comment is never closed and hides everything after it");
    CHECK_FALSE(open.find("L107").fix);  // it may be meant to hide a draft
    CHECK_FALSE(document("- a\n  <!-- b\n").unclosed);
    CHECK_FALSE(document("<!-- b -->\n").unclosed);
}

TEST_CASE("blocks: a comment behind a value is no part of it") {
    const Linted pending(entry("(pending) <!-- the sha comes later -->"));
    CHECK(pending.count("L001") == 1);
    const Linted sha(entry("abcdef1 <!-- one --> <!-- two -->"));
    CHECK(sha.count("L103") == 0);
    CHECK(parsed("### Iteration 1 - a\n- while: `1.0 ms -> 2.0 ms` <!-- was 3 -->\n").metrics.size() >= 1);
    CHECK(parsed("### Iteration 1 - a\n- Note: `<!-- gdnctl:end -->`\n").find("note")->value ==
          "`<!-- gdnctl:end -->`");
    // A field with nothing but a comment in it is empty.
    CHECK(Linted("### Iteration 1 - a\n- Hypothesis:\n  <!-- why\n  and what -->\n").count("L106") == 1);
    CHECK(parsed("### Iteration 1 - a\n- Correctness checks:\n  <!-- 9 passed -->\n  - Result: `8 passed`\n")
              .tests.size() == 1);
}

TEST_CASE("blocks: a commit line in a comment is neither stamped nor found outside entries") {
    const std::string text =
        "### Iteration 1 - a\n- Commit: this commit\n<!-- draft\n- Commit: (pending)\n-->\n\n## Appendix\n\n<!--\n"
        "- Commit: (pending)\n-->\n";
    const auto stamped = stamp_last_entry(text, k_sha);
    REQUIRE(stamped);
    CHECK(stamped->stamped);
    CHECK(stamped->line == 2);
    CHECK(Linted(text, all_entries()).count("L001") == 0);
}

TEST_CASE("L108: markers of an unresolved merge conflict") {
    const auto marks = [](const std::string& middle, const LintOptions& options = {}) {
        return Linted(entry("abcdef1") + middle + entry("abcdef2", "", "2"), options);
    };
    CHECK(marks("").count("L108") == 0);
    const Linted whole = marks("<<<<<<< HEAD\na\n||||||| parent of 1234567 (x)\n=======\nb\n>>>>>>> topic\n");
    REQUIRE(whole.count("L108") == 1);  // one conflict, found in an entry that is out of scope
    CHECK(whole.find("L108").line == 15);
    CHECK(whole.find("L108").message == "an unresolved merge conflict begins here, its markers end in line 20");
    CHECK(marks("<<<<<<< HEAD\n=======\n>>>>>>> a\n<<<<<<< HEAD\n=======\n>>>>>>> a\n").count("L108") == 2);
    for (const char* alone :
         {"<<<<<<< HEAD\n", ">>>>>>> main\n", "||||||| parent of 1 (x)\n", "|||||||\n", "<<<<<<<\n", "=======\n",
          "```\n>>>>>>> main\n```\n", "<!--\n<<<<<<< HEAD\n-->\n", ">>>>>>> main\r\n"}) {
        CHECK_MESSAGE(marks(alone).count("L108") == 1, alone);
    }
    for (const char* none :
         {"Summary\n=======\n", "\nSummary\n=======\n", "```\n=======\n```\n", "======= passed\n", " <<<<<<< HEAD\n",
          "<<<<<< HEAD\n", ">>>>>>>a\n", "==========\n", "| a |\n|---|\n|||||||\n", "a ======= b\n"}) {
        CHECK_MESSAGE(marks(std::string("\n") + none).count("L108") == 0, none);
    }
    LintOptions strict;
    strict.strict = true;
    CHECK(marks(">>>>>>> main\n", strict).report.failed());
}
