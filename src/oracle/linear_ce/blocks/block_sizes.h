// The block sizes that upstream's fused cross-entropy picks for a device and a shape, and why. Constraints, buckets and
// tables are those of marin-levanter's tuned_block_sizes (0.2.227, and the state of February 2026).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace gdnctl::oracle::linear_ce {

struct BlockSizes {
    std::int64_t b = 1024, h = 512, v = 1024;
    bool operator==(const BlockSizes&) const = default;
};

enum class TableDate { latest, february };  // 0.2.227 | 2026-02

struct InferRequest {
    std::string device_kind;  // "TPU v5 lite"
    std::int64_t batch = 0, hidden = 0, vocab = 0;
    std::string dtype = "f32";                    // of the accumulation
    std::optional<std::string> x_dtype, w_dtype;  // absent: as dtype
    TableDate table = TableDate::latest;
    std::optional<std::int64_t> scoped_vmem_kib;  // as xla_tpu_scoped_vmem_limit_kib
};

// A tuned entry, or the default, that could not be taken.
struct Rejected {
    std::string key, bucket;  // "TPU v5", "llama3-ish"; the default sizes have neither
    BlockSizes sizes;
    std::string reason;
};

struct Inferred {
    std::optional<std::string> device_key;  // nullopt: none of the tables is of this device
    std::string dtype;                      // "float32": the row of the table
    std::optional<std::string> bucket;
    bool remapped = false;  // TPU v4 has no bucket for this vocabulary and borrows one
    BlockSizes sizes;
    bool tuned = false;
    std::vector<Rejected> rejected;
    std::vector<std::string> not_runnable_because;  // empty: runs
    std::int64_t pad_columns = 0;
    std::int64_t cores = 1;
    double forward_vmem_bytes = 0, backward_vmem_bytes = 0;  // an aid for ranking, from scratch shapes
    std::int64_t xla_b = 0, xla_v = 0;
    bool xla_reference_path = false;
    std::vector<std::string> warnings;
};

// usage: a dtype that is not f32, bf16, f16 or a long name of them; sizes below 1.
Result<Inferred> infer(const InferRequest& request);
// With other entries than those of the tables.
using TunedSizes = std::optional<BlockSizes> (*)(TableDate table, std::string_view device_key, std::string_view bucket);
Result<Inferred> infer(const InferRequest& request, TunedSizes entries);

// The largest b block that XLA's path takes for this v block.
std::int64_t xla_b_block(std::int64_t batch, std::int64_t v_block);

// The bucket of a shape; nullopt: none.
std::optional<std::string_view> bucket_of(std::string_view device_key, std::int64_t batch, std::int64_t hidden,
                                          std::int64_t vocab);
std::optional<std::string_view> device_key_of(std::string_view kind);

// Tuned block sizes by device and bucket.

// Inclusive bounds.
struct Bucket {
    std::string_view name;
    std::int64_t b_low, b_high, h_low, h_high, v_low, v_high;
    bool gb10_only = false;

    bool holds(std::int64_t b, std::int64_t h, std::int64_t v) const {
        return b_low <= b && b <= b_high && h_low <= h && h <= h_high && v_low <= v && v <= v_high;
    }
};

// In the order in which they are tried.
std::span<const Bucket> buckets();
// What TPU v4 tries where no bucket contains the shape; the bounds of V are wider.
std::span<const Bucket> v4_buckets();

// The sizes of a bucket. fp32 and bf16 have the same rows, fp16 none.
std::optional<BlockSizes> tuned_sizes(TableDate table, std::string_view device_key, std::string_view bucket);

}  // namespace gdnctl::oracle::linear_ce
