#include "runlog/render/render.h"

#include <doctest/doctest.h>

#include "core/json.h"
#include "runlog/history/append.h"
#include "runlog/history/summary.h"
#include "runlog/import/import.h"
#include "runlog/parse/block.h"
#include "runlog/parse/log.h"
#include "unit/runlog/entry_fixture.h"

using namespace gdnctl;
using namespace gdnctl::runlog;
using namespace gdnctl::runlog::test;

namespace {

Json sample(std::int64_t number = 7) {
    Json record = empty_record(make_record_id(k_time, {number, ""}), {number, ""}, k_time);
    record["title"] = "A title";
    record["commit_status"] = "none";
    record["commit_reason"] = "failed attempt";
    return record;
}

// The values that gates and summaries read: everything given, nothing derived.
std::string values_of(const Entry& entry) {
    std::string text =
        std::to_string(static_cast<int>(entry.commit_value.kind)) + std::string(entry.commit_value.text) + "\n";
    for (const Metric& m : entry.metrics) {
        if (m.derived) continue;
        text += fmt::format("{} {} {} {}{} {}\n", m.key, m.before.value_or(-1e99), m.after.value_or(-1e99),
                            m.before_text, m.after_text, name_of(m.comparison));
    }
    for (const TopK& t : entry.topk) {
        for (const auto& item : t.items) text += fmt::format("{} {} {}\n", t.key, item.path, item.ms);
    }
    for (const TestCounts& t : entry.tests) {
        text += fmt::format("{} {} {} {}\n", t.passed.value_or(-1), t.failed.value_or(-1), t.skipped.value_or(-1),
                            t.verdict);
    }
    for (const char* label :
         {"Date", "Hypothesis", "Next hypothesis", "Starting commit", "Decision", "Coverage slot"}) {
        if (const Field* f = entry.find(label)) text += fmt::format("{}={}\n", label, strip_marks(f->value));
    }
    return text;
}

}  // namespace

TEST_CASE("render: an entry in template order, each number in one place") {
    Json record = sample();
    record["idea"]["hypothesis"] = "Fewer\nlaunches";
    record["changes"] = Json::array({"one", "two"});
    record["checks"] =
        Json::array({{{"command", "pytest"}, {"exit", 0}, {"passed", 87}, {"failed", 0}, {"skipped", 2}}});
    record["profiles"] =
        Json::array({{{"arm", "candidate"}, {"command", "run"}, {"job_id", "job-1"}, {"trace", {{"path", "t.gz"}}}}});
    record["comparison"]["kind"] = "champion";
    record["metrics"] = {{"while_ms", {{"before", 8.886552}, {"after", 8.978471}}},
                         {"step_duration_ms", {{"before", 167.5}, {"after", nullptr}}},
                         {"throughput/mfu", {{"before", 4.1533}, {"after", 4.2092}}}};
    record["next_hypothesis"] = "wider";
    CHECK(render_entry(record) == R"(### Iteration 7 - A title

- Date: 2026-03-10T16:53:07Z
- Commit: none (failed attempt)
- Hypothesis: Fewer launches
- Change summary:
  - one
  - two
- Correctness checks:
  - Command: `pytest`
  - Result: `87 passed, 2 skipped`
- Profile run:
  - Command: `run`
  - Job ID: `job-1`
  - Trace location: `t.gz`
- Current validated baseline carried in:
  - step duration: `167.500000 ms`
- Hotspots observed (champion vs candidate):
  - while: `8.886552 ms -> 8.978471 ms`
- MFU/throughput delta (champion vs candidate):
  - throughput/mfu: `4.1533 -> 4.2092`
- Next hypothesis: wider
)");
    const std::string block = render_block(record);
    const auto blocks = find_blocks(block);
    REQUIRE(blocks.size() == 1);
    CHECK(blocks[0].id == "20260310T165307Z-7");
    CHECK(blocks[0].intact());
}

