// Threads that help a caller with its tasks, and stay for the next one: to start a thread, or to wake one, takes longer
// than some of our kernels.
#pragma once

#include <atomic>
#include <cstddef>

namespace gdnctl::oracle {

class HelperPool;

// A call to at most `count` other threads to call help(context) once each, beside the caller. Who has not begun when
// the object ends is not waited for, who has begun is: so help() must return once nothing is left to do. help() must
// not throw. Callers may be several threads, and helpers themselves.
//
// A helper without work looks out for more for a millisecond, letting others have its processor if they want it, and
// then sleeps; at once where that is the caller's. It computes with the rounding and the treatment of denormals that
// its caller has; processors, priority and the like it has from whoever called when it was started. Signals are blocked
// in helpers, but for those that a fault of their own would be. A forked child starts with none.
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
