// What is known of a run before anything is touched, and what --dry-run shows of it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "loop/codex_loop.h"
#include "loop/engine/engine.h"
#include "loop/engine/journal.h"
#include "loop/engine/options.h"
#include "loop/engine/transaction.h"
#include "loop/gates/validation_options.h"
#include "loop/memory/idea_stage.h"
#include "loop/prompt/presets.h"
#include "platform/context.h"

namespace gdnctl::loop {

struct LoopPlan {
    LoopOptions options;  // as --resilient left them
    GateChoices gates;
    std::filesystem::path root, workdir, subfolder, log_dir;  // subfolder: of the root, where the agent works
    std::optional<std::filesystem::file_time_type> alive;     // an earlier session in log_dir: see last_alive()
    std::string log;                    // the running log, relative to the root; empty: there is none
    StampMode stamps = StampMode::off;  // never automatic
    Document prompt;
    std::vector<std::string> directives;
    Isolation isolation = Isolation::inplace;
    std::string run, loop_id;
};

// Errors: usage, config. Nothing is written.
Result<LoopPlan> make_loop_plan(const CodexLoopRequest& request, const Context& context);

// JSON text for the `run` record.
std::string config_of(const LoopPlan& plan, const CodexLoopRequest& request);

// Whether the run that wrote this record, its first, can be continued by this command. Error usage: its gates or checks
// are missing, so that work would be kept without being judged. Other differences are warnings.
Status check_resumed(const Record& run, const LoopPlan& plan, const CodexLoopRequest& request);

// Checks that a cluster that the gates need answers, before an agent is paid for work that could not be judged. Does
// nothing without gates, on this machine, or if a TPU is to be `held`. Errors: those of check_clusters_answer().
Status check_gates_can_judge(const LoopPlan& plan, const CodexLoopRequest& request, Context& context, bool held);

// `automatic` is warn with gates, else off.
IdeaPolicy idea_policy_of(const LoopOptions& options, bool gates);

TransactionSettings transaction_settings(const LoopPlan& plan, const CodexLoopRequest& request,
                                         std::filesystem::path slot);

Status warn_of_detached(const GitCheckout& repository);

// Reports an error with which the first iteration would end the run, and returns that end.
RunEnd refused_at_once(const Error& error);

CodexLoopReport report_of(const LoopPlan& plan, const RunEnd& end, const RunState& state,
                          std::chrono::nanoseconds wall);

// Nothing is written, and no session of a model begins.
Result<CodexLoopReport> preview_loop(const CodexLoopRequest& request, const LoopPlan& plan, Context& context);

}  // namespace gdnctl::loop
