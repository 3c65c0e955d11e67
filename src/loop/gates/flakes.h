// Tests that fail now and then, in <log-dir>/flakes.jsonl, which outlives runs.
//
// Who calls what, and when: the stage that runs tests, after it has run a test that failed once more by itself:
// append_flake(), whether it passed then or not; read_flakes() and flake_table() before it decides to run one again,
// and for reports.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/time.h"

namespace gdnctl::loop {

struct FlakeSighting {
    std::string test, run;
    int iteration = 0;
    bool passed_alone = false;
    std::optional<double> max_abs = std::nullopt, limit = std::nullopt;  // how far off it was, and how far it may be
    std::string time{};                                                  // filled in by append_flake()
    bool operator==(const FlakeSighting&) const = default;
};

// Errors: local_io, conflict (another writer).
Status append_flake(const std::filesystem::path& log_dir, FlakeSighting sighting, WallTime now);
// Lines of another form are left out, as is a torn last one. Pure.
std::vector<FlakeSighting> parse_flakes(std::string_view text);
// No such file: none. Error local_io.
Result<std::vector<FlakeSighting>> read_flakes(const std::filesystem::path& log_dir);

struct FlakeView {
    std::string test;
    int seen = 0, passed_alone = 0;
    std::optional<double> largest = std::nullopt;  // max_abs
    std::string first, last;                       // times
    // Seen to pass by itself after it had failed: then a failure is no verdict yet.
    bool known() const { return passed_alone > 0; }
};
// By test, those that were seen most first.
std::vector<FlakeView> flake_table(std::span<const FlakeSighting> sightings);

}  // namespace gdnctl::loop
