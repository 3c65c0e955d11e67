#include <string>

#include <doctest/doctest.h>

#include "runlog/parse/block.h"
#include "runlog/parse/log.h"
#include "runlog/render/render.h"
#include "unit/runlog/entry_fixture.h"
#include "unit/runlog/lint_fixture.h"

using namespace gdnctl;
using namespace gdnctl::runlog;

namespace {

Document parse(std::string_view text) {
    auto document = parse_document(text);
    REQUIRE(document);
    return *document;
}

// An entry whose bullets are `lines`; the text outlives the entry.
struct Parsed {
    explicit Parsed(std::string lines) : text("### Iteration 1 - x\n\n" + std::move(lines)) {
        document = parse(text);
        REQUIRE(document.entries.size() == 1);
        entry = parse_entry(document.entries[0]);
    }
    double after(std::string_view key) const {
        const Metric* m = entry.metric(key);
        REQUIRE_MESSAGE(m != nullptr, key);
        REQUIRE_MESSAGE(m->after.has_value(), key);
        return *m->after;
    }
    double before(std::string_view key) const {
        const Metric* m = entry.metric(key);
        REQUIRE_MESSAGE(m != nullptr, key);
        REQUIRE_MESSAGE(m->before.has_value(), key);
        return *m->before;
    }
    std::string text;
    Document document;
    Entry entry;
};

}  // namespace

TEST_CASE("runlog lines: all three endings, mixed, none at the end") {
    LineCursor cursor("a\r\nb\rc\n\nd");
    Line line;
    std::string seen;
    while (cursor.next(line)) seen += std::to_string(line.number) + std::string(line.text) + "|";
    CHECK(seen == "1a|2b|3c|4|5d|");
    CHECK(parse("a\r\nb\r\n").ending == LineEnding::crlf);
    CHECK(parse("a\rb\r").ending == LineEnding::cr);
    CHECK(parse("a\nb").ending == LineEnding::lf);
    CHECK_FALSE(parse("a\nb").final_newline);
    CHECK(parse("a\nb\r\n").ending == LineEnding::mixed);
    CHECK(parse("x\xE2\x80\xA8y\n").line_count == 1);  // U+2028 ends no line
}

TEST_CASE("runlog entries: headings, ends, numbers, suffixes") {
    const std::string text =
        "\xEF\xBB\xBF# Log\n## Iterations\n### Iteration 0\n- Date: x\n### Iteration 12ab - Two words\ntext\n## Other\n"
        "### Iteration 13_x\n### Iteration <N> - <short title>\n###  Iteration 14\n#### Iteration 15\n### Iteration "
        "007: t\n";
    const Document d = parse(text);
    CHECK(d.has_bom);
    REQUIRE(d.entries.size() == 3);
    CHECK(d.entries[0].number == 0);
    CHECK(d.entries[0].text == "### Iteration 0\n- Date: x\n");
    CHECK(d.entries[1].number == 12);
    CHECK(d.entries[1].suffix == "ab");
    CHECK(d.entries[1].title == "Two words");
    CHECK(d.entries[1].line == 5);
    CHECK(d.entries[1].line_count == 2);
    CHECK(d.entries[2].number == 7);
    CHECK(d.entries[2].title == "t");
    REQUIRE(d.malformed_headings.size() == 3);
    CHECK(d.malformed_headings[0].number == 8);
}

TEST_CASE("runlog 10.6 fences: the template is no entry, a fenced commit line is no hit") {
    const Document d = parse("# Log\n```markdown\n### Iteration <N> - <short title>\n### Iteration 3\n```\n");
    CHECK(d.entries.empty());
    CHECK(d.malformed_headings.empty());
    const Parsed p("- Commit: abcdef1\n\n````\n```\n- Commit: (pending)\n````\n- Date: 2026-02-18\n");
    CHECK(p.entry.commit_value.kind == CommitKind::committed);
    CHECK(p.entry.repeated.empty());
    CHECK(p.entry.field(p.entry.date)->value == "2026-02-18");
    CHECK(parse("### Iteration 1\n~~~\n### Iteration 2\n").unclosed->line.number == 2);
}

