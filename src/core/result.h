// Errors as values, and the one table of exit codes. No exception crosses the border of a folder.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

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

// Errors as values. No exception crosses a folder border; cli::run maps any that escapes to exit code 70.
namespace gdnctl {

// The kinds of failure, by what the user can do about them. Each kind has exactly one exit code (exit_code_of).
enum class ErrorKind {
    usage,           // bad flag, value or combination; a path named on the command line does not exist
    config,          // gdnctl.toml or the environment is wrong
    check_failed,    // a check failed (red tests, lint violations, oracle mismatch)
    nothing_done,    // job was stopped, no file matched, no new commit
    infrastructure,  // unreachable, broken after retries
    authentication,  // 401/403, token unreadable
    remote_missing,  // job, repository, revision or file does not exist on the other side
    conflict,        // integrity: hash mismatch, lock held, protected file changed
    local_io,        // disk full, permission, unsafe path
    bad_input,       // corrupt or malformed data
    timeout,         // our own time limit
    interrupted,     // SIGINT or SIGHUP
    terminated,      // SIGTERM
    internal,        // a bug in gdnctl
};

// One failure. `message` says what failed and on what, without a final period. `hint` says what to do next (may be
// empty). `context` grows outward: its first element is the innermost step. None of them may contain a secret.
struct Error {
    ErrorKind kind = ErrorKind::internal;
    std::string message;
    std::string hint;
    std::string context;

    // Returns this error with an outer step prepended to its context ("reading a.npz: inflating: ...").
    Error within(std::string_view step) && {
        context = context.empty() ? std::string(step) : std::string(step) + ": " + context;
        return std::move(*this);
    }
    // "context: message" or just the message.
    std::string text() const { return context.empty() ? message : context + ": " + message; }
};

template <class T>
using Result = tl::expected<T, Error>;

using Status = Result<void>;

inline tl::unexpected<Error> fail(ErrorKind kind, std::string message, std::string hint = {}) {
    return tl::unexpected<Error>(Error{kind, std::move(message), std::move(hint), {}});
}

ExitCode exit_code_of(ErrorKind kind);

}  // namespace gdnctl

#define GDNCTL_CONCAT_(a, b) a##b
#define GDNCTL_CONCAT(a, b) GDNCTL_CONCAT_(a, b)

// Returns the error of `expr` (a Result or Status) from the calling function, if it has one.
#define GDNCTL_TRY(expr)                                                 \
    do {                                                                 \
        if (auto gdnctl_try_result = (expr); !gdnctl_try_result) {       \
            return tl::unexpected(std::move(gdnctl_try_result).error()); \
        }                                                                \
    } while (false)

// Declares or assigns `var` from the value of `expr`, or returns its error. Example: GDNCTL_TRY_ASSIGN(auto x,
// read(p));
#define GDNCTL_TRY_ASSIGN(var, expr) GDNCTL_TRY_ASSIGN_(GDNCTL_CONCAT(gdnctl_try_, __LINE__), var, expr)
#define GDNCTL_TRY_ASSIGN_(tmp, var, expr)             \
    auto tmp = (expr);                                 \
    if (!tmp) {                                        \
        return tl::unexpected(std::move(tmp).error()); \
    }                                                  \
    var = std::move(*tmp)
