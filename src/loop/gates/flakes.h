// Tests that fail only sometimes, recorded in <log-dir>/flakes.jsonl across runs.
//
// The stage that runs tests calls append_flake() after it has run a failed test again on its own, whether that passed
// or not. It calls read_flakes() and flake_table() before it decides whether to run one again; reports do too.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/time.h"

namespace gdnctl::loop {

struct FlakeSighting {
    std::string test, run;
    int iteration = 0;
    bool passed_alone = false;
    std::optional<double> max_abs = std::nullopt, limit = std::nullopt;  // observed difference, and the allowed one
    std::string time{};                                                  // set by append_flake()
    bool operator==(const FlakeSighting&) const = default;
};

// Errors: local_io, conflict (another writer).
Status append_flake(const std::filesystem::path& log_dir, FlakeSighting sighting, WallTime now);
// A missing file counts as empty. Error local_io.
Result<std::vector<FlakeSighting>> read_flakes(const std::filesystem::path& log_dir);

struct FlakeView {
    std::string test;
    int seen = 0, passed_alone = 0;
    std::optional<double> largest = std::nullopt;  // max_abs
    std::string first, last;                       // times
    // It has passed on its own after a failure, so a failure is not final.
    bool known() const { return passed_alone > 0; }
};
// One view per test, the most frequent first.
std::vector<FlakeView> flake_table(std::span<const FlakeSighting> sightings);

}  // namespace gdnctl::loop
