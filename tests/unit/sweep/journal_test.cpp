#include <doctest/doctest.h>

#include "unit/sweep/logs.h"

namespace gdnctl::sweep {

namespace {

std::string end_line(const std::string& key, std::int64_t run, const RunEnd& end) {
    JournalEvent e;
    e.kind = JournalEvent::Kind::end;
    e.key = key;
    e.label = "b1024_h512_v1024";
    e.shape = {131072, 512, 128256};
    e.sizes = BlockSizes{};
    e.run = run;
    e.end = end;
    return to_line(e) + "\n";
}

RunEnd timed(double seconds) {
    RunEnd end;
    end.steady_time_s = end.step_s = seconds;
    return end;
}

std::string plan_line() {
    JournalEvent e;
    e.device_kind = "TPU v5";
    e.x_dtype = "bf16";
    e.accum_dtype = "float32";
    e.implementation = "pallas_tpu";
    return to_line(e) + "\n";
}

}  // namespace

TEST_CASE("sweep journal: every event is read as it was written") {
    RunEnd end;
    end.status = ResultStatus::failed;
    end.failure = {FailureKind::vmem_oom, 20.0, 16.0};
    end.error = "no \"room\"\n";
    end.wall_s = 2;
    end.time_limit_s = 9;
    for (const std::string& line : {plan_line(), end_line("k", 2, timed(0.25)), end_line("k", 0, end)}) {
        const auto event = parse_journal_event(line);
        REQUIRE(event.has_value());
        CHECK(to_line(*event) + "\n" == line);
    }
    CHECK(!parse_journal_event("{}"));
    CHECK(!parse_journal_event("{\"schema\":\"gdnctl.sweep-journal/1\",\"event\":\"other\"}"));
    CHECK(!parse_journal_event("{\"schema\":\"gdnctl.sweep-journal/1\",\"event\":\"end\",\"key\":\"k\"}"));
}

TEST_CASE("sweep journal: a journal is a log like any other") {
    const std::string text = plan_line() + end_line("k", 0, timed(9)) + end_line("k", 1, timed(0.25)) +
                             end_line("k", 2, timed(0.27)) + end_line("k", 3, timed(0.26)) +
                             "config infer None\nsteady_time_s 1\ntokens_per_s 2\n";
    Report report = report_of(text);
    REQUIRE(report.results.size() == 2);
    const Measured& m = report.results[0];
    CHECK(m.record.script == Script::sweep);
    CHECK(m.record.line == 2);
    CHECK(m.record.x_dtype == "bfloat16");
    REQUIRE(m.record.spread.has_value());
    CHECK(m.record.spread->runs == 3);
    CHECK(m.record.spread->median_s == 0.26);
    CHECK(m.record.spread->mad_s == doctest::Approx(0.01));
    CHECK(m.step_tok_s == doctest::Approx(131072 / 0.26));
    CHECK(m.bucket == "large-batch-small-h");
    CHECK(report.results[1].record.line == 6);
}

TEST_CASE("sweep journal: a failure of its own counts, a lost run does not") {
    RunEnd lost;
    lost.status = ResultStatus::failed;
    lost.failure.kind = FailureKind::infra;
    RunEnd oom = lost;
    oom.failure.kind = FailureKind::vmem_oom;
    CHECK(only(plan_line() + end_line("k", 0, lost)).record.failure.kind == FailureKind::infra);
    CHECK(only(end_line("k", 0, timed(1)) + end_line("k", 1, lost) + end_line("k", 1, timed(1))).record.status ==
          ResultStatus::ok);
    CHECK(only(end_line("k", 0, timed(1)) + end_line("k", 1, oom)).record.failure.kind == FailureKind::vmem_oom);
}

TEST_CASE("sweep journal: median and spread") {
    CHECK(!spread_of({}));
    CHECK(spread_of({3, 1, 2})->median_s == 2);
    CHECK(spread_of({4, 1, 2, 3})->median_s == 2.5);
    CHECK(spread_of({1, 1, 10})->mad_s == 0);
}

}  // namespace gdnctl::sweep
