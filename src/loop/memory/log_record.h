// The record that an iteration's entry in the running log is rendered from.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "loop/engine/journal.h"
#include "loop/memory/ledger.h"

namespace gdnctl::loop {

struct LogFacts {
    std::string evidence_folder;        // before the names of files in the log directory; "" or with a slash at its end
    std::vector<std::string> messages;  // of the candidate's commits, oldest first
};

// iteration_record() in the words of a log: tests apart from the profile, and a title, hypothesis and changes taken
// from the commits' messages where the agent reported none. Pure.
Json log_record(std::span<const Record> own, const LedgerFacts& facts, const LogFacts& log);

}  // namespace gdnctl::loop
