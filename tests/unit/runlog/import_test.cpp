// What an import keeps of entries that people wrote.
#include "runlog/import/import.h"

#include <doctest/doctest.h>

#include "core/json.h"
#include "runlog/history/summary.h"
#include "runlog/parse/log.h"
#include "runlog/render/render.h"
#include "unit/runlog/entry_fixture.h"

using namespace gdnctl;
using namespace gdnctl::runlog;
using namespace gdnctl::runlog::test;

TEST_CASE("import: values of several arms stay with their arm, a heading that says nothing is an unknown comparison") {
    const Json arms =
        imported("### Iteration 1 - a\n- Hybrid: while 2.0 ms\n- Control: while 1.0 ms\n- Step duration: `9.0 ms`\n");
    CHECK_FALSE(arms["metrics"].contains("while_ms"));
    CHECK(arms["metrics"]["step_duration_ms"]["after"] == 9.0);
    REQUIRE(arms["profiles"].size() == 2);
    CHECK(arms["profiles"][0]["arm"] == "hybrid");
    CHECK(arms["profiles"][0]["metrics"]["while_ms"] == 2.0);
    CHECK(arms["profiles"][1]["metrics"]["while_ms"] == 1.0);
    CHECK(arms["comparison"]["kind"] == "unknown");
    const Json nested =
        imported("### Iteration 1 - a\n- Control:\n  - while: `1.0 ms`\n- Hybrid:\n  - while: `2.0 ms`\n");
    CHECK(nested["metrics"].empty());
    CHECK(nested["profiles"].size() == 2);
    CHECK(parsed(render_entry(nested)).readings.size() == 2);  // rendered once, where they stood
    CHECK(imported("### Iteration 1 - a\n- Hotspots observed:\n  - while: `1 ms -> 2 ms`\n")["comparison"]["kind"] ==
          "unknown");
    CHECK(imported("### Iteration 1 - a\n- Date: 2026-02-18\n")["comparison"]["kind"].is_null());
}

TEST_CASE("import: a command that stands before its counts on one line") {
    const Json entry =
        imported("### Iteration 1 - a\n- Correctness checks:\n  - `uv run pytest` -> `49 passed, 40 skipped`\n");
    REQUIRE(entry["checks"].size() == 1);
    CHECK(entry["checks"][0]["command"] == "uv run pytest");
    CHECK(entry["checks"][0]["skipped"] == 40);
    const Json other = imported("### Iteration 1 - a\n- Correctness checks:\n  - all of `kernels`: `3 passed`\n");
    REQUIRE(other["checks"].size() == 1);
    CHECK(other["checks"][0]["command"].is_null());
}

TEST_CASE("history: hand-written entries in brief, and one of them whole again") {
    const std::string log =
        "### Iteration 1 - a\n- Date: 2026-02-18\n- Commit: none (slow)\n- Unknown label: x\n"
        "- Hotspots observed (champion -> candidate):\n  - while: `1 ms -> 2 ms`\n### Iteration 2 - b\n- Commit: none "
        "(x)\n";
    const auto history = history_of(log, {});
    REQUIRE(history);
    REQUIRE(history->size() == 2);
    const Json& brief = history->front();
    CHECK_FALSE(brief.contains("raw"));
    CHECK_FALSE(brief.contains("outcome"));
    CHECK(brief["metrics"]["while_ms"]["after"] == 2);
    CHECK(render_commit(brief) == "none (slow)");
    const auto whole = whole_record(log, {}, brief);
    REQUIRE(whole);
    CHECK(*whole == imported(log.substr(0, log.find("### Iteration 2"))));
    CHECK(whole->at("raw")["fields"].size() >= 1);
    const std::vector<Json> recorded = {*whole};
    const auto again = history_of(log, recorded);
    REQUIRE(again);
    CHECK(again->front() == *whole);
    CHECK(*whole_record(log, recorded, again->front()) == *whole);
}

