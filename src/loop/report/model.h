// How what the views show follows from records. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string_view>

#include "loop/engine/journal.h"
#include "loop/engine/resume.h"
#include "loop/report/report.h"

namespace gdnctl::loop {

// nullopt: the fact is no gate.
std::optional<GateView> parse_gate(std::string_view id, std::string_view fact);

RunView view_of(std::span<const Record> records);

// The arguments of summarise() that a journal implies.
RunState state_of(std::span<const Record> records);

// What a record says to somebody who watches; empty: nothing.
std::string event_text(const Record& record);

// Two times as the journal has them; nullopt: one of them is none. Never below 0.
std::optional<std::chrono::milliseconds> between(std::string_view earlier, std::string_view later);

// The text of a perf_state.json, versions 1 and 2; what is of another type is as if it were not there. Error config: no
// JSON object.
Result<MeasuredRun> parse_measured(std::string_view text, std::string_view name);

}  // namespace gdnctl::loop
