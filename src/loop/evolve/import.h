// Runs that start with another program's candidates, and lineages that it can continue.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "loop/evolve/run.h"
#include "loop/evolve/views.h"

namespace gdnctl::loop::evolve {

struct ImportReport {
    std::string run, best;  // best: name of the step with the highest score there, the earliest of equals
    std::filesystem::path log_dir;
    int steps = 0, to_judge = 0;
};
// Creates a run from one task's folder in the contest layout, with a candidate for each file. `map`: "REGEX=PATH",
// matched against the file's name; empty: all go to the only file that the target's `kernel` names. Errors: usage,
// those of read_contest().
Result<ImportReport> import_contest(const std::filesystem::path& from, const std::optional<std::string>& map,
                                    const EvolveRequest& request, Context& context);

// The ancestry of an attempt, oldest first, without the base. Returns how many steps were written. Errors: conflict
// (`to` is not empty), usage (the target has several kernel files).
Result<int> export_contest(const RunView& view, int attempt, const std::filesystem::path& to, const Target& target,
                           Context& context);

}  // namespace gdnctl::loop::evolve
