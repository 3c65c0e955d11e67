// A run, its iterations and its verdicts in words.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "loop/memory/run_view.h"

namespace gdnctl::loop {

enum class LoopStatus { running, stopping, ended, interrupted };
std::string_view word_of(LoopStatus status);

LoopStatus status_of(const LoadedRun& run);
// "running, process 12 since ...", "ended: plateau", "interrupted in iteration 3"
std::string standing(const LoadedRun& run);

std::string duration_text(std::int64_t ms);
// What was measured of a cost: "14 min 11 s; agent 10 min 30 s, device 2 min 50 s, 86,415 tokens".
struct Cost {
    std::int64_t wall_ms = 0, agent_ms = 0, tpu_ms = 0;  // agent, tpu: 0 if there was none
    std::optional<std::int64_t> tokens = std::nullopt;   // nullopt: not reported
};
std::string cost_text(const Cost& cost);
// A commit abbreviated for people: 12 digits.
std::string short_commit(std::string_view sha);
// "-" for an empty text.
std::string or_dash(std::string text);

// The outcome of an iteration and its reason, as shown by loop-explain and the reports.

struct Explained {
    const loop::IterationView& iteration;
    std::string run;
    std::filesystem::path log_dir;
    const loop::MeasuredView* measured = nullptr;     // nullptr: not measured
    const loop::MeasuredRun* all_measured = nullptr;  // the whole state
    std::vector<std::string> files;                   // names of its artefacts
};

// The one word for what became of it: promoted, accepted, rejected, parked, failed, no-op, "under way".
std::string_view result_word(const loop::IterationView& iteration);
// "promoted", "rejected (tests failed; counted as a failure)", "under way"
std::string verdict_text(const loop::IterationView& iteration);
std::string why_text(const loop::IterationView& iteration);
// "2 promoted, 1 rejected"
std::string results_text(const std::map<std::string, int>& outcomes, std::int64_t promotions);
// Refs and branches that hold its work.
std::string kept_at_text(const Explained& explained);
// The command that puts work back on the branch that was parked because of trouble; empty: the work was judged.
std::string judge_again_text(const Explained& explained);
std::string gate_text(const loop::GateView& gate);  // "6.25 <= 5, `while_ms` increased by 6.25 ms"
// "3.6 ms"; empty: nothing was measured.
std::string value_text(const loop::MeasuredView& measured);
// "2.26x faster (1.25-4.1x, 3 pairs)"; empty: not compared. nullptr: not measured.
std::string gain_text(const loop::MeasuredView* measured);

// Fields of gdnctl.loop-explain/1 from "iteration" on.
Json explained_json(const Explained& explained);

}  // namespace gdnctl::loop