TEST_CASE("render: every metric key is read back with the same values and comparison (defect 4)") {
    for (const char* kind : {"champion", "previous", "control", "ab"}) {
        CAPTURE(kind);
        Json record = sample();
        record["comparison"]["kind"] = kind;
        for (const char* key :
             {"ce_attributed_while_ms", "ce_control_budget_ms", "forward_closed_call_ms", "backward_closed_call_ms",
              "while_ms", "conditional_ms", "step_duration_ms", "train_path_budget_ms", "dispatch_shard_shell_delta_ms",
              "xprof_dispatch_shard_shell_delta_ms", "xprof_idle_attributed_ms", "residual_add_shell_budget_ms",
              "interaction_remainder_ms", "upper_bound_gap_ms", "gap_explained_by_train_path", "gdn_layer_fraction",
              "throughput/mfu", "throughput/duration", "throughput/tokens_per_second"}) {
            record["metrics"][key] = {{"before", 0.3972}, {"after", 0.0804123}};
        }
        const Entry entry = parsed(render_entry(record, {.max_bytes = 0}));
        for (const auto& [key, value] : record["metrics"].items()) {
            CAPTURE(key);
            const Metric* metric = entry.metric(key);
            REQUIRE(metric != nullptr);
            CHECK(metric->before == 0.3972);
            CHECK(metric->after == doctest::Approx(0.0804123).epsilon(1e-15));
            CHECK(std::string(name_of(metric->comparison)) == kind);
        }
    }
}

TEST_CASE("render: at most 4 KiB unless asked, cut between characters, with a pointer to the record") {
    Json record = sample();
    for (int i = 0; i < 300; ++i)
        record["changes"].push_back("a change with a rather long description, ünd ümlauts " + std::to_string(i));
    record["idea"]["hypothesis"] = std::string(20000, 'x');
    for (int i = 0; i < 200; ++i) record["extra_metrics"]["m" + std::to_string(i)] = {{"after", i}, {"unit", "ms"}};
    const std::string text = render_entry(record);
    CHECK(text.size() <= 4096);
    CHECK(text.find("more in the record") != std::string::npos);
    CHECK(render_entry(record, {.max_bytes = 0}).size() > 30000);
}

TEST_CASE("render: text of the record cannot break out of its entry") {
    Json record = sample();
    record["title"] = "x\n### Iteration 99 - forged";
    record["changes"] = Json::array({"```", "<!-- gdnctl:end -->", "a\n\n## Section", "- Commit: (pending)"});
    record["assessment"] = "~~~\n### Iteration 98";
    const std::string block = render_block(record);
    const auto document = parse_document(block);
    REQUIRE(document);
    CHECK(document->entries.size() == 1);
    CHECK(!document->unclosed);
    const auto blocks = find_blocks(block);
    REQUIRE(blocks.size() == 1);
    CHECK(blocks[0].intact());
    CHECK(blocks[0].whole.size() + 1 == block.size());
}

TEST_CASE("render: placing twice changes nothing, whatever the line endings") {
    for (const std::string ending : {"\n", "\r\n", "\r"}) {
        CAPTURE(ending.size());
        std::string log;
        for (const char c : log_head(Template::hillclimb)) log += c == '\n' ? ending : std::string(1, c);
        const std::vector<Json> records = {sample(0), sample(1), sample(3)};
        const auto once = place_records(log, records, records);
        REQUIRE(once);
        CHECK(once->differences.size() == 3);
        CHECK(once->complete());
        const auto twice = place_records(once->text, records, records);
        REQUIRE(twice);
        CHECK(twice->differences.empty());
        CHECK(twice->text == once->text);
        // One that comes late goes where its number belongs.
        const std::vector<Json> more = {sample(0), sample(1), sample(3), sample(2)};
        const auto late = place_records(once->text, more, more);
        const auto document = parse_document(late->text);
        REQUIRE(document->entries.size() == 4);
        for (std::size_t i = 0; i < 4; ++i) CHECK(document->entries[i].number == static_cast<std::int64_t>(i));
    }
}

TEST_CASE("render: a hand-written entry with a record's number is reported, not doubled") {
    const std::vector<Json> records = {sample(7)};
    const auto placement = place_records("### Iteration 7 - by hand\n\n- Commit: none (x)\n", records, records);
    REQUIRE(placement);
    REQUIRE(placement->differences.size() == 1);
    CHECK(placement->differences[0].kind == Difference::Kind::unmarked);
    CHECK(!placement->complete());
    CHECK(placement->text == "### Iteration 7 - by hand\n\n- Commit: none (x)\n");
}

TEST_CASE("render: a begin marker without its end is reported and left alone") {
    const std::vector<Json> records = {sample(7)};
    std::string log = render_block(records[0]);
    log.resize(log.find("<!-- gdnctl:end"));
    const auto placement = place_records(log, records, records);
    REQUIRE(placement->differences.size() == 1);
    CHECK(placement->differences[0].kind == Difference::Kind::unclosed);
    CHECK(placement->text == log);
}

