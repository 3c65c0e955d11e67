// SIGINT, SIGTERM and SIGHUP as a stop token.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>

#include <sys/types.h>

#include "core/result.h"

namespace gdnctl {

// Installs the handlers on the first call. Returns the token that the first SIGINT, SIGTERM or SIGHUP stops; later
// calls return the same token. A signal that was ignored when the program started (nohup, a background job of a plain
// shell) stays ignored. From here on SIGPIPE is ignored, so that writing to a closed pipe is an error instead of ending
// the program.
//
// A second SIGINT, or a SIGTERM at least a second after the first signal, kills this program at once, together with the
// children that Process started; each gets its ProcessSpec::death_signal.
//
// Blocking system calls of the main thread return EINTR. A separate thread stops the token a moment later, because
// nothing that a stop request runs is allowed in a signal handler.
std::stop_token stop_on_signals();

// The first of the three signals that arrived; nullopt: none yet.
std::optional<int> received_signal();

// The error of a stopped command: interrupted (SIGINT, SIGHUP; exit code 130) or terminated (SIGTERM; 143). Without a
// signal (a test's own stop source): interrupted.
Error stopped_error();

// Shared by the signal handler and process.cpp: the process groups that a second signal kills with us.

// Registers a process group, and the signal for it, while the object lives. At most 64 are kept at a time; any more are
// not registered.
class KilledWithUs {
public:
    KilledWithUs(pid_t group, int signal);
    ~KilledWithUs();
    KilledWithUs(const KilledWithUs&) = delete;
    KilledWithUs& operator=(const KilledWithUs&) = delete;

private:
    std::int64_t m_entry;
};

}  // namespace gdnctl