TEST_CASE("runlog limits: file, line, entries") {
    const std::string line((1u << 20) + 1, 'x');
    auto long_line = parse_document(line);
    REQUIRE_FALSE(long_line);
    CHECK(long_line.error().kind == ErrorKind::usage);
    CHECK(parse_document(std::string(1u << 20, 'x')));
    std::string many;
    for (int i = 0; i <= 100'000; ++i) many += "### Iteration 1\n";
    CHECK_FALSE(parse_document(many));
    CHECK(parse("").entries.empty());
}

TEST_CASE("runlog parse: commit values") {
    CHECK(classify_commit("123abcdef").kind == CommitKind::committed);
    CHECK(classify_commit("`0123456789abcdef0123456789abcdef01234567`.").sha.size() == 40);
    CHECK(classify_commit("none (failed attempt)").reason == "failed attempt");
    CHECK(classify_commit("`none (failed attempt; code reverted after measurement)`").kind == CommitKind::none);
    CHECK(classify_commit("this commit").kind == CommitKind::self);
    for (const char* pending : {"(pending)", "pending", "`(pending)`", "** (pending)", "(pending).", " (Pending)"}) {
        CHECK_MESSAGE(classify_commit(pending).kind == CommitKind::pending, pending);
    }
    CHECK(classify_commit("final validated result commit descended from 123abcdef").kind == CommitKind::other);
    CHECK(classify_commit("").kind == CommitKind::missing);
    CHECK(classify_commit("abc123").kind == CommitKind::other);
    CHECK(classify_commit("nonesuch").kind == CommitKind::other);
}

TEST_CASE("runlog fields: nesting, marks, first occurrence wins") {
    const Parsed p(
        "- **Date:** `2026-02-18T12:55:20Z`\n\n* Change summary:\n  - one\n  - two: three\n+ `Commit: (pending)`\n- "
        "commit: abcdef1\n"
        "- Correctness checks:\n  - Command: `pytest a.py:12`\n  - Result: `88 passed, 2 skipped in 231.29s "
        "(0:03:51)`\n"
        "- Profile run:\n  - Job ID: x\n");
    CHECK(p.entry.field(p.entry.date)->value == "`2026-02-18T12:55:20Z`");
    CHECK(p.entry.commit_value.kind == CommitKind::pending);
    CHECK(p.entry.repeated.size() == 1);
    const Field* summary = p.entry.find("change summary");
    REQUIRE(summary != nullptr);
    CHECK(summary->body == "  - one\n  - two: three\n");
    const Field* job = p.entry.find("job id");
    REQUIRE(job != nullptr);
    CHECK(p.entry.field(job->parent)->label == "Profile run");
    REQUIRE(p.entry.tests.size() == 1);
    CHECK(p.entry.tests[0].passed == 88);
    CHECK(p.entry.tests[0].skipped == 2);
}

TEST_CASE("runlog test counts: every spelling") {
    CHECK(read_test_counts("1 failed, 87 passed, 2 skipped").failed == 1);
    CHECK(read_test_counts("`cmd` -> `3 passed, 35 deselected`").deselected == 35);
    CHECK(read_test_counts("24 passed, 1 warning in 0.07s").warnings == 1);
    CHECK(read_test_counts("2 xfailed, 1 xpassed, 3 errors, 4 rerun").errors == 3);
    CHECK(read_test_counts("- Result: OK").said_ok());
    CHECK(read_test_counts("`run` -> `OK`").said_ok());
    CHECK(read_test_counts("  - Result: verdict: WRONG").verdict == "WRONG");
    CHECK(read_test_counts("- Result: `WRONG`").said_bad());
    CHECK(read_test_counts("- Result: `FAILED (exit 1, verdict WRONG: 3 WRONG)`").said_bad());
    CHECK(read_test_counts("- Result: no WRONG verdict").verdict.empty());
    CHECK(read_test_counts("- Result: FAILED runs were repeated").verdict.empty());
    CHECK_FALSE(read_test_counts("v2 passed, 1.5 failed, 3 passedX").any());
}

TEST_CASE("runlog 10.7 derived budgets (case 15)") {
    const Parsed ten(
        "- Hotspots observed:\n  - Forward closed-call: `41.000 ms -> 20.000 ms`\n  - Backward closed-call: `26.000 ms "
        "-> 13.000 ms`\n"
        "  - `while`: `0.000 ms -> 0.000 ms`\n  - `conditional`: `0.000 ms -> 0.000 ms`\n");
    CHECK(ten.after("train_path_budget_ms") == doctest::Approx(33.0));
    const Parsed eleven(
        "- Forward closed-call `shard_map/pallas_call`: `41.000 ms -> 19.000 ms`\n- Backward closed-call: `26.000 ms "
        "-> 12.000 ms`\n"
        "- `while`: `0.000 ms -> 31.500 ms`\n- conditional: `0.000 ms -> 0.000 ms`\n");
    CHECK(eleven.after("forward_closed_call_ms") == 19);
    CHECK(eleven.after("backward_closed_call_ms") == 12);
    CHECK(eleven.after("kernel_budget_ms") == 31);
    CHECK(eleven.after("control_budget_ms") == 31.5);
    CHECK(eleven.after("train_path_budget_ms") == 62.5);
    CHECK(eleven.entry.metric("kernel_budget_ms")->derived);
}

TEST_CASE("runlog 10.8 CE labels (case 16), 10.9 stated budgets win (case 17)") {
    const Parsed ce(
        "- `CE-attributed while`: `31.600 ms -> 28.500 ms`\n- `CE control budget`: `31.600 ms -> 28.510 ms`\n");
    CHECK(ce.after("ce_attributed_while_ms") == 28.5);
    CHECK(ce.after("ce_control_budget_ms") == 28.51);
    CHECK(ce.entry.metric("while_ms") == nullptr);
    const Parsed stated(
        "- Kernel budget: `33.789 ms -> 29.078 ms`\n- Control budget: `10.176 ms -> 10.095 ms`\n- Train-path budget: "
        "`43.965 ms -> 39.173 ms`\n"
        "- Step duration: `167.098 ms -> 168.073 ms`\n- Remainder budget: `123.133 ms -> 128.900 ms`\n");
    CHECK(stated.after("step_duration_ms") == 168.073);
    CHECK(stated.after("remainder_budget_ms") == 128.9);
}

namespace {

const char* const k_shell_labels[][3] = {{"Decoder-layer shell budget", "61.2", "55"},
                                         {"Hybrid generic shell delta budget", "17", "14.25"},
                                         {"Dispatch/shard shell delta budget", "9", "7.75"},
                                         {"AD/wrapper shell delta budget", "4.5", "3.25"},
                                         {"AD shell budget", "18", "16.5"},
                                         {"Sharding shell budget", "24", "20.25"},
                                         {"Layout shell budget", "7", "5.75"},
                                         {"Interaction remainder", "54", "50.5"}};
const char* const k_shell_keys[] = {"decoder_layer_shell_budget_ms",
                                    "hybrid_generic_shell_delta_budget_ms",
                                    "dispatch_shard_shell_delta_ms",
                                    "ad_wrapper_shell_delta_ms",
                                    "ad_shell_budget_ms",
                                    "sharding_shell_budget_ms",
                                    "layout_shell_budget_ms",
                                    "interaction_remainder_ms"};

void check_shells(const Parsed& p) {
    for (std::size_t i = 0; i < std::size(k_shell_keys); ++i) {
        CHECK(p.before(k_shell_keys[i]) == doctest::Approx(std::stod(k_shell_labels[i][1])));
        CHECK(p.after(k_shell_keys[i]) == doctest::Approx(std::stod(k_shell_labels[i][2])));
    }
}

std::string shells(const std::string& before_label, const std::string& after_label, const std::string& unit,
                   const std::string& arrow, const std::string& end, bool keys = false) {
    std::string lines;
    for (std::size_t i = 0; i < std::size(k_shell_keys); ++i) {
        lines += before_label + (keys ? k_shell_keys[i] : k_shell_labels[i][0]) + after_label + k_shell_labels[i][1] +
                 unit + arrow + k_shell_labels[i][2] + unit + end + "\n";
    }
    return lines;
}

}  // namespace

TEST_CASE("runlog 10.10 shell labels (case 18)") { check_shells(Parsed(shells("- ", ": `", " ms", " -> ", "`"))); }

TEST_CASE("runlog 10.11 spellings C, D and J read the same, n/a is null") {
    check_shells(Parsed(shells("- `", ": ", " ms", " -> ", "`")));
    check_shells(Parsed(shells("* **", ":** ", " ms", " \xE2\x86\x92 ", "")));
    check_shells(Parsed(shells("+ ", ": ", "ms", " => ", "")));
    check_shells(Parsed(shells("- ", ": ", "", " -> ", "", true)));
    check_shells(Parsed(shells("- `", "`: `", "", " -> ", "`", true)));
    const Parsed null("- `while: n/a`\n- conditional: not measured\n- Step duration: -\n");
    for (const char* key : {"while_ms", "conditional_ms", "step_duration_ms"}) {
        REQUIRE(null.entry.metric(key) != nullptr);
        CHECK_FALSE(null.entry.metric(key)->after);
    }
    CHECK(null.entry.readings[0].form == Reading::Form::absent);
}

TEST_CASE("runlog parse: spelling E: single values, baseline under a carried-in heading") {
    const Parsed p(
        "- Current validated baseline carried in:\n  - `step_duration_ms=167.793375`\n  - while: `8.886552 ms`\n"
        "- Hotspots observed (current deployable baseline vs candidate):\n  - `while`: `8.97 ms`\n"
        "  - Step duration: `167.79 ms -> 160.5 ms`\n");
    CHECK(p.before("while_ms") == 8.886552);
    CHECK(p.after("while_ms") == 8.97);
    CHECK(p.before("step_duration_ms") == 167.79);
    CHECK(p.entry.metric("step_duration_ms")->comparison == Comparison::champion);
}

TEST_CASE("runlog parse: spellings G, H, I, J, K") {
    const Parsed p(
        "- Gap explained by train-path: 39.72% -> 8.04%\n- Gap explained by decoder-layer shell: 18.45 -> 18.19\n"
        "- CE backend selected: pallas_tpu -> xla\n"
        "- MFU/throughput delta (vs champion): `throughput/mfu`: `4.1533 -> 4.2092` (`+1.34%`), "
        "`throughput/tokens_per_second`: `197,826.5 -> 200,000`, throughput/duration: 0.24388s -> 0.24065s\n"
        "- Measured: step_duration_ms=167.744487, train_path_budget_ms=42.654889\n"
        "- `remainder_topk`: a/b/c: 5.21 ms; d e 2.70 ms; family x: +1.83 ms\n");
    CHECK(p.before("gap_explained_by_train_path") == doctest::Approx(0.3972));
    CHECK(p.after("gap_explained_by_decoder_layer_shell") == doctest::Approx(0.1819));
    CHECK(p.entry.metric("CE backend selected")->after_text == "xla");
    CHECK(p.after("throughput/mfu") == 4.2092);
    CHECK(p.before("throughput/tokens_per_second") == 197826.5);
    CHECK(p.after("throughput/duration") == doctest::Approx(0.24065));
    CHECK(p.entry.metric("throughput/mfu")->comparison == Comparison::champion);
    CHECK(p.entry.readings[3].percent->value == 1.34);
    CHECK(p.after("step_duration_ms") == 167.744487);
    CHECK(p.after("train_path_budget_ms") == 42.654889);
    REQUIRE(p.entry.topk.size() == 1);
    REQUIRE(p.entry.topk[0].items.size() == 3);
    CHECK(p.entry.topk[0].items[0].path == "a/b/c");
    CHECK(p.entry.topk[0].items[1].path == "d e");
    CHECK(p.entry.topk[0].items[2].is_delta);
}

TEST_CASE("runlog units: canonical ms and fractions, exponents, unknown labels") {
    const Parsed p(
        "- Step duration: `0.1656 s -> 1.68e2 ms`\n- while: 1200 us -> 1300 \xC2\xB5s\n- Compile time: `12.5 s`\n- "
        "Rows: 5 -> 6\n");
    CHECK(p.before("step_duration_ms") == doctest::Approx(165.6));
    CHECK(p.after("step_duration_ms") == doctest::Approx(168));
    CHECK(p.after("while_ms") == doctest::Approx(1.3));
    CHECK(p.after("Compile time") == 12500);
    CHECK_FALSE(p.entry.metric("Compile time")->known);
    CHECK(p.entry.metric("Rows") == nullptr);
}

TEST_CASE("runlog 10.12 lines that are no metrics") {
    const Parsed p(
        "- `while` category dropped from `1751.883 ms` in baseline to `0.000 ms`\n"
        "- `gated_deltanet.py:2374 -> 2375`, `120.561 ms -> 121.882 ms`\n- `kernel.py:12`: `1.0 ms -> 2.0 ms`\n"
        "```\n- while: `1 ms -> 2 ms`\n```\n- Expected effect on `while_ms`: 31 ms -> 20 ms\n"
        "  - Step duration: `3 ms -> 2 ms`\n- Command: `run --wait=5 --scale=3ms`\n- Codex loop iteration: 8 / 10\n");
    CHECK(p.entry.readings.empty());
}

TEST_CASE("runlog parse: comparison kinds and arms") {
    CHECK(classify_comparison("Hotspots observed (current deployable baseline vs candidate x)") ==
          Comparison::champion);
    CHECK(classify_comparison("Hotspot metrics (fixed-CE shell baseline -> decoder-block prototype)") ==
          Comparison::ab);
    CHECK(classify_comparison("Measured metrics (fresh attention-only control -> fresh hybrid rerun)") ==
          Comparison::control);
    CHECK(classify_comparison("MFU/throughput delta (vs iteration 12)") == Comparison::previous);
    CHECK(classify_comparison("Hotspots observed") == Comparison::unknown);

    const Parsed arms("- Control:\n  - Step duration: `57.26 ms`\n- Hybrid:\n  - Step duration: `167.79 ms`\n");
    REQUIRE(arms.entry.metric("step_duration_ms") != nullptr);
    CHECK(arms.entry.metric("step_duration_ms")->ambiguous_arm);
    CHECK_FALSE(arms.entry.metric("step_duration_ms")->after);
    CHECK(arms.entry.readings[1].arm == "Hybrid");
    const Parsed bare("- Hybrid: while 2.0 ms, step duration 167.79 ms\n- Control: while 1.0 ms\n");
    REQUIRE(bare.entry.readings.size() == 3);
    CHECK(bare.entry.readings[0].arm == "Hybrid");
    CHECK(bare.entry.readings[0].after->value == 2.0);
    CHECK(bare.entry.metric("while_ms")->ambiguous_arm);
    CHECK(Parsed("- Candidate: while loops took 2 ms\n- Hybrid: while 2 ms less\n").entry.readings.empty());
    const Parsed candidate(
        "- Current deployable baseline:\n  - Step duration: `167.79 ms`\n- Candidate:\n  - Step duration: `160.1 "
        "ms`\n");
    CHECK(candidate.before("step_duration_ms") == 167.79);
    CHECK(candidate.after("step_duration_ms") == 160.1);
}

TEST_CASE("runlog 10.14 a control -> hybrid entry") {
    const Parsed p(
        "- Measured metrics (fresh attention-only control -> fresh hybrid rerun):\n"
        "  - `Forward closed-call: 4.301220 ms -> 20.663477 ms`\n  - `Backward closed-call: 4.102000 ms -> 13.128558 "
        "ms`\n"
        "  - `Kernel budget: 8.403220 ms -> 33.792035 ms`\n  - `Step duration: 57.26 ms -> 167.79 ms`\n");
    CHECK(p.entry.metric("kernel_budget_ms")->comparison == Comparison::control);
    CHECK(p.after("kernel_budget_ms") == 33.792035);
    CHECK(p.after("forward_closed_call_ms") + p.after("backward_closed_call_ms") == doctest::Approx(33.792035));
}

TEST_CASE("runlog repeated labels: the last arrow wins") {
    const Parsed p("- while: `1 ms -> 2 ms`\n- while: `1 ms -> 3 ms`\n- while: `9 ms`\n");
    CHECK(p.after("while_ms") == 3);
    CHECK(p.before("while_ms") == 1);
}

TEST_CASE("runlog generated blocks: digest, line endings, tampering") {
    CHECK(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(sha256_hex(std::string(64, 'a')) == "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
    const std::string body = "### Iteration 1 - x\n- Date: 2026-02-18\n";
    const std::string text = "# L\n<!-- gdnctl:begin 20260310T165307Z-1 sha256=" + block_digest(body) + " -->\n" +
                             body + "<!-- gdnctl:end -->\ntail\n";
    auto blocks = find_blocks(text);
    REQUIRE(blocks.size() == 1);
    CHECK(blocks[0].intact());
    CHECK(blocks[0].line == 2);
    CHECK(blocks[0].body == body);
    CHECK(block_digest("a\r\nb\r\n") == block_digest("a\nb\n"));
    std::string changed = text;
    changed.replace(changed.find("02-18"), 5, "02-19");
    CHECK_FALSE(find_blocks(changed)[0].intact());
    CHECK_FALSE(find_blocks(text.substr(0, text.size() - 30))[0].intact());
}

// What Markdown does not show is no entry, and what it shows as a heading ends one.
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

TEST_CASE("runlog parse: L108: markers of an unresolved merge conflict") {
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
