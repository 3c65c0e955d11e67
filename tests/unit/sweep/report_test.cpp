#include <doctest/doctest.h>
#include <fmt/format.h>

#include "core/json.h"
#include "unit/sweep/logs.h"

namespace gdnctl::sweep {

namespace {

std::string tune(std::string_view shape, double seconds, double rate) {
    return fmt::format(
        "shape {{{}}}\nconfig b1024_h512_v1024 BlockSizes(b_block_size=1024, h_block_size=512, v_block_size=1024)\n"
        "steady_time_s {}\ntokens_per_s {}\n",
        shape, seconds, rate);
}

constexpr std::string_view k_four =
    "'global_batch': 512, 'seq_len': 1024, 'data_shards': 4, 'kernel_batch': 131072, 'embed': 512, 'vocab': 128256";

// bench lines of a shape of one shard.
std::string bench(std::int64_t batch, std::int64_t hidden, std::int64_t vocab, const char* dtype,
                  std::string_view figures) {
    return fmt::format("implementation pallas_tpu\nbatch {}\npos 1\nembed {}\nvocab {}\ninput_dtype {}\n{}", batch,
                       hidden, vocab, dtype, figures);
}

}  // namespace

TEST_CASE("global tokens in one shard's time are corrected, and that is no warning") {
    Report report = report_of(tune(k_four, 131072 / 607500.0, 2.43e6), {"TPU v5", "bfloat16", {}});
    const Measured& m = report.results.at(0);
    REQUIRE(m.corrections.size() == 1);
    CHECK(m.corrections[0].kind == "shards");
    CHECK(m.corrections[0].factor == 4);
    CHECK(m.step_tok_s == doctest::Approx(607500));
    CHECK(m.step_mfu == doctest::Approx(0.695).epsilon(1e-3));
    CHECK(m.bucket == "large-batch-small-h");
    CHECK(report.warnings.empty());
}

TEST_CASE("the same rate as one shard's own is above the peak") {
    constexpr std::string_view k_one =
        "'global_batch': 128, 'seq_len': 1024, 'data_shards': 1, 'kernel_batch': 131072, 'embed': 512, 'vocab': 128256";
    Report report = report_of(tune(k_one, 131072 / 2.43e6, 2.43e6), {"TPU v5", "bfloat16", {}});
    CHECK(kinds(report) == std::vector<std::string>{"above_peak"});
    CHECK(report.results[0].step_mfu == doctest::Approx(2.78).epsilon(1e-3));
    CHECK(report.best.empty());
    // The limits themselves: 3,494,902 forward and 873,726 a step.
    CHECK(*peak_flops("TPU v5") / (2.0 * 512 * 128256) == doctest::Approx(3494902).epsilon(1e-6));
    CHECK(*peak_flops("TPU v5") / (8.0 * 512 * 128256) == doctest::Approx(873726).epsilon(1e-6));
    CHECK(*peak_flops("TPU v4") / (2.0 * 512 * 128256) == doctest::Approx(2093896).epsilon(1e-6));
}

TEST_CASE("one shard is detected, not assumed away") {
    constexpr std::string_view k_one =
        "'global_batch': 32768, 'seq_len': 1, 'data_shards': 1, 'kernel_batch': 32768, 'embed': 8192, 'vocab': 128256";
    const Measured m = only(tune(k_one, 0.699476, 46846.51));
    CHECK(m.corrections.empty());
    CHECK(m.step_tok_s == doctest::Approx(46846.51).epsilon(1e-6));
}

TEST_CASE("a rate that is nobody's is a warning, and the time counts") {
    Report report = report_of(tune(k_four, 0.25, 900000));
    CHECK(kinds(report) == std::vector<std::string>{"rate_mismatch"});
    CHECK(report.results[0].step_tok_s == doctest::Approx(524288));
}

TEST_CASE("three conventions, one measurement") {
    constexpr std::string_view k_v4 =
        "'global_batch': 1024, 'seq_len': 1024, 'data_shards': 4, 'kernel_batch': 262144, 'embed': 1024, 'vocab': "
        "128256";
    const Measured tuned = only(tune(k_v4, 2.6536, 395150));
    CHECK(tuned.step_tok_s == doctest::Approx(98788).epsilon(1e-4));
    const Measured benched =
        only(bench(262144, 1024, 128256, "bfloat16", "steady_time_s 0.9\nbwd_steady_time_s 2.6467\n"));
    CHECK(benched.step_tok_s == doctest::Approx(99045).epsilon(1e-4));
    const Measured mapped = only(bench(1048576, 1024, 128256, "bfloat16",
                                       "steady_time_s 0.9\nbwd_steady_time_s 2.6467\n"
                                       "bwd_tokens_per_s 396182\n"),
                                 {"", "", 4});
    CHECK(mapped.step_tok_s == doctest::Approx(99045).epsilon(1e-4));
    CHECK(mapped.record.kernel_batch == 262144);
    REQUIRE(mapped.corrections.size() == 1);
    CHECK(mapped.corrections[0].factor == 4);
}

TEST_CASE("the bench's shards are those of the job's command line") {
    const Measured m = only(
        "Running entrypoint for job j: python bench.py --batch 64 --pos 2048 --embed 1024 --vocab 128256 "
        "--shard-map --data-shards 0\ndevices: [TpuDevice(id=0, x), TpuDevice(id=1, x)]\n"
        "steady_time_s 0.5\ntokens_per_s 262144\nbwd_steady_time_s 2\nbwd_tokens_per_s 65536\n");
    CHECK(m.record.kernel_batch == 65536);
    CHECK(m.forward_tok_s == doctest::Approx(131072));
    CHECK(m.corrections.size() == 2);
}

TEST_CASE("a step holds the forward, and combined counts it twice") {
    const Measured m = only(bench(32768, 4096, 128256, "bfloat16",
                                  "steady_time_s 0.08544\nbwd_steady_time_s 0.33583\ncombined_tokens_per_s 77783.3\n"),
                            {"TPU v5p", "", {}});
    CHECK(m.forward_mfu == doctest::Approx(0.878).epsilon(1e-3));
    CHECK(m.step_mfu == doctest::Approx(0.893).epsilon(1e-3));
    CHECK(m.step_tok_s == doctest::Approx(97573).epsilon(1e-4));
    REQUIRE(m.corrections.size() == 1);
    CHECK(m.corrections[0].kind == "combined");
    CHECK(m.corrections[0].factor == doctest::Approx(1).epsilon(1e-4));
    CHECK_FALSE(m.has_flag("combined_mismatch"));
    CHECK_FALSE(m.has_flag("reduced_precision"));
}

TEST_CASE("a combined figure copied from another row is flagged") {
    Report report = report_of(bench(8192, 4096, 32768, "float32",
                                    "tokens_per_s 1142884\nbwd_tokens_per_s 284591\ncombined_tokens_per_s 228614\n"),
                              {"TPU v5", "", {}});
    CHECK(kinds(report) == std::vector<std::string>{"combined_mismatch"});
    CHECK(report.results[0].combined_tok_s == doctest::Approx(227853).epsilon(1e-6));
    CHECK(report.results[0].has_flag("reduced_precision"));
}

TEST_CASE("every combined figure of the reference is what its passes give") {
    const double rows[][3] = {{384372.70, 92101.59, 74298.52}, {383506.87, 97574.35, 77784.03},
                              {323888.27, 86125.78, 68034.57}, {299676, 71761, 57897},
                              {299565, 76505, 60941},          {128056, 36612, 28472},
                              {128223, 25737, 21435},          {11036, 22999, 7458}};
    for (const auto& row : rows) {
        Report report = report_of(bench(
            8192, 4096, 128256, "bfloat16",
            fmt::format("tokens_per_s {}\nbwd_tokens_per_s {}\ncombined_tokens_per_s {}\n", row[0], row[1], row[2])));
        CHECK(report.warnings.empty());
        CHECK(report.results[0].combined_tok_s == doctest::Approx(row[2]).epsilon(2e-4));
    }
}

TEST_CASE("what is not finite, not known or not the device's stays out of the ranking and the MFU") {
    Measured m = only(bench(8, 8, 8, "float32", "loss nan\ntokens_per_s 5\nbwd_tokens_per_s 1\n"));
    CHECK(m.has_flag("non_finite_loss"));
    CHECK(!m.step_mfu);
    m = only("config infer None\nsteady_time_s 0.5\ntokens_per_s 100\n", {"TPU v5", "", {}});
    CHECK(!m.step_mfu);
    CHECK(!m.bucket);
    CHECK(!peak_flops("cpu"));
    m = only("config infer None\nsteady_time_s 0\ntokens_per_s inf\n");
    CHECK(!m.step_tok_s);
}

// The tables of the kernels' log, from the lines behind them.

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
