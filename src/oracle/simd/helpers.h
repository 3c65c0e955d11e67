// Threads that help a caller with its tasks and stay for the next call, because starting or waking a thread takes
// longer than some of our kernels.
#pragma once

#include <atomic>
#include <cstddef>

namespace gdnctl::oracle {

class HelperPool;

// Asks at most `count` other threads to call help(context) once each, beside the caller. The destructor waits only for
// helpers that have already started, so help() must return once nothing is left to do. help() must not throw. Several
// threads may call at once, and helpers may call too.
//
// A helper without work polls for a millisecond, yielding its processor, and then sleeps (at once if it shares the
// caller's processor). It computes with the caller's rounding and denormal modes, and inherits processors and priority
// from the thread whose call started it. Signals are blocked in helpers, except those of a fault of their own. A forked
// child starts without helpers.
class Helpers {
public:
    // The number of this thread among all helpers, from 1 on, as long as it lives; 0: it is none.
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
    unsigned m_arithmetic;                // the caller's rounding and denormals
    HelperPool* m_pool = nullptr;         // that was called, if any was
    std::size_t m_wanted;                 // how many more may begin
    std::atomic<std::size_t> m_busy = 0;  // how many have begun and not ended
};

}  // namespace gdnctl::oracle
