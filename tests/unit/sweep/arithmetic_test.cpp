#include <doctest/doctest.h>
#include <fmt/format.h>

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

}  // namespace gdnctl::sweep
