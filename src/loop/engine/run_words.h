// The options of a run in words, as its journal keeps them: what --resume goes on with.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/result.h"

namespace gdnctl::loop {

using OptionWords = std::map<std::string, std::vector<std::string>>;  // by the option's name, "--post-check"

struct RunWords {
    std::string run;          // its name; read, never written
    std::string cwd;          // where it was called, relative to the root of the repository
    std::string config_file;  // of --config, absolute; empty: found
    std::string target;
    OptionWords given;             // in force: of the command line, else of the configuration
    OptionWords configured;        // what the configuration said, also where the command line overrode it
    std::set<std::string> masked;  // options that hold a secret: their words cannot be used again
};

// JSON text for the `run` and `resume` records, with every secret masked and its option in `masked`.
std::string to_text(RunWords words);

// Those of the journal's last `run` or `resume` record that has them; nullopt: no journal, or one of a gdnctl that kept
// none. Errors: those of parse_records(), config (not what to_text() writes).
Result<std::optional<RunWords>> words_of_run(const std::filesystem::path& journal);

}  // namespace gdnctl::loop
