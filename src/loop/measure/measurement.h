// What profiles of one commit said, as numbers. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loop/measure/fingerprint.h"

namespace gdnctl::loop {

// Numbers of a profile by name ("while_ms", "throughput/mfu"); what was not measured is not in it.
using MetricMap = std::map<std::string, double, std::less<>>;

// What a second profile of a commit said, with another cross-entropy: for the record, nothing is judged by it.
struct CeCompare {
    std::string implementation, bwd_mode;  // as asked for
    std::string backend_selected, profile_prefix, run_url, source;
    std::optional<double> value, delta_pct;  // of the metric; against the first profile's
    std::optional<std::int64_t> window_points;
    MetricMap metrics;
    std::string failure;  // why there is no number
    bool operator==(const CeCompare&) const = default;
};

// What profiles of one commit said.
struct Measurement {
    std::string metric;           // "throughput/mfu"
    std::optional<double> value;  // median of `points`; nullopt: nothing was to be read
    std::vector<double> points;
    std::string source;                         // "cli-output", "wandb-summary", "wandb-history-median[10:18]"
    std::optional<std::int64_t> window_points;  // of such a window, behind each of `points`: the fewest
    MetricMap metrics;                          // medians of everything that was measured
    Fingerprint fingerprint;
    std::string ce_backend_selected, ce_requested_implementation, ce_bwd_mode;
    std::string profile_architecture;  // "hybrid", "attn_only"; empty: unknown
    std::optional<std::int64_t> gdn_layers_per_block, gdn_block_size;
    std::optional<double> gdn_layer_fraction;
    std::optional<CeCompare> ce_ab_compare;
    std::string run_url;
    std::vector<std::string> warnings;  // what makes it less than was asked for
    std::string busy;                   // what else this machine did meanwhile; empty: nothing that is known of
    bool operator==(const Measurement&) const = default;
};

// Whether their numbers are of one kind; one that does not say is of any.
bool is_same_source(const Measurement& a, const Measurement& b);

// One measurement out of several of the same commit and conditions.
Measurement merged(std::vector<Measurement> runs);

// "n=3, median 4.2 ms, MAD 0.01 ms"
std::string noise_text(const std::vector<double>& points, std::string_view unit = {});

}  // namespace gdnctl::loop
