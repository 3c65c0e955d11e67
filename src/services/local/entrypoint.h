// The shell that runs a job's entrypoint. It waits at a gate, so that nothing runs before the process is on record.
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
    UniqueFd gate;     // write a byte to start; close to give up
    UniqueFd problem;  // errno of a failed exec, then end of file
};

// Forks a process with its own session, stdin null, stdout and stderr appended to `log`, and `cwd`. It waits at the
// gate. Error: infrastructure (fork, pipe) or local_io (log).
Result<Entrypoint> prepare_entrypoint(const std::string& command, const std::map<std::string, std::string>& env,
                                      const std::filesystem::path& log, const std::filesystem::path& cwd);
// Opens the gate. Returns 0, or the errno of a failed exec.
int open_gate(Entrypoint& entrypoint);

}  // namespace gdnctl::local
