// Names for a run and its parts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "loop/report/report.h"

namespace gdnctl::loop {

enum class LoopStatus { running, stopping, ended, interrupted };
std::string_view word_of(LoopStatus status);

LoopStatus status_of(const LoadedRun& run);
// "running, process 12 since ...", "ended: plateau", "interrupted in iteration 3"
std::string standing(const LoadedRun& run);

std::string duration_text(std::int64_t ms);
// A commit abbreviated for people: 12 digits.
std::string short_commit(std::string_view sha);
// "-" for an empty text.
std::string or_dash(std::string text);

}  // namespace gdnctl::loop
