// The one table of exit codes, shared by all commands.
#pragma once

namespace gdnctl {

enum class ExitCode : int {
    ok = 0,              // success
    check_failed = 1,    // job FAILED, tests red, log violations, oracle mismatch
    usage = 2,           // usage or configuration error
    nothing_done = 3,    // job was stopped, or no file matched
    infrastructure = 4,  // unreachable, timed out or broken after retries
    authentication = 5,  // authentication or authorisation
    remote_missing = 6,  // not found: job, repository, revision or file
    conflict = 7,        // integrity or conflict
    local_io = 8,        // disk full, permission, unsafe path
    bad_input = 9,       // unusable input
    internal = 70,       // a bug
    timeout = 124,       // our own time limit
    interrupted = 130,   // SIGINT, after cleaning up
    terminated = 143,    // SIGTERM, after cleaning up
};

// A short noun phrase for help pages and docs ("usage or configuration error").
const char* describe(ExitCode code);

}  // namespace gdnctl
