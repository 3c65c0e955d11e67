#include "oracle/linear_ce/blocks/tables.h"

#include <array>

namespace gdnctl::oracle::linear_ce {

namespace {

constexpr std::int64_t k_million = 1048576;

constexpr std::array<Bucket, 12> k_buckets = {{
    {"tiny", 1, 512, 1, 1024, 1, 8192},
    {"small-vocab", 512, 2048, 256, 1024, 4096, 16384},
    {"small-h-small-vocab", 2048, 8192, 1, 256, 4096, 16384},
    {"llama3-ish", 4096, 16384, 4096, 4096, 120000, 131072},
    {"gb10-large-vocab-mid-batch", 2048, 32768, 512, 1536, 65536, 262144, true},
    {"mid-h-large-vocab", 4096, 32768, 768, 1536, 120000, 131072},
    {"huge-batch-llama3-ish", 65536, k_million, 4096, 4096, 120000, 131072},
    {"huge-batch-small-h", 131073, k_million, 256, 1024, 120000, 131072},
    {"large-batch-small-h", 32768, 131072, 256, 1024, 120000, 131072},
    {"large-batch-medium-h", 32768, 131072, 1536, 3072, 120000, 131072},
    {"medium-batch-medium-h", 8192, 32767, 1536, 3072, 120000, 131072},
    {"gb10-fallback", 1, k_million, 1, k_million, 1, k_million, true},
}};

constexpr std::int64_t k_v4_low = 16385;
constexpr std::int64_t k_v4_high = 119999;
constexpr std::array<Bucket, 6> k_v4_buckets = {{
    {"small-vocab", 512, 2048, 256, 1024, k_v4_low, k_v4_high},
    {"llama3-ish", 4096, 16384, 4096, 4096, k_v4_low, k_v4_high},
    {"mid-h-large-vocab", 4096, 32768, 768, 1536, k_v4_low, k_v4_high},
    {"huge-batch-small-h", 131073, k_million, 256, 1024, k_v4_low, k_v4_high},
    {"large-batch-small-h", 32768, 131072, 256, 1024, k_v4_low, k_v4_high},
    {"medium-batch-medium-h", 8192, 32768, 1536, 3072, k_v4_low, k_v4_high},
}};

struct TunedRow {
    std::string_view key, bucket;
    BlockSizes sizes;
};

constexpr std::array k_latest = {
    TunedRow{"default", "large-batch-small-h", {1024, 512, 2048}},
    TunedRow{"TPU v4", "small-vocab", {1024, 256, 512}},
    TunedRow{"TPU v4", "llama3-ish", {8192, 512, 1024}},
    TunedRow{"TPU v4", "mid-h-large-vocab", {1024, 1024, 256}},
    TunedRow{"TPU v4", "huge-batch-small-h", {1024, 1024, 256}},
    TunedRow{"TPU v4", "large-batch-small-h", {1024, 512, 512}},
    TunedRow{"TPU v4", "medium-batch-medium-h", {1024, 512, 1024}},
    TunedRow{"TPU v5", "small-vocab", {1024, 256, 1024}},
    TunedRow{"TPU v5", "llama3-ish", {1024, 512, 512}},
    TunedRow{"TPU v5", "huge-batch-llama3-ish", {1024, 512, 256}},
    TunedRow{"TPU v5", "large-batch-small-h", {1024, 512, 2048}},
    TunedRow{"TPU v5", "large-batch-medium-h", {1024, 1024, 768}},
    TunedRow{"TPU v5", "medium-batch-medium-h", {1024, 256, 512}},
    TunedRow{"TPU v5e", "small-vocab", {1024, 256, 1024}},
    TunedRow{"TPU v5e", "llama3-ish", {1024, 512, 512}},
    TunedRow{"TPU v5e", "mid-h-large-vocab", {8192, 256, 1024}},
    TunedRow{"TPU v5e", "huge-batch-small-h", {8192, 256, 1024}},
    TunedRow{"TPU v5e", "large-batch-small-h", {4096, 512, 2048}},
    TunedRow{"TPU v5e", "medium-batch-medium-h", {1024, 256, 512}},
    TunedRow{"TPU v6", "small-vocab", {1024, 256, 2048}},
    TunedRow{"TPU v6", "llama3-ish", {1024, 512, 512}},
    TunedRow{"TPU v6", "mid-h-large-vocab", {8192, 1024, 1024}},
    TunedRow{"TPU v6", "huge-batch-small-h", {8192, 256, 1024}},
    TunedRow{"TPU v6", "large-batch-small-h", {4096, 512, 2048}},
    TunedRow{"TPU v6", "medium-batch-medium-h", {1024, 256, 512}},
    TunedRow{"NVIDIA", "tiny", {128, 64, 128}},
    TunedRow{"NVIDIA", "small-vocab", {128, 256, 1024}},
    TunedRow{"NVIDIA", "llama3-ish", {256, 256, 1024}},
    TunedRow{"NVIDIA", "large-batch-small-h", {256, 256, 2048}},
    TunedRow{"NVIDIA", "medium-batch-medium-h", {256, 256, 2048}},
    TunedRow{"NVIDIA GB10", "tiny", {128, 64, 128}},
    TunedRow{"NVIDIA GB10", "small-h-small-vocab", {128, 64, 128}},
    TunedRow{"NVIDIA GB10", "small-vocab", {128, 64, 256}},
    TunedRow{"NVIDIA GB10", "gb10-large-vocab-mid-batch", {1024, 32, 1024}},
    TunedRow{"NVIDIA GB10", "gb10-fallback", {128, 128, 64}},
};

constexpr std::array k_february = {
    TunedRow{"default", "large-batch-small-h", {1024, 512, 2048}},
    TunedRow{"TPU v5e", "small-vocab", {1024, 256, 512}},
    TunedRow{"TPU v5e", "llama3-ish", {1024, 512, 1024}},
    TunedRow{"TPU v5e", "large-batch-small-h", {1024, 512, 2048}},
    TunedRow{"TPU v5", "small-vocab", {1024, 256, 512}},
    TunedRow{"TPU v5", "llama3-ish", {1024, 512, 1024}},
    TunedRow{"TPU v5", "large-batch-small-h", {1024, 512, 1024}},
    TunedRow{"TPU v5", "medium-batch-medium-h", {1024, 256, 2048}},
    TunedRow{"TPU v5", "huge-batch-llama3-ish", {1024, 512, 256}},
    TunedRow{"TPU v4", "small-vocab", {1024, 256, 1024}},
    TunedRow{"TPU v4", "llama3-ish", {1024, 512, 1024}},
    TunedRow{"TPU v4", "large-batch-small-h", {1024, 512, 1024}},
    TunedRow{"TPU v4", "medium-batch-medium-h", {1024, 512, 1024}},
};

// Devices whose rows are the same.
std::string_view row_key(std::string_view device_key) {
    if (device_key == "TPU v5p") return "TPU v5";
    if (device_key == "NVIDIA H100" || device_key == "NVIDIA A100") return "NVIDIA";
    return device_key;
}

}  // namespace

std::span<const Bucket> buckets() { return k_buckets; }
std::span<const Bucket> v4_buckets() { return k_v4_buckets; }

std::optional<BlockSizes> tuned_sizes(TableDate table, std::string_view device_key, std::string_view bucket) {
    const std::span<const TunedRow> rows =
        table == TableDate::latest ? std::span<const TunedRow>(k_latest) : k_february;
    for (const TunedRow& row : rows) {
        if (row.key == row_key(device_key) && row.bucket == bucket) return row.sizes;
    }
    return std::nullopt;
}

}  // namespace gdnctl::oracle::linear_ce
