// SIGINT, SIGTERM and SIGHUP as a stop token.
#pragma once

#include <optional>
#include <stop_token>

#include "core/result.h"

namespace gdnctl {

// Installs the handlers on the first call and returns the token that the first SIGINT, SIGTERM or SIGHUP stops; later
// calls return the same token. A signal that was ignored when the program started (nohup, a background job of a plain
// shell) stays ignored. SIGPIPE is ignored from here on, so that a write to a closed pipe is an error and not a death.
//
// A second SIGINT, or a SIGTERM that comes a second or more after the first signal, kills this program at once, and
// with it the children that Process started; each gets its ProcessSpec::death_signal.
//
// Blocking system calls of the main thread return EINTR; the token is stopped a moment later by a thread of its own,
// because nothing that a stop request runs is allowed in a signal handler.
std::stop_token stop_on_signals();

// The first of the three signals that arrived; nullopt: none yet.
std::optional<int> received_signal();

// What a command that was stopped returns: interrupted (SIGINT, SIGHUP; exit code 130) or terminated (SIGTERM; 143).
// Without a signal (a test's own stop source): interrupted.
Error stopped_error();

}  // namespace gdnctl
