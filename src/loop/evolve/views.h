// How an evolve run stands, for people and for scripts. Pure but for load_evolve().
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "loop/evolve/state.h"

namespace gdnctl::loop::evolve {

// Whether the journal of this directory is that of an evolve run.
bool is_evolve_run(const std::filesystem::path& log_dir);

struct RunView {
    std::filesystem::path log_dir;
    State state;
    bool running = false;  // a process holds its lock
};
// Errors: remote_missing (exit 6), conflict (a damaged journal).
Result<RunView> load_evolve(const std::filesystem::path& log_dir);

// `id`: a number, "best", "base", or seven and more digits of a commit. Error: remote_missing (exit 6).
Result<int> attempt_of(const State& state, std::string_view id);

// Members of gdnctl.loop-status/1: mode, run, state, attempts, best, running, noise, spent, lineages.
Json status_json(const RunView& view);
std::string status_text(const RunView& view);

// Their parts: what follows from the journal alone, and what does not.
Json status_facts(const State& state);
std::string status_body(const State& state);
Json status_head(const std::filesystem::path& log_dir, const std::string& stopped, bool running_now);
std::string status_heading(const std::string& run, const std::string& stopped, bool running_now);
std::string status_place(const std::filesystem::path& log_dir);

// Members of gdnctl.evolve-show/1.
Result<Json> attempt_json(const RunView& view, int attempt);
Result<std::string> attempt_text(const RunView& view, int attempt);

// "base", "running", "imported" (and not judged yet), or the verdict.
std::string_view verdict_word(const Attempt& one);
// One object, and one line, for each attempt.
Json log_json(const State& state);
std::string log_text(const State& state);
// From an attempt back to the base, by first parents.
std::vector<int> ancestry(const State& state, int attempt);
std::string lineage_text(const State& state, const std::vector<int>& numbers);
Json lineage_json(const State& state, const std::vector<int>& numbers);

}  // namespace gdnctl::loop::evolve
