// A stage of an iteration that catches a candidate whose idea was refused before.
#pragma once

#include <memory>

#include "loop/engine/stage.h"
#include "loop/memory/ideas.h"
#include "services/git/checkout.h"

namespace gdnctl::loop {

// Applies check_idea() before any time is spent on the candidate: warns, or refuses it. Earlier attempts come from
// <log-dir>/ledger.jsonl, including those of earlier runs. `repository` must outlive it.
std::unique_ptr<Stage> make_idea_stage(IdeaPolicy policy, const GitCheckout& repository);

}  // namespace gdnctl::loop
