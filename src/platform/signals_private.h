// Shared by the signal handler and process.cpp: the process groups that a second signal kills with us.
#pragma once

#include <cstdint>

#include <sys/types.h>

namespace gdnctl {

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
