// A stage of an iteration that checks the candidate's effect on the running log.
#pragma once

#include <memory>
#include <string>

#include "loop/engine/stage.h"
#include "services/git/checkout.h"

namespace gdnctl::loop {

// Refuses a candidate, before any time is spent on it, if no entry could be added to the log afterwards, because the
// log or its records are missing or unreadable. `path`: of the log in the repository, which must outlive it.
std::unique_ptr<Stage> make_log_stage(std::string path, const GitCheckout& repository);

}  // namespace gdnctl::loop
