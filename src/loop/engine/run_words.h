// The options of a run as words, as the journal stores them for --resume.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/result.h"

namespace gdnctl::loop {

using OptionWords = std::map<std::string, std::vector<std::string>>;  // by option name, such as "--post-check"

struct RunWords {
    std::string run;          // name of the run; only read, never written
    std::string cwd;          // working directory of the command, relative to the root of the repository
    std::string config_file;  // from --config, absolute; empty: found by searching
    std::string target;
    OptionWords given;             // in effect: from the command line, else from the configuration
    OptionWords configured;        // from the configuration, even if the command line overrode it
    std::set<std::string> masked;  // options that contain a secret: their stored words cannot be reused
};

// JSON text for the records that start or resume a run of either mode, with secrets masked and their options listed in
// `masked`.
std::string to_text(RunWords words);

// From the last record that has them; nullopt: no journal, or one written by a gdnctl that did not store them. Errors:
// those of read_chain_file() and check_never_begun(), config (not the output of to_text()).
Result<std::optional<RunWords>> words_of_run(const std::filesystem::path& journal);

}  // namespace gdnctl::loop