TEST_CASE(
    "import: no parsed value is lost between an entry, its record and the record's entry (10.7 to 10.11, 10.14)") {
    const std::string entries[] = {
        "### Iteration 10\n\n- Forward closed-call: `41.000 ms -> 20.000 ms`\n- Backward closed-call: `26.000 ms -> "
        "13.000 "
        "ms`\n- while: `0.000 ms -> 0.000 ms`\n- conditional: `0.000 ms -> 0.000 ms`\n",
        "### Iteration 11 - x\n\n- Forward closed-call `shard_map/pallas_call`: `41.000 ms -> 19.000 ms`\n- Backward "
        "closed-call: `26.000 ms -> 12.000 ms`\n- `while: 0.000 ms -> 31.500 ms`\n* **conditional:** 0.000 ms → 0.000 "
        "ms\n",
        "### Iteration 12a - y\n\n- Date: `2026-02-18`\n- Commit: `none (failed attempt; code reverted after "
        "measurement)`\n"
        "- Starting commit: 0123456789abcdef0123456789abcdef01234567\n- Coverage slot: S2\n- Hypothesis: two\n"
        "- Hotspots observed (champion vs candidate):\n  - `CE-attributed while`: `31.600 ms -> 28.500 ms`\n"
        "  - Decoder-layer shell budget: `61.2 ms -> 55 ms`\n  - step_duration_ms=167.098\n  - while: n/a\n"
        "  - Gap explained by train-path: 39.72% -> 8.04%\n  - CE backend selected: pallas_tpu -> xla\n"
        "- remainder_topk: a/b: 5.21 ms; c 2.70 ms; d: +1.83 ms\n"
        "- MFU/throughput delta: throughput/mfu: `4.1533 -> 4.2092` (`+1.34%`)\n- Next hypothesis: three\n"
        "\nSome prose with `while` dropped from `1751.883 ms`.\n\n- Unknown field: kept\n  - nested: also\n",
        "### Iteration 93 - control\n\n- Commit: this commit\n- Metrics (fresh attention-only control -> fresh hybrid "
        "rerun):\n"
        "  - Forward closed-call: `0.000 ms -> 20.663477 ms`\n  - Step duration: `57.26 ms -> 167.79 ms`\n"
        "- Correctness checks:\n  - Command: `pytest x`\n  - Result: `88 passed, 2 skipped in 231.29s (0:03:51)`\n",
        "### Iteration 5 - baseline\n\n- Commit: (pending)\n- Current validated baseline carried in:\n  - while: `8.8 "
        "ms`\n"
        "- Correctness checks: OK\n"};
    for (const std::string& text : entries) {
        CAPTURE(text);
        const Json record = imported(text);
        CHECK(check_record(record, "imported"));
        CHECK(json::text(record, "source") == "import");
        const auto again = parse_json(to_text(record), "record");
        REQUIRE(again);
        const std::string rendered = render_entry(*again, {.max_bytes = 0});
        CAPTURE(rendered);
        CHECK(values_of(parsed(rendered)) == values_of(parsed(text)));
        // Importing what was rendered gives the same fields again.
        Json second = imported(rendered);
        for (const char* key : {"metrics", "extra_metrics", "topk", "checks", "commit_status", "commits", "idea"}) {
            CAPTURE(key);
            CHECK(second[key] == record[key]);
        }
    }
}

TEST_CASE("import: fields go where the schema has them, the rest stays verbatim") {
    const Json record = imported(
        "### Iteration 3 - t\n\n- Date: 2026-02-18T12:55:20Z\n- Commit: 0123abc\n- Codex loop iteration: 8 / 10\n"
        "- Selected hypothesis: h\n- Change summary:\n  - a\n  - b\n- Profile run:\n  - Command: `p`\n  - Ray job: "
        "`j`\n"
        "  - Trace location: `t`\n- Assessment: promoted\n- Odd: kept\n  - deeper: `1`\n");
    CHECK(id_of(record) == "20260218T125520Z-3");
    CHECK(json::texts(record, "commits") == std::vector<std::string>{"0123abc"});
    CHECK(json::integer_at(record, "/loop/index") == 8);
    CHECK(json::text_at(record, "/idea/hypothesis") == "h");
    CHECK(json::texts(record, "changes") == std::vector<std::string>{"a", "b"});
    CHECK(json::text_at(record, "/profiles/0/job_id") == "j");
    CHECK(json::text_at(record, "/profiles/0/trace/path") == "t");
    CHECK(json::text(record, "outcome") == "accepted");
    CHECK(json::number_at(record, "/confidence/outcome") == 0.8);
    CHECK(json::texts_at(record, "/raw/fields").back() == "- Odd: kept\n  - deeper: `1`");
}

