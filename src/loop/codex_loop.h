// A whole run of codex-loop: from options to its end.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/result.h"
#include "loop/engine/options.h"
#include "loop/gates/job_service.h"
#include "loop/gates/validation_options.h"
#include "platform/context.h"
#include "target/target.h"

namespace gdnctl::loop {

struct CodexLoopRequest {
    LoopOptions options;
    Target target;
    std::vector<std::string> allocator;  // the first words of the command that holds a dev TPU; empty: none is known
    GateChoices gates;                   // validation and performance
    SavedOptions words;                  // the options as they were given, for the journal
    ConfigAt config;                     // for jobs of a tree of the run
    bool dry_run = false;
};

struct CodexLoopReport {
    std::string reason;  // why the run ended
    int iteration = 0;   // the last one that began
    int rc = 0;
    std::string run, isolation, log_dir;
    std::int64_t iterations_total = 0, iterations_ended = 0, failures = 0, promotions = 0;
    std::map<std::string, int> outcomes;
    std::int64_t tokens = 0, agent_ms = 0, tpu_ms = 0, wall_ms = 0;
    // For a dry run only.
    std::vector<std::string> agent_argv;
    std::string prompt;
    std::vector<std::string> plan;  // lines for people
};

// Errors are those before anything has begun: usage, config, conflict (another loop is at work). What happens in a run
// is in the report, `rc` what the program is to exit with.
Result<CodexLoopReport> run_codex_loop(const CodexLoopRequest& request, Context& context);

}  // namespace gdnctl::loop
