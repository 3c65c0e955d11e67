// The shell that runs a job's entrypoint: started behind a gate, so that nothing runs before it is on record.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <sys/types.h>

#include "core/result.h"
#include "platform/fd.h"

namespace gdnctl::local {

struct Entrypoint {
    pid_t pid = 0;
    UniqueFd gate;     // write a byte: go; close: give up
    UniqueFd problem;  // errno of a failed exec, then the end of file
};

// Forks: own session, stdin null, stdout and stderr appended to `log`, `cwd`. The process waits at the gate. Error:
// infrastructure (fork, pipe) or local_io (log).
Result<Entrypoint> prepare_entrypoint(const std::string& command, const std::map<std::string, std::string>& env,
                                      const std::filesystem::path& log, const std::filesystem::path& cwd);
// Opens the gate. 0, or the errno for which the shell could not be executed.
int open_gate(Entrypoint& entrypoint);

}  // namespace gdnctl::local
