#include "sweep/parse.h"

#include <cmath>

#include <doctest/doctest.h>

#include "unit/sweep/logs.h"

namespace gdnctl::sweep {

namespace {

constexpr std::string_view k_shape =
    "shape {'global_batch': 512, 'seq_len': 1024, 'data_shards': 4, 'kernel_batch': 131072, 'embed': 512, 'vocab': "
    "128256}\n";

}  // namespace

TEST_CASE("sweep parse: old and new lines of the tune script") {
    const std::string text =
        std::string(k_shape) +
        "config b1024_h256_v512 BlockSizes(b_block_size=1024, h_block_size=256, v_block_size=512)\n"
        "loss 11.9\ncompile_time_s 3\nsteady_time_s 0.25\ntokens_per_s 2097152.0\n"
        "variant single pallas_tpu infer None\nloss 11.9\nsteady_time_s 0.5\ntokens_per_s 1048576.0\n"
        "result_json {\"implementation\": \"pallas_tpu\", \"label\": \"infer\", \"loss\": 11.9, \"status\": "
        "\"ok\", \"steady_time_s\": 0.5, \"tokens_per_s\": 1048576.0, \"variant\": \"single\"}\n";
    const auto records = parse_results(text, "t.log");
    REQUIRE(records.size() == 2);
    CHECK(records[0].script == Script::tune);
    CHECK(records[0].line == 2);
    CHECK(records[0].label == "b1024_h256_v512");
    CHECK(records[0].sizes == BlockSizes{1024, 256, 512});
    CHECK(records[0].kernel_batch == 131072);
    CHECK(records[0].global_batch == 524288);
    CHECK_FALSE(records[0].truncated);
    CHECK(records[0].implementation.empty());
    CHECK(records[1].label == "infer");
    CHECK(records[1].implementation == "pallas_tpu");
    CHECK(!records[1].sizes);
    const Measured m = only(text.substr(0, text.find("variant")));
    CHECK(m.step_tok_s == doctest::Approx(524288));
    CHECK(!m.forward_s);
}

TEST_CASE("sweep parse: the copy of January has no label and times the forward alone") {
    const Measured m = only(std::string(k_shape) +
                            "config BlockSizes(b_block_size=1024, h_block_size=512, v_block_size=1024)\nloss 11.9\n"
                            "compile_time_s 3\nsteady_time_s 0.25\ntokens_per_s 524288.0\n");
    CHECK(m.record.label == "b1024_h512_v1024");
    CHECK(m.forward_tok_s == doctest::Approx(524288));
    CHECK(!m.step_s);
}

TEST_CASE("sweep parse: a failure over several lines is one failure, and its first line the error") {
    const auto records = parse_results(
        "config b1024_h512_v2048 BlockSizes(b_block_size=1024, h_block_size=512, v_block_size=2048)\n"
        "failed JaxRuntimeError INTERNAL: Mosaic failed to compile:\n\n  Scoped allocation with size 19.85M and limit "
        "16.00M "
        "exceeded\n  scoped vmem limit by 3.85M\n"
        "config infer None\nsteady_time_s 1\ntokens_per_s 5\n",
        "t.log");
    REQUIRE(records.size() == 2);
    CHECK(records[0].status == ResultStatus::failed);
    CHECK(records[0].failure.kind == FailureKind::vmem_oom);
    CHECK(records[0].failure.vmem_limit_bytes == 16.0 * 1024 * 1024);
    CHECK(records[0].error.starts_with("JaxRuntimeError INTERNAL"));
    CHECK(records[1].status == ResultStatus::ok);
}

TEST_CASE("sweep parse: an unknown failure is a crash, and no words about memory make it another") {
    const auto records = parse_results("config none None\nfailed ValueError batch is odd\n", "t.log");
    REQUIRE(records.size() == 1);
    CHECK(records[0].failure.kind == FailureKind::crashed);
}

TEST_CASE("sweep parse: lines of several processes are kept apart") {
    const std::string text =
        "\x1b[36m(main pid=1)\x1b[0m config b1024_h512_v512 BlockSizes(b_block_size=1024, "
        "h_block_size=512, "
        "v_block_size=512)\n"
        "(main pid=2) config b1024_h512_v1024 BlockSizes(b_block_size=1024, h_block_size=512, v_block_size=1024)\n"
        "(raylet) some other line\n"
        "(main pid=2) steady_time_s 2.0\n(main pid=1) steady_time_s 1.0\n"
        "2026-02-17 22:16:06,120 INFO x.py:3 -- steady_time_s is not a figure here\n"
        "(main pid=1) tokens_per_s 100.0 [repeated 2x across cluster]\n(main pid=2) tokens_per_s 50.0\n";
    const auto records = parse_results(text, "t.log");
    REQUIRE(records.size() == 2);
    CHECK(records[0].label == "b1024_h512_v512");
    CHECK(*records[0].figure("steady_time_s") == 1.0);
    CHECK(*records[0].figure("tokens_per_s") == 100.0);
    CHECK(*records[1].figure("steady_time_s") == 2.0);
}

TEST_CASE("sweep parse: the bench script, plain lines and with result_json") {
    const std::string plain =
        "devices: [TpuDevice(id=0, process_index=0), TpuDevice(id=1, process_index=0)]\nroofline.device_kind tpu v4\n"
        "roofline.chips 2\nroofline.tokens_per_s 4187792.0\nloss 11.9\ncompile_time_s 9\nsteady_time_s 0.0281\n"
        "tokens_per_s 1166120.99\nbwd_compile_time_s 9\nbwd_steady_time_s 0.112\nbwd_tokens_per_s 292571.4\n";
    Measured m = only(
        "Running entrypoint for job x: python bench.py --batch 32 --pos 1024 --embed 512 --vocab 128256 "
        "--implementation pallas_tpu --input-dtype bfloat16 --block-sizes infer\n" +
        plain);
    CHECK(m.record.script == Script::bench);
    CHECK(m.record.implementation == "pallas_tpu");
    CHECK(m.record.label == "infer");
    CHECK(m.record.device_kind == "tpu v4");
    CHECK(m.forward_tok_s == doctest::Approx(1166121).epsilon(1e-6));
    CHECK(m.combined_tok_s == doctest::Approx(32768 / (0.0281 + 0.112)));
    REQUIRE(m.corrections.size() == 1);
    CHECK(m.corrections[0].kind == "chips");
    CHECK(m.corrections[0].factor == 2);
    CHECK(m.forward_mfu == doctest::Approx(0.557).epsilon(1e-3));

    const std::string json =
        "variant xla\nimplementation xla\nskip_label_logits 0\nb_block_size -1\nh_block_size -1\nv_block_size "
        "-1\nstatus ok\n"
        "batch 2\npos 512\nembed 64\nvocab 1000\ninput_dtype float32\naccum_dtype float32\nloss 7.0\nsteady_time_s "
        "0.5\n"
        "tokens_per_s 2048.0\nresult_json {\"batch\": 2, \"embed\": 64, \"implementation\": \"xla\", \"input_dtype\": "
        "\"float32\", "
        "\"loss\": NaN, \"pos\": 512, \"status\": \"ok\", \"steady_time_s\": 0.5, \"tokens_per_s\": 2048.0, "
        "\"variant\": \"xla\", "
        "\"vocab\": 1000}\n";
    m = only(json);
    CHECK(m.record.kernel_batch == 1024);
    CHECK(m.record.x_dtype == "float32");
    CHECK(m.record.forward_only);
    CHECK(m.record.label == "infer");
    CHECK(m.ranked());
    m = only(json.substr(json.find("result_json")));
    CHECK(m.record.script == Script::bench);
    CHECK(m.has_flag("non_finite_loss"));
    CHECK_FALSE(m.ranked());
}

TEST_CASE("sweep parse: a bench variant that fails, and kernels that are not the real one") {
    const auto records = parse_results(
        "variant_failed pallas_tpu MosaicError Mosaic: 'tpu.matmul' op Expected matmul acc to be 32-bit\nvariant "
        "pallas_tpu\n"
        "implementation pallas_tpu\nstatus failed\nbatch 1\npos 8\nembed 8\nvocab 8\ninput_dtype bfloat16\naccum_dtype "
        "float32\n"
        "error_type MosaicError\nerror <omitted>\n"
        "variant pallas_no_label_logits\nimplementation pallas_tpu\nskip_label_logits 1\nstatus ok\nbatch 1\npos "
        "8\nembed 8\n"
        "vocab 8\nsteady_time_s 1\ntokens_per_s 8\n",
        "b.log");
    REQUIRE(records.size() == 2);
    CHECK(records[0].failure.kind == FailureKind::lowering);
    CHECK(records[0].error == "MosaicError Mosaic: 'tpu.matmul' op Expected matmul acc to be 32-bit");
    CHECK(records[0].x_dtype == "bfloat16");
    CHECK(records[1].label == "pallas_no_label_logits");
    CHECK_FALSE(records[1].real_kernel);
}

TEST_CASE("sweep parse: a log that ends in the middle says so") {
    CHECK(only("config infer None\nloss 11.9\n").has_flag("truncated"));
    const Measured m = only("config infer None\nsteady_time_s 1\nresult_json {\"label\": \"infer\", \"stat");
    CHECK(m.has_flag("truncated"));
    CHECK(m.step_s == 1.0);
    CHECK_FALSE(only("config infer None\nsteady_time_s 1\ntokens_per_s 2\n").has_flag("truncated"));
    const auto killed =
        parse_results("config infer None\nloss 1\nTraceback\nActorDiedError: node received SIGTERM\n", "t.log");
    REQUIRE(killed.size() == 1);
    CHECK(killed[0].failure.kind == FailureKind::infra);
    CHECK_FALSE(killed[0].truncated);
}

TEST_CASE("sweep parse: a job without any result is one failure, where its log says why") {
    const auto records = parse_results(
        "Running entrypoint for job j1: python bench.py --implementation xla --batch 4 --pos 2 "
        "--embed 8 --vocab 16\nJOB_SUPERVISOR_ACTOR_DIED: gone\n",
        "t.log");
    REQUIRE(records.size() == 1);
    CHECK(records[0].failure.kind == FailureKind::infra);
    CHECK(records[0].implementation == "xla");
    CHECK(records[0].kernel_batch == 8);
    CHECK(parse_results("all is well\nbatch of cookies\n", "t.log").empty());
    CHECK(parse_results("RESOURCE_EXHAUSTED in some other program\n", "t.log").empty());
}

TEST_CASE("sweep parse: command lines and dicts") {
    const CommandLine c =
        parse_command_line("X=1 python bench.py --batch=64 --pos 2048 --shard-map --data-shards 4 --forward-only");
    CHECK(c.batch == 64);
    CHECK(c.pos == 2048);
    CHECK(c.shard_map);
    CHECK(c.data_shards == 4);
    CHECK(c.forward_only);
    CHECK_FALSE(c.benchmark_only);
    CHECK(parse_command_line("--fwd-full-h-dot").benchmark_only);
    CHECK(!dict_number("{'vocab': 'many'}", "vocab"));
    CHECK(std::isnan(*parse_figure("NaN")));
    CHECK(*parse_figure("-Infinity") == -INFINITY);
    CHECK(!parse_figure("11.9s"));
    CHECK(sizes_of_label("b1_h2_v3") == BlockSizes{1, 2, 3});
    CHECK(!sizes_of_label("b1_h2_v0"));
}

}  // namespace gdnctl::sweep