namespace {

// The shapes of late entries of a real log, in other words and with other numbers.
const std::string k_late =
    "### Iteration 208 - Slot Q / own the entry of the scan (validated, rejected)\n\n"
    "- Coverage slot: `Q`\n- Change class: `entry ownership`\n- Date: `2026-04-02T08:11:00Z`\n"
    "- Commit: `none (failed attempt)`\n\n"
    "- Change summary:\n  - Moved the layout contract to the arrays at the entry.\n\n"
    "- Correctness checks:\n  - Local smoke:\n    - `uv run python -m compileall layers`\n    - result: passed\n"
    "  - Parity on one host:\n    - `uv run pytest tests/test_scan.py -k 'entry or exit'`\n"
    "    - result: `4 passed, 9 deselected`\n"
    "  - Remote:\n    - command: `gdnctl ray-test --tests both`\n    - final result: `92 passed, 2 skipped in "
    "301.00s`\n\n"
    "- Required metrics:\n  - `step_duration_ms: 150.500000 -> 152.250000`\n  - `while: 8.100000 -> 8.000000 ms`\n"
    "  - `scan_shell_topk`:\n    - `Layer/shard/call:` -> `+5.270000 ms`\n    - `Layer/reshape` -> `+2.300000 ms`\n"
    "    - `Layer/add` -> `-0.400000 ms`\n  - `remainder_topk` (ms):\n    - `Head/call` -> `2.700000 ms`\n\n"
    "- Acceptance gate checklist:\n  - Correctness:\n"
    "    - tests command + result: `gdnctl ray-test --tests both` -> `92 passed, 2 skipped`\n"
    "  - Governance:\n    - no promotion; the champion was promoted in iteration 170\n\n"
    "- Assessment: **validated, rejected**. The shell fell by `4.5 ms`, the step did not.\n"
    "- Next bold hypothesis:\n  - Keep the boundary, cut the reshape: `2.3 ms` of `150 ms`.\n"
    "  - Leave the head alone.\n";

Json ruled(const std::string& assessment, const std::string& commit = "abcdef1") {
    return imported("### Iteration 1 - a\n- Commit: " + commit + "\n" + assessment);
}

}  // namespace

TEST_CASE("import: a late entry's buckets, verdict, commands and hypotheses") {
    const Json record = imported(k_late);
    CHECK(record["topk"]["scan_shell_topk"] ==
          Json::parse(
              R"([{"path":"Layer/shard/call","ms":5.27,"delta":true},{"path":"Layer/reshape","ms":2.3,"delta":true},)"
              R"({"path":"Layer/add","ms":-0.4,"delta":true}])"));
    CHECK(record["topk"]["remainder_topk"] == Json::parse(R"([{"path":"Head/call","ms":2.7}])"));
    CHECK(record["decision"] == "rejected");
    CHECK(record["outcome"] == "rejected");
    CHECK(record["confidence"]["decision"] == 0.8);
    CHECK(record["assessment"] == "**validated, rejected**. The shell fell by `4.5 ms`, the step did not.");
    CHECK(record["next_hypothesis"] ==
          "Keep the boundary, cut the reshape: `2.3 ms` of `150 ms`. Leave the head alone.");
    CHECK(record["change_class"] == "entry ownership");
    REQUIRE(record["checks"].size() == 2);
    CHECK(record["checks"][0]["command"] == "uv run pytest tests/test_scan.py -k 'entry or exit'");
    CHECK(record["checks"][0]["passed"] == 4);
    CHECK(record["checks"][1]["command"] == "gdnctl ray-test --tests both");
    CHECK(record["checks"][1]["passed"] == 92);
    CHECK(record["metrics"]["step_duration_ms"]["after"] == 152.25);
    CHECK(record["extra_metrics"].empty());
    // What is rendered from it is read the same.
    const Json again = imported(render_entry(record, {.max_bytes = 0}));
    for (const char* field : {"topk", "metrics", "checks", "decision", "outcome", "next_hypothesis", "assessment"}) {
        CHECK_MESSAGE(again[field] == record[field], field);
    }
}

