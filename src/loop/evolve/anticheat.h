// Stage anticheat: detects cheats that do not show as wrong results (docs/evolve.md).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "loop/evolve/evaluate.h"

namespace gdnctl::loop::evolve {

struct CheatCheck {
    bool skipped = false;                       // there is nothing to check by
    Launch end;                                 // of the launch that failed, or of all
    std::map<std::string, std::string> checks;  // "relations", "floor", "kernel_op", "nonce": pass, fail, skip
};
// Errors: those of Evaluator::launch().
Result<CheatCheck> check_cheats(Evaluator& evaluator, const std::string& commit, const std::filesystem::path& log);

// Words of sources that cheats need and kernels rarely do ("clock_gettime"), as hints for people: nothing is refused
// for them. Pure.
std::vector<std::string> cheat_hints(const std::map<std::string, std::string>& files);

}  // namespace gdnctl::loop::evolve
