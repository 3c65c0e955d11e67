// Starts a program, up to the moment when it runs.
#pragma once

#include <string>

#include "core/result.h"
#include "platform/fd.h"
#include "platform/process.h"

namespace gdnctl {

struct Started {
    pid_t pid = 0;
    UniqueFd in;        // for writing; not valid: no input
    UniqueFd out, err;  // for reading; not valid: the stream goes to a file or to the other one
};

// `mark_word` is added to GDNCTL_PROCESS_MARK. Errors as Process::run.
Result<Started> start_program(const ProcessSpec& spec, const std::string& mark_word);

}  // namespace gdnctl