TEST_CASE("import: numbers given twice, entries that changed, generated entries") {
    const std::string log =
        "### Iteration 4\n\n- Commit: none (a)\n\n### Iteration 4\n\n- Commit: none (b)\n\n" + render_block(sample(5));
    auto first = import_log(log, {}, k_time);
    REQUIRE(first);
    CHECK(first->records.size() == 2);
    CHECK(first->generated == 1);
    CHECK(id_of(first->records[0]) != id_of(first->records[1]));
    auto again = import_log(log, first->records, k_time);
    CHECK(again->records.empty());
    CHECK(again->unchanged == 2);
    std::string changed = log;
    changed.replace(changed.find("none (b)"), 8, "none (c)");
    auto third = import_log(changed, first->records, k_time);
    REQUIRE(third->records.size() == 1);
    CHECK(replaced_id(third->records[0]) == id_of(first->records[1]));
    CHECK(json::text(third->records[0], "commit_reason") == "c");
}

TEST_CASE("stamp: only the last entry, only the two placeholders, nothing else touched (10.13, case 21)") {
    const std::string log =
        "### Iteration 1 - a\n\n- Commit: abc123\n\n### Iteration 2 - b\n- Commit: this commit\n- x\n";
    auto stamp = stamp_last_entry(log, "deadbeef");
    REQUIRE(stamp);
    CHECK(stamp->stamped);
    CHECK(stamp->text == "### Iteration 1 - a\n\n- Commit: abc123\n\n### Iteration 2 - b\n- Commit: deadbeef\n- x\n");
    CHECK(!stamp_last_entry(stamp->text, "cafe")->stamped);
    CHECK(stamp_last_entry("### Iteration 2\r\n  - Commit: (pending)", "deadbeef")->text ==
          "### Iteration 2\r\n  - Commit: deadbeef\r\n");
    // From the end upwards: the last bullet decides.
    CHECK(!stamp_last_entry("### Iteration 2\n- Commit: this commit\n- Commit: 0123456\n", "deadbeef")->stamped);
    // An older entry is not stamped for one that has no bullet.
    CHECK(!stamp_last_entry("### Iteration 1\n- Commit: this commit\n### Iteration 2\n", "deadbeef")->stamped);
    CHECK(!stamp_last_entry("", "deadbeef")->stamped);
    CHECK(!stamp_last_entry("# only a head\n- Commit: this commit\n", "deadbeef")->stamped);
    // Examples in fences are not stamped.
    CHECK(!stamp_last_entry("### Iteration 1\n```\n- Commit: this commit\n```\n", "deadbeef")->stamped);
}

