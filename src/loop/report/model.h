// Derives the contents of the views from records. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string_view>

#include "loop/engine/journal.h"
#include "loop/engine/resume.h"
#include "loop/report/report.h"

namespace gdnctl::loop {

// nullopt: the fact is not a gate.
std::optional<GateView> parse_gate(std::string_view id, std::string_view fact);

RunView view_of(std::span<const Record> records);

// The arguments of summarise() that follow from a journal.
RunState state_of(std::span<const Record> records);

// Describes a record for someone who watches; empty: nothing to say.
std::string event_text(const Record& record);

// The time between two timestamps of the journal, never below 0; nullopt: one of them is not a time.
std::optional<std::chrono::milliseconds> between(std::string_view earlier, std::string_view later);

// Parses a perf_state.json, version 1 or 2. Fields of the wrong type count as missing. Error: config, not a JSON
// object.
Result<MeasuredRun> parse_measured(std::string_view text, std::string_view name);

}  // namespace gdnctl::loop
