// Tuned block sizes by device and bucket.
#pragma once

#include <span>
#include <string_view>

#include "oracle/linear_ce/blocks/infer.h"

namespace gdnctl::oracle::linear_ce {

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
