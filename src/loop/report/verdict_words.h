// What became of an iteration and why, as loop-explain and the reports put it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "loop/report/words.h"

namespace gdnctl::loop {

struct Explained {
    const loop::IterationView& iteration;
    std::string run;
    std::filesystem::path log_dir;
    const loop::MeasuredView* measured = nullptr;     // nullptr: it was not
    const loop::MeasuredRun* all_measured = nullptr;  // of the whole state
    std::vector<std::string> files;                   // names of its artefacts
};

// "kept, and the new champion", "refused (rejected; counted as a failure)", "under way"
std::string verdict_text(const loop::IterationView& iteration);
std::string why_text(const loop::IterationView& iteration);
// Refs and branches that hold its work.
std::string kept_at_text(const Explained& explained);
// What lays work that trouble parked on top of the branch again; empty: it was judged.
std::string judge_again_text(const Explained& explained);
std::string gate_text(const loop::GateView& gate);  // "6.25 <= 5, `while_ms` increased by 6.25 ms"
// "3.6 ms"; empty: nothing was measured.
std::string value_text(const loop::MeasuredView& measured);
// "2.26x faster (1.25-4.1x, 3 pairs)"; empty: it was compared with nothing. nullptr: it was not measured.
std::string gain_text(const loop::MeasuredView* measured);

// Fields of gdnctl.loop-explain/1 from "iteration" on.
Json explained_json(const Explained& explained);

}  // namespace gdnctl::loop
