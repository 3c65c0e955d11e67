// A candidate whose idea was refused before, as a stage of an iteration.
#pragma once

#include <memory>

#include "loop/engine/stage.h"
#include "loop/memory/ideas.h"
#include "services/git/checkout.h"

namespace gdnctl::loop {

// Warns of, or refuses, what check_idea() speaks against, before any time is spent on it. Earlier tries are those of
// <log-dir>/ledger.jsonl, of earlier runs too. `repository` must outlive it.
std::unique_ptr<Stage> make_idea_stage(IdeaPolicy policy, const GitCheckout& repository);

}  // namespace gdnctl::loop
