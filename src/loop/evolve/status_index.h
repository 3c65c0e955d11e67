// state.json in the log directory: the state of a run, so that a long journal need not be read. Derived: it is valid
// only while it names the journal's size and the hash of its last line.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "loop/evolve/state.h"

namespace gdnctl::loop::evolve {

inline constexpr std::string_view k_index = "state.json";

// A failed write is ignored, because the index can be rebuilt.
void write_index(const std::filesystem::path& log_dir, const State& state, std::string_view last_line);

struct StatusIndex {
    std::string status;  // of status_json(), as text
    std::string text;    // of status_text()
};
// nullopt: there is none, or the journal has grown since.
std::optional<StatusIndex> read_index(const std::filesystem::path& log_dir, bool running);

}  // namespace gdnctl::loop::evolve