TEST_CASE("import: lists of buckets below any kind of heading") {
    const std::string items = "    - path: 5.21 ms\n    - `other path` (`3.00 ms`)\n    - third => 250 us (`1%`)\n";
    const Json below = imported("### Iteration 1 - a\n- Metrics:\n  - Remainder top-k:\n" + items);
    CHECK(below["topk"]["Remainder top-k"] == Json::parse(R"([{"path":"path","ms":5.21},{"path":"third","ms":0.25}])"));
    CHECK(imported("### Iteration 1 - a\n- `x_topk`\n  - a -> `1 ms`\n")["topk"]["x_topk"].size() == 1);
    CHECK(imported("### Iteration 1 - a\n#### x_topk\n- a -> `1 ms`\n- b -> `2 ms`\n")["topk"]["x_topk"].size() == 2);
    CHECK(
        imported("### Iteration 1 - a\n`x_topk`:\n\n- a -> `1 ms`\n\nOther words:\n\n- b -> `2 ms`\n")["topk"]["x_topk"]
            .size() == 1);
    const Json no_list = imported("### Iteration 1 - a\n- x_topk:\n  - while: `1 ms -> 2 ms`\n  - words only\n");
    CHECK(no_list["topk"].empty());
    CHECK(no_list["metrics"]["while_ms"]["after"] == 2);
    // A second list without readable lines does not take the place of the first.
    CHECK(
        imported("### Iteration 1 - a\n- x_topk: a: 1 ms; b: 2 ms\n- Gate:\n  - x_topk: see above\n")["topk"]["x_topk"]
            .size() == 2);
}

TEST_CASE("import: what an assessment says is the decision") {
    const auto is = [](const Json& record, const char* decision, const char* outcome) {
        CHECK(json::text(record, "decision") == decision);
        CHECK(json::text(record, "outcome") == outcome);
    };
    is(ruled("- Assessment: **validated, rejected, and reverted**. x\n"), "rejected", "rejected");
    is(ruled("- Assessment: **validated, regressed, and reverted**. x\n"), "regression", "rejected");
    is(ruled("- Assessment: **low-impact / regression (failed attempt)**. x\n"), "low-impact", "rejected");
    is(ruled("- Assessment: **validated, attribution-only, and high-information**. x\n"), "attribution-only", "no-op");
    is(ruled("- Assessment: **validated and improved**. Not rejected.\n"), "accepted", "accepted");
    is(ruled("- Assessment: validated, promoted. The rejected cut of before stays away.\n"), "promoted", "accepted");
    is(ruled("- Assessment:\n  - **validated, rejected**\n  - the promoted one stays\n"), "rejected", "rejected");
    is(ruled("- Assessment: **validated, not promoted**\n"), "", "");
    is(ruled("- Decision: promoted\n- Assessment: rejected in the first run\n"), "promoted", "accepted");
    is(ruled("- Note: the champion was promoted long ago\n", "none (slower)"), "", "");
    is(imported("### Iteration 1 - a (validated, regressed, reverted)\n- Assessment: slower than before\n"),
       "regression", "rejected");
    is(imported("### Iteration 1 - pending)\n- Note: a parenthesis that was never opened\n"), "", "");
}

TEST_CASE("import: every result has the command that stands nearest before it") {
    const auto command = [](const std::string& lines, std::size_t index = 0) {
        const Json record = imported("### Iteration 1 - a\n- Correctness checks:\n" + lines);
        REQUIRE(record["checks"].size() > index);
        return json::text_at(record["checks"][index], "/command");
    };
    const std::string two =
        "  - Command: `first`\n  - Result: `1 passed`\n  - Command: `second`\n  - Result: `2 passed`\n";
    CHECK(command(two, 0) == "first");
    CHECK(command(two, 1) == "second");
    CHECK(command("  - Command: `first`, then `second`\n  - Result: `1 passed`\n") == "`first`, then `second`");
    CHECK(command("  - Command: `first`\n  - On the TPU:\n    - result: `1 passed`\n") == "first");
    CHECK(command("  - `first`\n    `1 passed`\n") == "first");
    CHECK(command("  - `1 passed`\n  - `2 passed`\n", 1).empty());
    CHECK(command("  - Local:\n    - `first`\n  - Remote:\n    - result: `1 passed`\n").empty());
    const Json gate = imported(
        "### Iteration 1 - a\n- Acceptance gate checklist:\n  - Correctness:\n"
        "    - tests: `run both` → `92 passed`\n");
    REQUIRE(gate["checks"].size() == 1);
    CHECK(gate["checks"][0]["command"] == "run both");
}

