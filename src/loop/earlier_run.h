// What runs leave in a log directory: that of an earlier run, and that of iterations that have ended.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "gdnctl/core/result.h"
#include "gdnctl/platform/clock.h"
#include "loop/artefacts.h"

namespace gdnctl::loop {

// A run that is not gone on with: its processes are ended, and work in a stash that only it would bring back is named.
void look_at_earlier_run(const std::filesystem::path& journal, Clock& clock);
// The name of the run that wrote the journal; `otherwise`: it cannot be told.
std::string earlier_name(const std::filesystem::path& journal, const std::string& otherwise);

// Packs what is only read when something went wrong, and forgets what is older than `keep` iterations.
Status tidy(const Artefacts& artefacts, int iteration, std::int64_t keep, const std::filesystem::path& codex_home);

}  // namespace gdnctl::loop
