// The numbers from profiles of one commit. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loop/measure/fingerprint.h"

namespace gdnctl::loop {

// Numbers of a profile by name ("while_ms", "throughput/mfu"). What was not measured is absent.
using MetricMap = std::map<std::string, double, std::less<>>;

// The result of a second profile of a commit with another cross-entropy. It is recorded but never used to judge.
struct CeCompare {
    std::string implementation, bwd_mode;  // as requested
    std::string backend_selected, profile_prefix, run_url, source;
    std::optional<double> value, delta_pct;  // value of the metric, and its change against the first profile
    std::optional<std::int64_t> window_points;
    MetricMap metrics;
    std::string failure;  // why there is no number
    bool operator==(const CeCompare&) const = default;
};

// The result of profiling one commit.
struct Measurement {
    std::string metric;           // "throughput/mfu"
    std::optional<double> value;  // median of `points`, their geometric mean after pairs; nullopt: no value was found
    std::vector<double> points;
    std::string source;                         // "cli-output", "wandb-summary", "wandb-history-median[10:18]"
    std::optional<std::int64_t> window_points;  // fewest values in such a window, over all `points`
    MetricMap metrics;                          // medians of everything measured
    Fingerprint fingerprint;
    std::string ce_backend_selected, ce_requested_implementation, ce_bwd_mode;
    std::string profile_architecture;  // "hybrid", "attn_only"; empty: unknown
    std::optional<std::int64_t> gdn_layers_per_block, gdn_block_size;
    std::optional<double> gdn_layer_fraction;
    std::optional<CeCompare> ce_ab_compare;
    std::string run_url;
    std::vector<std::string> warnings;  // why this is less than was requested
    std::string busy;                   // what else used this machine during the measurement; empty: nothing was found
    bool operator==(const Measurement&) const = default;
};

// Whether the two values come from the same kind of source. A measurement without a source matches any.
bool is_same_source(const Measurement& a, const Measurement& b);

// Combines several measurements of the same commit under the same conditions.
Measurement merged(std::vector<Measurement> runs);

// "n=3, median 4.2 ms, MAD 0.01 ms"
std::string noise_text(const std::vector<double>& points, std::string_view unit = {});

}  // namespace gdnctl::loop
