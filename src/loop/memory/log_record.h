// The record from which an iteration's entry in the running log is rendered.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "loop/engine/journal.h"
#include "loop/memory/ledger.h"

namespace gdnctl::loop {

struct LogFacts {
    std::string evidence_folder;        // prefix for names of files in the log directory; "" or ending in a slash
    std::vector<std::string> messages;  // of the candidate's commits, oldest first
};

// iteration_record() adapted to the log: tests are separate from the profile; title, hypothesis and changes come from
// the commit messages if the agent did not report them. Pure.
Json log_record(std::span<const Record> own, const LedgerFacts& facts, const LogFacts& log);

}  // namespace gdnctl::loop
