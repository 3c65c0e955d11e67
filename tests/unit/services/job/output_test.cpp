#include "services/job/output.h"

#include <doctest/doctest.h>

namespace gdnctl {

TEST_CASE("job output: pytest summaries") {
    const auto c =
        parse_pytest_summary("================ 87 passed, 2 skipped, 14 warnings in 123.45s (0:02:03) ======");
    REQUIRE(c);
    CHECK(c->passed == 87);
    CHECK(c->skipped == 2);
    CHECK(c->failed == 0);
    CHECK(*c->seconds == doctest::Approx(123.45));
    const auto red = parse_pytest_summary(
        "\x1b[31m===== \x1b[1m1 failed\x1b[0m, 49 passed, 40 skipped, 3 errors in 2.00s =====\x1b[0m");
    REQUIRE(red);
    CHECK(red->failed == 1);
    CHECK(red->skipped == 40);
    CHECK(red->errors == 3);
    CHECK(parse_pytest_summary("3 passed, 1 xfailed, 2 xpassed, 5 deselected in 0.10s")->deselected == 5);
    CHECK(parse_pytest_summary("==== no tests ran in 0.01s ====")->passed == 0);
    for (const char* no : {"", "87 passed", "we passed in 3s", "5 apples in 2s",
                           "==== 5 apples in 2s ====", "tests/test_a.py::test_b PASSED [ 10%]", "took 3 passed in",
                           "-1 passed in 1s", "1 passed in nans", "===== in 1s ====="}) {
        CHECK_MESSAGE(!parse_pytest_summary(no), no);
    }
}

TEST_CASE("job output: the device line counts at the start of a line only") {
    const auto d = parse_device_line(R"(GDNCTL_DEVICE {"backend":"tpu","count":4})");
    REQUIRE(d);
    CHECK(d->backend == "tpu");
    CHECK(d->count == 4);
    CHECK_FALSE(parse_device_line(R"(echo GDNCTL_DEVICE {"backend":"tpu","count":4})"));
    CHECK_FALSE(parse_device_line("GDNCTL_DEVICE {"));
    CHECK_FALSE(parse_device_line("GDNCTL_DEVICE []"));
    CHECK_FALSE(parse_device_line(R"(GDNCTL_DEVICE {"backend":7})"));
}

TEST_CASE("job output: verdict lines") {
    CHECK(parse_verdict_line("verdict: OK") == "OK");
    CHECK(parse_verdict_line("  verdict: UNSTABLE_INPUT (worst at 3)") == "UNSTABLE_INPUT");
    CHECK_FALSE(parse_verdict_line("the verdict: OK"));
    CHECK_FALSE(parse_verdict_line("verdict: fine"));
    CHECK(parse_oracle_item("vector gdn_C1.hf.outputs.safetensors    WRONG     7 x budget")->vector);
    CHECK_FALSE(parse_oracle_item("case   base_T16      OK      0.03 x budget")->vector);
    for (const char* no : {"", "case", "case a", "case a FINE", "  worst: out[1]", "cases a OK"}) {
        CHECK_FALSE(parse_oracle_item(no));
    }
}

TEST_CASE("job output: lines of a set of oracle cases") {
    const auto crossed = parse_oracle_summary("crossed: 90 OK, 6 WRONG");
    REQUIRE(crossed);
    CHECK_FALSE(crossed->vectors);
    CHECK(crossed->counts == std::map<std::string, std::int64_t>{{"OK", 90}, {"WRONG", 6}});
    CHECK(parse_oracle_summary("golden: 4 OK, 1 UNSTABLE_INPUT as expected")->counts.at("UNSTABLE_INPUT") == 1);
    CHECK(parse_oracle_summary("vectors: 3 OK")->vectors);
    for (const char* no :
         {"", ": 3 OK", "crossed backward: 3 OK", "relations: 3 OK", "decode: 3 OK", "crossed: OK", "crossed: 3 FINE",
          "crossed: 3", "crossed: -1 OK", "Crossed: 3 OK", "verdict: OK (3 cases)"}) {
        CAPTURE(no);
        CHECK_FALSE(parse_oracle_summary(no));
    }
    // Lines of items are details where sets are summarised.
    JobOutput out;
    out.feed(
        "case   t_hand   OK   0.1 x budget\nmarin-tests: 1 OK\ncrossed: 2 OK, 2 WRONG\ncrossed backward: 3 OK\n"
        "case   crossed_003   WRONG   7 x budget\n       and 1 other: crossed_004\nverdict: WRONG\n");
    out.finish();
    CHECK(out.verdicts().cases == 5);
    CHECK(out.verdicts().counts == std::map<std::string, std::int64_t>{{"OK", 3}, {"WRONG", 2}});
}

TEST_CASE("job output: metrics, the last one counts") {
    CHECK(parse_metric("throughput/mfu: 3.25", "throughput/mfu") == doctest::Approx(3.25));
    CHECK(parse_metric("'throughput/mfu': 1.5e-2, 'throughput/mfu' = -7", "throughput/mfu") == doctest::Approx(-7));
    CHECK(parse_metric("throughput/tokens_per_second=+1.2E5 x", "throughput/tokens_per_second") ==
          doctest::Approx(1.2e5));
    CHECK_FALSE(parse_metric("throughput/mfu was measured", "throughput/mfu"));
    CHECK_FALSE(parse_metric("throughput/mfu: nan", "throughput/mfu"));
    CHECK_FALSE(parse_metric("throughput/mfu: inf", "throughput/mfu"));
    CHECK_FALSE(parse_metric("throughput/mfu=nan, throughput/duration=0.1", "throughput/mfu"));
    CHECK(parse_metric("throughput/mfu=nan, throughput/duration=0.1", "throughput/duration") == doctest::Approx(.1));
    CHECK_FALSE(parse_metric("throughput/mfu", "throughput/mfu"));
}

TEST_CASE("job output: run URLs lose what follows them") {
    const std::string url = "https://wandb.ai/ent/proj/runs/abc-1_2";
    CHECK(parse_run_url("wandb: View run at " + url) == url);
    CHECK(parse_run_url("see `" + url + "`.") == url);
    CHECK(parse_run_url(url + "?nw=1") == url);
    CHECK_FALSE(parse_run_url("https://wandb.ai/ent/proj"));
    CHECK_FALSE(parse_run_url("https://wandb.ai/ent/proj/runs/"));
}

TEST_CASE("job output: a log in pieces of any size tells the same") {
    const std::string log =
        "GDNCTL_DEVICE {\"backend\":\"tpu\",\"count\":4}\n"
        "[gdnctl] GDN profile model: all_transformer=0 gdn_layers_per_block=3 gdn_layer_fraction=0.750000\n"
        "Fused cross-entropy selected implementation: xla\n"
        "throughput/mfu: 1.0\ncase   base_T16      OK      0.03 x budget\ncase   nan_T4   NO_DATA   as expected\n"
        "vector gdn_C1.hf.outputs.safetensors OK 0.1 x budget\nverdict: OK\nverdict: WRONG: at 7\r\nthroughput/mfu: "
        "2.0\n"
        "Fused cross-entropy selected implementation: pallas_tpu (auto)\n"
        "wandb: https://wandb.ai/a/b/runs/c.\n"
        "===== 87 passed, 2 skipped in 1.00s =====";
    for (const std::size_t step : {1U, 2U, 7U, 100000U}) {
        JobOutput out;
        for (std::size_t at = 0; at < log.size(); at += step) out.feed(std::string_view(log).substr(at, step));
        out.finish();
        REQUIRE(out.pytest());
        CHECK(out.pytest()->passed == 87);
        CHECK(out.device()->count == 4);
        CHECK(out.verdicts().overall == "WRONG");
        CHECK(out.verdicts().cases == 2);
        CHECK(out.verdicts().vectors == 1);
        CHECK(out.verdicts().counts.at("OK") == 2);
        CHECK(out.profile().mfu == doctest::Approx(2.0));
        CHECK(out.profile().ce_implementation == "pallas_tpu");
        CHECK(out.profile().model.at("gdn_layers_per_block") == "3");
        CHECK(out.profile().run_url == "https://wandb.ai/a/b/runs/c");
        CHECK(out.tail() == log);
    }
}

TEST_CASE("job output: what we say of a metric is no number of the run") {
    JobOutput out;
    out.feed("[gdnctl] metric throughput/mfu: no line of the log matches (regex:throughput/mfu[^0-9eE+-]*([0-9.]+))\n");
    out.finish();
    CHECK_FALSE(out.profile().mfu);
}

TEST_CASE("job output: memory does not grow with the log") {
    JobOutput out;
    const std::string block(1 << 20, 'x');  // one line of 64 MiB
    for (int i = 0; i < 64; ++i) out.feed(block);
    out.feed("\n3 passed in 1s\n");
    out.finish();
    CHECK(out.tail().size() <= 64U << 10);
    CHECK(out.pytest()->passed == 3);
}

}  // namespace gdnctl
