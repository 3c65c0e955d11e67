// What an import keeps of entries that people wrote.
#include "gdnctl/services/runlog/import.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "gdnctl/services/runlog/log.h"
#include "gdnctl/services/runlog/render.h"
#include "gdnctl/services/runlog/summary.h"
#include "unit/services/runlog/entry_fixture.h"

using namespace gdnctl;
using namespace gdnctl::runlog;
using namespace gdnctl::runlog::test;

TEST_CASE("import: values of several arms stay with their arm; a heading that says nothing is an unknown comparison") {
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