TEST_CASE("import: comments are kept, and are no part of what is shown") {
    const Json record = imported(
        "### Iteration 1 - a\n- Next hypothesis: overlap\n  <!-- or not\n  - Commit: (pending) -->\n"
        "<!-- draft -->\n");
    CHECK(record["next_hypothesis"] == "overlap");
    CHECK(record["raw"]["comments"].size() == 3);
    CHECK(record["commit_status"].is_null());
}

TEST_CASE("import: a next hypothesis in every form that people write") {
    const auto next = [](const std::string& lines) {
        const Json record = imported("### Iteration 1 - a\n- Date: 2026-03-12\n" + lines);
        // What is rendered from it is read the same.
        CHECK(json::text_at(imported(render_entry(record, {.max_bytes = 0})), "/next_hypothesis") ==
              json::text(record, "next_hypothesis"));
        return json::text(record, "next_hypothesis");
    };
    const std::string label = "- Next bold hypothesis:\n";
    CHECK(next(label + "  - a one\n  - b two\n") == "a one; b two");
    CHECK(next(label + "  1. a one\n  2) b two\n") == "a one; b two");
    CHECK(next(label + "  - a one\n    goes on\n  - b two\n") == "a one goes on; b two");
    CHECK(next(label + "\n  * a one\n\n  * b two\n\n") == "a one; b two");
    CHECK(next(label + "  - a one\n  - b two\n  1. c\n") == "a one; b two; c");
    CHECK(next("- Next bold hypothesis (ranked):\n  - a one\n    - detail\n  - b two\n") == "a one; detail; b two");
    CHECK(next("- Next bold hypothesis: pick of\n  - a one\n  - b two\n") == "pick of: a one; b two");
    CHECK(next("- **Next bold hypothesis**: one\n  and more\n") == "one and more");
    CHECK(next("- Next bold hypotheses:\n  - a one\n") == "a one");
    CHECK(next(label + "  - run\n    ```\n    x -y\n    ```\n") == "run x -y");
    CHECK(next("- Next hypothesis: one\n\nA paragraph of the entry.\n") == "one");
    CHECK(next("#### Next bold hypothesis\n\n- a one\n- b two\n") == "a one; b two");
    CHECK(next("#### Next hypothesis (bold):\n\nOne.\nTwo.\n\n#### Notes\n- x\n") == "One. Two.");
    CHECK(next("#### Next hypothesis\n- a\n- Commit: none (x)\n- b\n") == "a");
    // The lines themselves stay.
    const Json record = imported("### Iteration 1 - a\n" + label + "  1. a one\n  2. b two\n");
    CHECK(render_entry(record).find(label + "  1. a one\n  2. b two\n") != std::string::npos);
    CHECK(render_entry(record).find("Next hypothesis") == std::string::npos);
}

TEST_CASE("import: decisions in bold words of any number") {
    const auto decision = [](const std::string& words) {
        return json::text_at(imported("### Iteration 1 - a\n- Commit: none (x)\n- Assessment: " + words + "\n"),
                             "/decision");
    };
    CHECK(decision("**validated**, **rejected**") == "rejected");
    CHECK(decision("**Validated** / **rejected**: slower") == "rejected");
    CHECK(decision("**validated** and **promoted**.") == "promoted");
    CHECK(decision("**validated**, rejected") == "rejected");
    CHECK(decision("**validated**. Iteration 3 was **rejected**") == "");
    CHECK(decision("**validated, within threshold**, not **promoted**") == "within_threshold");
}

