#include "core/result.h"

namespace gdnctl {

ExitCode exit_code_of(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::usage:
        case ErrorKind::config: return ExitCode::usage;
        case ErrorKind::check_failed: return ExitCode::check_failed;
        case ErrorKind::nothing_done: return ExitCode::nothing_done;
        case ErrorKind::infrastructure: return ExitCode::infrastructure;
        case ErrorKind::authentication: return ExitCode::authentication;
        case ErrorKind::remote_missing: return ExitCode::remote_missing;
        case ErrorKind::conflict: return ExitCode::conflict;
        case ErrorKind::local_io: return ExitCode::local_io;
        case ErrorKind::bad_input: return ExitCode::bad_input;
        case ErrorKind::timeout: return ExitCode::timeout;
        case ErrorKind::interrupted: return ExitCode::interrupted;
        case ErrorKind::terminated: return ExitCode::terminated;
        case ErrorKind::internal: return ExitCode::internal;
    }
    return ExitCode::internal;
}

const char* describe(ExitCode code) {
    switch (code) {
        case ExitCode::ok: return "success";
        case ExitCode::check_failed: return "the check failed";
        case ExitCode::usage: return "usage or configuration error";
        case ExitCode::nothing_done: return "no result: job stopped, nothing matched, or no new commit";
        case ExitCode::infrastructure: return "infrastructure: unreachable, or broken after retries";
        case ExitCode::authentication: return "authentication or authorisation";
        case ExitCode::remote_missing: return "not found: job, repository, revision or file";
        case ExitCode::conflict: return "integrity or conflict";
        case ExitCode::local_io: return "local I/O: disk full, permission, unsafe path";
        case ExitCode::bad_input: return "unusable input";
        case ExitCode::internal: return "internal error (a bug)";
        case ExitCode::timeout: return "gdnctl's time limit reached";
        case ExitCode::interrupted: return "interrupted by SIGINT, after cleaning up";
        case ExitCode::terminated: return "terminated by SIGTERM, after cleaning up";
    }
    return "unknown";
}

}  // namespace gdnctl
