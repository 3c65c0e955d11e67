// What the signal handler and process.cpp share: groups that a second SIGINT takes along.
#pragma once

#include <sys/types.h>

namespace gdnctl {

// Registers the process group for the duration of the object. Any number may be tried, 64 at a time are kept.
class KilledWithUs {
public:
    explicit KilledWithUs(pid_t group);
    ~KilledWithUs();
    KilledWithUs(const KilledWithUs&) = delete;
    KilledWithUs& operator=(const KilledWithUs&) = delete;

private:
    pid_t m_group;
};

}  // namespace gdnctl