TEST_CASE("import: no result gets the command of another one") {
    using Pairs = std::vector<std::pair<std::string, std::int64_t>>;
    const auto pairs = [](const std::string& lines) {
        Pairs out;
        const Json record = imported("### Iteration 1 - a\n- Correctness checks:\n" + lines);
        for (const Json& check : record["checks"]) {
            out.emplace_back(json::text(check, "command"), json::integer(check, "passed").value_or(-1));
        }
        return out;
    };
    const Pairs both = {{"t a.py", 12}, {"t b.py", 13}};
    CHECK(pairs("  - `t a.py`\n    - `12 passed in 3s`\n  - `t b.py`:\n    - Result: `13 passed`\n") == both);
    CHECK(pairs("  - Command: `t a.py`\n    - Result: `12 passed`\n  - Command: `t b.py`\n    - `13 passed`\n") ==
          both);
    CHECK(pairs("  - Commands:\n    - `t a.py`\n    - t b.py\n  - Results:\n    - `12 passed`\n    - `13 passed`\n") ==
          both);
    CHECK(pairs("  - Command (one): `t a.py`\n  - Result (one): `12 passed`\n  - Command (two): `t b.py`\n"
                "  - Result (two): `13 passed`\n") == both);
    CHECK(pairs("  - `t a.py`\n  - `t b.py`\n  - `12 passed`\n  - `13 passed`\n") == both);
    CHECK(pairs("  - `t a.py`: `12 passed`\n  - x: `t b.py` => `13 passed`\n") == both);
    CHECK(pairs("  - pytest a.py -> 14 passed\n  - kernels -> 3 passed\n") == Pairs{{"pytest a.py", 14}, {"", 3}});
    const Pairs one = {{"t a.py -k \"x y\"", 13}};
    CHECK(pairs("  - Command:\n    `t a.py -k \"x y\"`\n  - Result: `13 passed`\n") == one);
    CHECK(pairs("  - Command:\n    ```bash\n    $ t a.py \\\n      -k \"x y\"\n    ```\n  - Result: `13 passed`\n") ==
          one);
    CHECK(pairs("  - Command: `t a.py\n    -k \"x y\"`\n    - Result: `13 passed`\n") == one);
    // Three commands and two results: nobody knows which is whose.
    CHECK(pairs("  - `a`\n  - `b`\n  - `c`\n  - `1 passed`\n  - `2 passed`\n") == Pairs{{"", 1}, {"", 2}});
    CHECK(pairs("  - Command: `a`\n  - Local:\n    - `1 passed`\n  - Remote:\n    - `2 passed`\n") ==
          Pairs{{"a", 1}, {"a", 2}});
    const Json head = imported("### Iteration 1 - a\n- Correctness checks (`t a.py`): 4 passed\n");
    CHECK(json::text_at(head, "/checks/0/command") == "t a.py");
}

TEST_CASE("import: several buckets on one line") {
    const auto topk = [](const std::string& line) {
        return imported("### Iteration 1 - a\n- x_topk:\n  - " + line + "\n")["topk"]["x_topk"];
    };
    const Json two = Json::parse(R"([{"path":"a/b","ms":5.27,"delta":true},{"path":"c","ms":1.0,"delta":true}])");
    CHECK(topk("`a/b` -> `+5.27 ms`, `c` -> `+1.0 ms`") == two);
    CHECK(topk("`a/b` -> `+5.27 ms`; `c` -> `+1.0 ms`, see above") == two);
    CHECK(topk("a, b: 5 ms") == Json::parse(R"([{"path":"a, b","ms":5.0}])"));
    CHECK(topk("`f(a, b)` -> `5 ms` (3, 4)") == Json::parse(R"j([{"path":"f(a, b)","ms":5.0}])j"));
    CHECK(imported("### Iteration 1 - a\n- x_topk: `a/b` -> `+5.27 ms`, `c` -> `+1.0 ms`\n")["topk"]["x_topk"] == two);
}
