// The tables of the kernels' log, from the lines behind them.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "unit/sweep/logs.h"

namespace gdnctl::sweep {

namespace {

const Comparison& beside(const Report& report, std::string_view implementation, const Shape& shape) {
    for (const Comparison& c : report.comparisons) {
        if (c.implementation == implementation && c.shape == shape) return c;
    }
    FAIL("no such comparison");
    return report.comparisons.front();
}

std::string percent(std::optional<double> ratio) { return ratio_text(ratio); }

std::size_t count(const Report& report, FailureKind kind) {
    std::size_t n = 0;
    for (const Measured& m : report.results) n += m.record.failure.kind == kind ? 1 : 0;
    return n;
}

}  // namespace

TEST_CASE("the sweep of 25 configurations: 9 ran, and the best is 607,500 a chip") {
    const Report report = seed("2026-02-17_tune_v5p.log", {}, {"TPU v5", "", {}});
    CHECK(report.results.size() == 25);
    CHECK(count(report, FailureKind::vmem_oom) == 16);
    REQUIRE(report.best.size() == 1);
    const Measured& best = report.results[report.best[0]];
    CHECK(best.record.label == "b1024_h512_v1024");
    CHECK(rate_text(best.step_tok_s) == "607,500");
    CHECK(best.bucket == "large-batch-small-h");
    for (const Measured& m : report.results) {
        if (m.record.status == ResultStatus::ok) CHECK(m.corrections.at(0).kind == "shards");
    }
    CHECK(report.warnings.empty());
    CHECK(report_patch(report).find(
              "(\"bfloat16\", \"large-batch-small-h\"): BlockSizes(b_block_size=1024, h_block_size=512, "
              "v_block_size=1024)") != std::string::npos);
    CHECK(count(seed("2026-02-17_tune_v5p_xla.log"), FailureKind::hbm_oom) == 1);
}

TEST_CASE("forward beside XLA at H = 8192") {
    const Report report = seed("2026-02-17_bench_v5p_h8192.log", "xla");
    CHECK(percent(beside(report, "pallas_tpu", {8192, 8192, 128256}).forward_ratio) == "+12.2 %");
    CHECK(percent(beside(report, "pallas_tpu", {16384, 8192, 128256}).forward_ratio) == "+9.8 %");
    CHECK(percent(beside(report, "pallas_tpu", {32768, 8192, 128256}).forward_ratio) == "+16.0 %");
    CHECK(percent(beside(report, "pallas_tpu", {8192, 8192, 128256}).step_ratio) == "-12.8 %");
}

TEST_CASE("combined beside XLA after the gradient of x stays in VMEM") {
    const Report report = seed("2026-02-18_bench_v5p_h8192.log", "xla");
    CHECK(percent(beside(report, "pallas_tpu", {8192, 8192, 128256}).combined_ratio) == "-3.5 %");
    CHECK(percent(beside(report, "pallas_tpu", {16384, 8192, 128256}).combined_ratio) == "-5.5 %");
    CHECK(percent(beside(report, "pallas_tpu", {32768, 8192, 128256}).combined_ratio) == "+0.7 %");
    CHECK(report.warnings.empty());
}

TEST_CASE("the ranking at B = 32768, H = 8192") {
    const Report report = seed("2026-02-18_tune_v5p_h8192.log");
    REQUIRE(report.results.size() == 3);
    CHECK(report.results[0].step_tok_s == doctest::Approx(43627.88).epsilon(1e-5));
    CHECK(report.results[1].step_tok_s == doctest::Approx(46840.14).epsilon(1e-5));
    CHECK(report.results[2].step_tok_s == doctest::Approx(46846.51).epsilon(1e-5));
    for (const Measured& m : report.results) CHECK(m.corrections.empty());
    REQUIRE(report.best.size() == 1);
    CHECK(report.results[report.best[0]].record.label == "infer");
}

TEST_CASE("H = 4096: combined, and what the change was worth") {
    const Report before = seed("2026-02-18_bench_v5p_h4096_before.log");
    CHECK(before.results.at(0).combined_tok_s == doctest::Approx(74298.52).epsilon(1e-6));
    const Report report = seed("2026-02-18_bench_v5p_h4096.log", "xla");
    REQUIRE(report.results.size() == 5);
    CHECK(report.results[0].combined_tok_s == doctest::Approx(77784.03).epsilon(1e-6));
    CHECK(report.results[1].combined_tok_s == doctest::Approx(68034.57).epsilon(1e-6));
    CHECK(report.results[0].forward_mfu == doctest::Approx(0.878).epsilon(1e-3));
    CHECK(report.results[4].record.failure.kind == FailureKind::infra);
    CHECK(percent(beside(report, "pallas_tpu", {32768, 4096, 128256}).combined_ratio) == "+14.3 %");
    CHECK(percent(beside(report, "pallas_tpu", {8192, 8192, 128256}).combined_ratio) == "-0.3 %");
    CHECK(percent(*report.results[0].combined_tok_s / *before.results[0].combined_tok_s) == "+4.7 %");
}

TEST_CASE("v4: chips of the roofline, and pallas beside XLA") {
    const Report report = seed("2026-02-20_bench_v4.log", "xla");
    const Measured& pallas = report.results.at(0);
    CHECK(pallas.corrections.at(0).kind == "chips");
    CHECK(pallas.forward_mfu == doctest::Approx(0.557).epsilon(1e-2));  // 14 % by the printed roofline
    CHECK(fmt::format("{:.2f}", *beside(report, "pallas_tpu", {32768, 512, 128256}).forward_ratio) == "1.48");
    CHECK(fmt::format("{:.2f}", *beside(report, "pallas_tpu", {32768, 512, 128256}).step_ratio) == "2.74");
    CHECK(fmt::format("{:.2f}", *beside(report, "pallas_tpu", {8192, 2048, 128256}).forward_ratio) == "1.17");
    CHECK(fmt::format("{:.2f}", *beside(report, "pallas_tpu", {8192, 2048, 128256}).step_ratio) == "1.13");
    const Report tuned = seed("2026-02-20_tune_v4.log", {}, {"TPU v4", "", {}});
    CHECK(tuned.best.size() == 4);
    CHECK(count(tuned, FailureKind::vmem_oom) == 4);
    CHECK(rate_text(tuned.results[tuned.best[2]].step_tok_s) ==
          "292,500");  // the log's 293k and its 1.17M are one number
}

TEST_CASE("float32 on v5e and v6e, and a compiler that cannot do bf16") {
    for (const char* name : {"2026-02-21_bench_v5e_f32.log", "2026-02-21_bench_v6e_f32.log"}) {
        const Report report = seed(name, "xla");
        REQUIRE(report.results.size() == 4);
        CHECK(count(report, FailureKind::lowering) == 1);
        CHECK(report.warnings.empty());
        REQUIRE(report.best.size() == 1);
        CHECK(report.results[report.best[0]].record.implementation == "xla");
    }
    CHECK(count(seed("2026-02-20_bench_tokamax.log"), FailureKind::environment) == 1);
    CHECK(count(seed("2026-02-18_bench_v6e.log"), FailureKind::infra) == 1);
}

TEST_CASE("the one-hot table has one figure of another row, and it is found") {
    const Report report = seed("2026-02-21_bench_v5p_f32_one_hot.log");
    REQUIRE(report.warnings.size() == 1);
    CHECK(report.warnings[0].kind == "combined_mismatch");
    CHECK(report.warnings[0].text.find("228,614") != std::string::npos);
    CHECK(report.warnings[0].text.find("227,853") != std::string::npos);
    CHECK(report.results[2].has_flag("combined_mismatch"));
    for (const Measured& m : report.results) CHECK(m.has_flag("reduced_precision"));
}

TEST_CASE("the overlap fix and the sweep of Tokamax") {
    const Report overlap = seed("2026-02-21_bench_v5p_f32_overlap.log", "xla");
    CHECK(overlap.warnings.empty());
    const auto& r = overlap.results;
    CHECK(fmt::format("{:+.2f} %", (*r[1].combined_tok_s / *r[0].combined_tok_s - 1) * 100) == "+5.26 %");
    CHECK(fmt::format("{:+.2f} %", (*r[3].combined_tok_s / *r[2].combined_tok_s - 1) * 100) == "+4.96 %");
    CHECK(percent(beside(overlap, "pallas_tpu", {8192, 4096, 128256}).combined_ratio) == "+25.5 %");
    const Report tokamax = seed("2026-02-21_bench_v5p_f32_tokamax.log", "xla");
    CHECK(tokamax.warnings.empty());
    CHECK(percent(beside(tokamax, "mosaic_tpu", {8192, 4096, 32768}).combined_ratio) == "+2.8 %");
    CHECK(rate_text(tokamax.results[5].combined_tok_s) == "143,380");  // the log has nothing else of it
}

TEST_CASE("value and gradient: where pallas does not fit, and what more VMEM changes") {
    const Report tight = seed("2026-02-21_v5p_value_and_grad.log", "streaming_custom_vjp");
    CHECK(count(tight, FailureKind::vmem_oom) == 2);
    CHECK(fmt::format("{:.2f}", 1 / *beside(tight, "pallas_tpu", {512, 512, 128256}).step_ratio) == "1.98");
    const Report wide = seed("2026-02-21_v5p_value_and_grad_50000kib.log", "streaming_custom_vjp");
    CHECK(count(wide, FailureKind::vmem_oom) == 0);
    CHECK(*beside(wide, "pallas_tpu", {8192, 4096, 128256}).step_ratio < 1);
    CHECK(*beside(wide, "pallas_tpu", {32768, 4096, 128256}).step_ratio < 1);
    const Report forced = seed("2026-02-21_v5p_forced_vjp.log", "xla");
    CHECK(percent(beside(forced, "custom_vjp", {512, 512, 128256}).step_ratio) == "+39.5 %");
    CHECK(percent(beside(forced, "custom_vjp", {8192, 4096, 128256}).step_ratio) == "-6.9 %");
    CHECK(rate_text(seed("2026-02-21_bench_sanity.log").results.at(0).forward_tok_s) == "566,785");
}

TEST_CASE("all logs at once, in every format") {
    std::vector<Record> records;
    for (const auto& entry :
         std::filesystem::directory_iterator(std::filesystem::path(GDNCTL_FIXTURES) / "sweep/seed003")) {
        if (entry.path().extension() != ".log") continue;
        for (Record& r : parse_results(*read_file(entry.path()), entry.path().filename().string()))
            records.push_back(std::move(r));
    }
    const auto report = make_report(records, "xla");
    REQUIRE(report.has_value());
    CHECK(report->warnings.size() == 1);
    const Json json = report_json(*report);
    CHECK(json["counts"]["configs"] == records.size());
    CHECK(json["failures"]["vmem_oom"] == 22);
    CHECK(json["failures"]["infra"] == 2);
    const std::string page = report_html(*report);
    CHECK(page.find("<svg") != std::string::npos);
    CHECK(page.find("<script") == std::string::npos);
    CHECK(report_markdown(*report).find("### Beside xla") != std::string::npos);
    CHECK_FALSE(make_report(records, "cuda").has_value());
}

}  // namespace gdnctl::sweep
