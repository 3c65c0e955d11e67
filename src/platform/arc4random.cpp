// Debian 12's static libstdc++ takes its random numbers from arc4random, which glibc has since 2.36. The portable
// binary must start on 2.35, so it brings its own, based on the system call. Linked only with a static runtime.
#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include <sys/random.h>

extern "C" std::uint32_t arc4random() noexcept {
    std::uint32_t value = 0;
    while (getrandom(&value, sizeof value, 0) != static_cast<ssize_t>(sizeof value)) {
        if (errno != EINTR) std::abort();  // no entropy at all: it cannot continue
    }
    return value;
}