TEST_CASE("append: numbers, template and the job's outcome") {
    CHECK(next_iteration(*parse_document(log_head(Template::hillclimb)), {}).text() == "0");
    CHECK(next_iteration(*parse_document("### Iteration 12b\n"), {sample(9)}).text() == "13");
    CHECK(template_of(*parse_document(log_head(Template::experiment))) == Template::experiment);
    CHECK(template_of(*parse_document(log_head(Template::hillclimb))) == Template::hillclimb);
    Json job = {{"schema", "gdnctl.ray-test/1"},
                {"submission_id", "j"},
                {"status", "FAILED"},
                {"message", "Job supervisor actor died: x\nmore"},
                {"error_type", "JOB_SUPERVISOR_ACTOR_DIED"},
                {"failure_class", "infra"},
                {"driver_exit_code", nullptr}};
    Json record = sample();
    REQUIRE(add_job(record, job));
    CHECK(json::text(record, "outcome") == "infra");
    CHECK(json::text_at(record, "/infra/0/signature") == "Job supervisor actor died: x");
    CHECK(render_entry(record).find("FAILED: Job supervisor actor died: x") != std::string::npos);
    job["status"] = "RUNNING";
    CHECK(add_job(record, job).error().kind == ErrorKind::usage);
    CHECK(add_job(record, Json::array()).error().kind == ErrorKind::bad_input);
    // What the oracle says at the end counts, unless an item was judged worse; pytest counts come before both.
    job = {{"schema", "gdnctl.ray-wait/1"}, {"submission_id", "j"}, {"status", "SUCCEEDED"}, {"kind", "test"},
           {"entrypoint", "./judge --all"}, {"driver_exit_code", 0}};
    const auto result_of = [&](const Json& verdict) {
        job["verdict"] = verdict;
        Json into = sample();
        into["checks"] = Json::array();
        REQUIRE(add_job(into, job));
        CHECK(json::text_at(into, "/checks/0/command") == "./judge --all");
        CHECK(json::text_at(into, "/checks/0/name") == "ray-test");
        return render_check_result(into["checks"][0]);
    };
    CHECK(result_of(
              {{"overall", "OK"}, {"cases", 68}, {"vectors", 0}, {"counts", {{"OK", 66}, {"UNSTABLE_INPUT", 2}}}}) ==
          "OK (68 cases: 66 OK, 2 UNSTABLE_INPUT)");
    CHECK(result_of({{"overall", "OK"}, {"cases", 1}, {"vectors", 2}, {"counts", {{"OK", 2}, {"WRONG", 1}}}}) ==
          "WRONG (1 case, 2 recorded vectors: 2 OK, 1 WRONG)");
    CHECK(result_of({{"overall", "NO_DATA"}, {"cases", 0}, {"vectors", 0}, {"counts", Json::object()}}) == "NO_DATA");
    CHECK(result_of(nullptr) == "OK");
    job["tests"] = {{"passed", 87}, {"skipped", 2}, {"failed", 0}};
    CHECK(result_of({{"overall", "OK"}}) == "87 passed, 2 skipped");
    Json profile = {{"schema", "gdnctl.ray-profile/1"},
                    {"submission_id", "p"},
                    {"status", "SUCCEEDED"},
                    {"profile", {{"mfu", 6.02616}, {"duration_s", 0.5}, {"run_url", "https://wandb.ai/a/b/runs/c"}}}};
    record = sample();
    REQUIRE(add_job(record, profile));
    CHECK(json::number_at(record, "/metrics/throughput~1mfu/after") == std::nullopt);  // pointers here do not escape
    CHECK(record["metrics"]["throughput/mfu"]["after"] == 6.02616);
    CHECK(to_text(record).find(R"({"before":null,"after":0.5,"source":"profile"})") != std::string::npos);
    CHECK(json::text_at(record, "/profiles/0/run_url") == "https://wandb.ai/a/b/runs/c");
}

TEST_CASE("summary and context: champions, best by slot, failures, and never more bytes than asked") {
    std::vector<Json> history;
    for (std::int64_t i = 0; i < 40; ++i) {
        Json record = sample(i);
        record["title"] = "iteration with ümlauts " + std::to_string(i);
        record["coverage_slot"] = i % 2 == 0 ? "A" : "B";
        record["metrics"]["step_duration_ms"] = {{"before", 160.0}, {"after", 160.0 - static_cast<double>(i)}};
        record["outcome"] = i % 4 == 0 ? "accepted" : "rejected";
        if (i % 4 == 0) record["decision"] = "promoted";
        history.push_back(std::move(record));
    }
    const auto objective = choose_objective(history, {"unused/metric", false});
    CHECK(objective.key == "step_duration_ms");
    CHECK(objective.lower_is_better);
    const Json summary = summarize(history, objective);
    CHECK(summary["champions"].size() == 10);
    CHECK(summary["failures"]["rejected"] == 30);
    REQUIRE(summary["best_by_slot"].size() == 2);
    CHECK(summary["best_by_slot"][1]["iteration"] == "39");
    CHECK(summary["best_by_slot"][1]["gain_pct"].get<double>() == doctest::Approx(100 * (160.0 / 121 - 1)));
    CHECK(summary_text(summary).find("best gain by slot") != std::string::npos);
    for (std::size_t bytes = 0; bytes < 9000; bytes += 37) {
        const std::string text = context_pack(history, objective, bytes);
        REQUIRE(text.size() <= bytes);
        CHECK((text.empty() || text.back() == '\n'));
    }
    const std::string pack = context_pack(history, objective, 8192);
    CHECK(pack.find("Champion: iteration 36") != std::string::npos);
    CHECK(pack.find("### Iteration 39") != std::string::npos);
    CHECK(pack.find("- 0 iteration") != std::string::npos);
    CHECK(context_pack({}, {}, 8192) == "# Running log: no iterations yet\n");
}
