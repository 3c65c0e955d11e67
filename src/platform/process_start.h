// Starting a program: everything up to the moment when it runs.
#pragma once

#include <string>

#include "core/result.h"
#include "platform/fd.h"
#include "platform/process.h"

namespace gdnctl {

struct Started {
    pid_t pid = 0;
    UniqueFd in;        // to write to; not valid: nothing to feed
    UniqueFd out, err;  // to read from; not valid: goes to a file or to the other one
};

// `mark_word` is added to GDNCTL_PROCESS_MARK. Errors as Process::run.
Result<Started> start_program(const ProcessSpec& spec, const std::string& mark_word);

}  // namespace gdnctl
