// Block sizes: every golden row of upstream's own tests, and of runs of its two versions.
#include "oracle/linear_ce/blocks/block_sizes.h"

#include <doctest/doctest.h>

namespace gdnctl::oracle::linear_ce {

namespace {

struct Golden {
    const char* kind;
    std::int64_t batch, hidden, vocab;
    BlockSizes sizes;
    bool tuned = true;
    bool runs = true;
    const char* dtype = "bf16";
};

const Golden k_goldens[] = {
    {"TPU v5p", 1024, 512, 16384, {1024, 256, 1024}},
    {"TPU v5p", 8192, 4096, 128256, {1024, 512, 512}},
    {"TPU v5p", 65536, 512, 128256, {1024, 512, 2048}},
    {"TPU v5p", 16384, 2048, 128256, {1024, 256, 512}},
    {"TPU v5 lite", 1024, 512, 16384, {1024, 256, 1024}},
    {"TPU v5 lite", 8192, 4096, 128256, {1024, 512, 512}},
    {"TPU v5 lite", 65536, 512, 128256, {4096, 512, 2048}},
    {"TPU v5 lite", 16384, 2048, 128256, {1024, 256, 512}},
    {"TPU v5 lite", 16384, 1024, 128256, {8192, 256, 1024}},
    {"TPU v5 lite", 262144, 1024, 128256, {8192, 256, 1024}},
    {"TPU v5litepod", 65536, 512, 128256, {4096, 512, 2048}},
    {"TPU v6e", 1024, 512, 16384, {1024, 256, 2048}},
    {"TPU v6e", 8192, 4096, 128256, {1024, 512, 512}},
    {"TPU v6e", 65536, 512, 128256, {4096, 512, 2048}},
    {"TPU v6e", 16384, 2048, 128256, {1024, 256, 512}},
    {"TPU v6e", 16384, 1024, 128256, {8192, 1024, 1024}},
    {"TPU v6e", 262144, 1024, 128256, {8192, 256, 1024}},
    {"TPU v4", 1024, 512, 16384, {1024, 256, 512}},
    {"TPU v4", 8192, 4096, 128256, {8192, 512, 1024}},
    {"TPU v4", 65536, 512, 128256, {1024, 512, 512}},
    {"TPU v4", 16384, 2048, 128256, {1024, 512, 1024}},
    {"TPU v4", 16384, 1024, 128256, {1024, 1024, 256}},
    {"TPU v4", 262144, 1024, 128256, {1024, 1024, 256}},
    {"TPU v5e", 512, 128, 4096, {512, 128, 1024}, false, true, "f32"},
    {"TPU v5e", 96, 64, 4096, {1024, 512, 1024}, false, false, "f32"},
    {"TPU v5p", 512, 768, 128256, {512, 384, 1024}, false},
    {"TPU v5p", 262144, 4096, 128256, {1024, 512, 256}},
    {"TPU v5p", 32767, 2048, 128256, {1024, 512, 1024}, false, false},
    {"TPU v5p", 32768, 2048, 128256, {1024, 1024, 768}},
    {"TPU v5", 512, 1024, 8192, {512, 512, 1024}, false},
    {"TPU v5", 8192, 8192, 128256, {1024, 512, 1024}, false},
    {"TPU v5", 32768, 4096, 128256, {1024, 512, 1024}, false},
    {"TPU v5", 1536, 640, 16384, {1024, 128, 1024}, false, false},
    {"TPU v4", 8192, 4096, 50257, {8192, 512, 1024}},
    {"TPU v4", 4096, 4096, 50257, {1024, 512, 1024}, false},
    {"TPU v4", 12288, 4096, 128256, {1024, 512, 1024}, false},
    {"TPU v4", 32768, 2048, 32000, {1024, 512, 1024}},
    {"TPU7x", 65536, 512, 128256, {1024, 512, 2048}},
    {"TPU7x", 8192, 4096, 128256, {1024, 512, 1024}, false},
    {"NVIDIA H100 80GB HBM3", 8192, 4096, 128256, {256, 256, 1024}},
    {"NVIDIA L4", 8192, 4096, 128256, {256, 256, 1024}},
    {"NVIDIA GB10", 65536, 4096, 128256, {1024, 512, 64}, false},
    {"TPU v5", 8192, 4096, 128256, {1024, 512, 1024}, false, true, "float16"},
};

Inferred inferred(const InferRequest& request) {
    auto result = infer(request);
    REQUIRE(result);
    return std::move(*result);
}

}  // namespace

TEST_CASE("ce-infer: golden rows") {
    for (const Golden& g : k_goldens) {
        CAPTURE(g.kind);
        CAPTURE(g.batch);
        CAPTURE(g.hidden);
        const Inferred i = inferred({g.kind, g.batch, g.hidden, g.vocab, g.dtype, {}, {}, TableDate::latest, {}});
        CHECK(i.sizes.b == g.sizes.b);
        CHECK(i.sizes.h == g.sizes.h);
        CHECK(i.sizes.v == g.sizes.v);
        CHECK(i.tuned == g.tuned);
        CHECK(i.not_runnable_because.empty() == g.runs);
    }
}

TEST_CASE("ce-infer: the huge batch warns once without a VMEM limit, and takes the other row with one") {
    InferRequest request{"TPU v5p", 262144, 4096, 128256, "bf16", {}, {}, TableDate::latest, {}};
    CHECK(inferred(request).warnings.size() == 1);
    request.scoped_vmem_kib = 50000;
    const Inferred with = inferred(request);
    CHECK(with.sizes == BlockSizes{1024, 512, 512});
    CHECK(with.tuned);
    CHECK(with.warnings.empty());
}

TEST_CASE("ce-infer: a large batch of small rows has no row of its own on a v5") {
    for (const char* kind : {"TPU v5", "TPU v5p"}) {
        const Inferred i = inferred({kind, 262144, 1024, 128256, "bf16", {}, {}, TableDate::latest, {}});
        CHECK(i.bucket == "huge-batch-small-h");
        CHECK(i.sizes == BlockSizes{1024, 512, 1024});
        CHECK(!i.tuned);
    }
}

TEST_CASE("ce-infer: two cores by the kind of the device, if the batch can be shared") {
    const auto cores = [](const char* kind, std::int64_t batch) {
        return inferred({kind, batch, 512, 128256, "bf16", {}, {}, TableDate::latest, {}}).cores;
    };
    for (const char* kind : {"TPU v4", "TPU v5", "TPU v5p", "TPU v5 lite", "TPU v5lite"}) {
        CAPTURE(kind);
        CHECK(cores(kind, 65536) == 2);
        CHECK(cores(kind, 1024) == 1);
    }
    for (const char* kind : {"TPU v5e", "TPU v6e", "TPU v6 lite", "TPU7x", "NVIDIA H100 80GB HBM3"}) {
        CAPTURE(kind);
        CHECK(cores(kind, 65536) == 1);
    }
}

TEST_CASE("ce-infer: borrowed buckets, rejected entries, padding") {
    CHECK(inferred({"TPU v4", 8192, 4096, 50257, "bf16", {}, {}, TableDate::latest, {}}).remapped);
    const Inferred i = inferred({"TPU v4", 12288, 4096, 128256, "bf16", {}, {}, TableDate::latest, {}});
    REQUIRE(i.rejected.size() == 1);
    CHECK(i.rejected[0].bucket == "llama3-ish");
    CHECK(i.rejected[0].reason == "12288 % 8192 is not 0: b does not divide B");
    CHECK(i.pad_columns == 768);
}

TEST_CASE("ce-infer: an entry that upstream's test replaces by one that is not valid is skipped") {
    const auto replaced = [](TableDate table, std::string_view key, std::string_view bucket) {
        if (key == "TPU v5p" && bucket == "llama3-ish") return std::optional(BlockSizes{3072, 512, 1024});
        return tuned_sizes(table, key, bucket);
    };
    const auto i = infer({"TPU v5p", 4096, 4096, 128256, "bf16", {}, {}, TableDate::latest, {}}, replaced);
    REQUIRE(i);
    CHECK(i->sizes == BlockSizes{1024, 512, 1024});
    CHECK_FALSE(i->tuned);
    REQUIRE(i->rejected.size() == 1);
    CHECK(i->rejected[0].sizes == BlockSizes{3072, 512, 1024});
}

TEST_CASE("ce-infer: the table of February") {
    const auto at = [](const char* kind, std::int64_t b, std::int64_t h, std::int64_t v) {
        return inferred({kind, b, h, v, "bf16", {}, {}, TableDate::february, {}}).sizes;
    };
    CHECK(at("TPU v5", 65536, 512, 128256) == BlockSizes{1024, 512, 1024});
    CHECK(at("TPU v5", 16384, 2048, 128256) == BlockSizes{1024, 256, 2048});
    CHECK(at("TPU v5e", 1024, 512, 16384) == BlockSizes{1024, 256, 512});
    CHECK(at("TPU v4", 65536, 512, 128256) == BlockSizes{1024, 512, 1024});
    CHECK(at("TPU v6e", 65536, 512, 128256) == BlockSizes{1024, 512, 2048});
    CHECK(at("NVIDIA GB10", 65536, 4096, 128256) == BlockSizes{1024, 512, 1024});
}

TEST_CASE("ce-infer: XLA's blocks") {
    const auto v = [](const char* kind, std::int64_t vocab) {
        return inferred({kind, 8192, 4096, vocab, "bf16", {}, {}, TableDate::latest, {}});
    };
    CHECK(v("TPU v5p", 128256).xla_v == 16384);
    CHECK(v("TPU v5", 128256).xla_v == 8192);
    CHECK(v("TPU v5", 5000).xla_v == 5000);
    CHECK(v("TPU v5", 5000).xla_reference_path);
    CHECK(v("TPU v5", 100).xla_v == 100);
    CHECK(v("TPU v5", 8200).xla_v == 8192);
    CHECK(xla_b_block(8192, 8192) == 8192);
    CHECK(xla_b_block(262144, 8192) == 131072);
    CHECK(xla_b_block(524288, 8192) == 131072);
    CHECK(xla_b_block(6, 4194304) == 6);
}

}  // namespace gdnctl::oracle::linear_ce
