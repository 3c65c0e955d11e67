// What the signal handler and process.cpp share: groups that a second signal takes along.
#pragma once

#include <cstdint>

#include <sys/types.h>

namespace gdnctl {

// Registers the process group, and what it gets then, for the duration of the object. Any number may be tried, 64 at a
// time are kept.
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
