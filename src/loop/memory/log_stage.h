// What a candidate makes of the running log, as a stage of an iteration.
#pragma once

#include <memory>
#include <string>

#include "loop/engine/stage.h"
#include "services/git/checkout.h"

namespace gdnctl::loop {

// Refuses, before any time is spent on it, a candidate after which no entry could be added to the log: it cannot be
// read any more, or is gone, or its records are. `path`: of the log in the repository, which must outlive it.
std::unique_ptr<Stage> make_log_stage(std::string path, const GitCheckout& repository);

}  // namespace gdnctl::loop
