// Threads that help a caller with its tasks and stay alive for the next call, because starting or waking a thread takes
// longer than some kernels.
#pragma once

#include <atomic>
#include <cstddef>

namespace gdnctl::oracle {

class HelperPool;

// Asks at most `count` other threads to call help(context) once each, while the caller works too. The destructor waits
// only for helpers that have already started, so help() must return once nothing is left to do. help() must not throw.
// Several threads may call at once, and helpers may call too.
//
// A helper without work polls for a millisecond, yielding its processor, and then sleeps (at once if it shares the
// caller's processor). It computes with the caller's rounding and denormal modes, and inherits processors and priority
// from the thread whose call started it. Signals are blocked in helpers, except those of their own faults. A forked
// child starts without helpers.
class Helpers {
public:
    // The number of this thread among all helpers, 1-based, constant for its life; 0: not a helper.
    static std::size_t number();

    Helpers(std::size_t count, void (*help)(void*), void* context);
    // help: callable without arguments; it must outlive this object.
    template <class Help>
    Helpers(std::size_t count, const Help& help)
        : Helpers(count, [](void* context) { (*static_cast<const Help*>(context))(); }, const_cast<Help*>(&help)) {}
    ~Helpers();
    Helpers(const Helpers&) = delete;
    Helpers& operator=(const Helpers&) = delete;

private:
    friend class HelperPool;

    void (*m_help)(void*);
    void* m_context;
    unsigned m_arithmetic;                // the caller's rounding and denormal modes
    HelperPool* m_pool = nullptr;         // the pool that was called, if any
    std::size_t m_wanted;                 // how many more may start
    std::atomic<std::size_t> m_busy = 0;  // how many have started and not ended
};

}  // namespace gdnctl::oracle
