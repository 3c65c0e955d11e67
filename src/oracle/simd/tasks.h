// Threads that help a caller with its tasks and stay alive for the next call, because starting or waking a thread takes
// longer than some kernels.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <new>
#include <optional>
#include <type_traits>

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

// Runs independent tasks on a few threads. Which thread runs which task is random, and results must not depend on it.

// Calls make_worker() once per thread, then worker(task) for every task in [0, count). If a thread cannot be started,
// comes late or has no memory for its worker, the others do all the work. Other exceptions reach the caller.
template <class MakeWorker>
void run_tasks(std::size_t count, int threads, const MakeWorker& make_worker) {
    std::atomic<std::size_t> next = 0;
    const auto work = [&](auto& worker) {
        for (std::size_t task = next++; task < count; task = next++) worker(task);
    };
    std::exception_ptr failure;  // the first one of another thread
    std::atomic_flag failed;
    const auto help = [&] {
        std::optional<std::invoke_result_t<const MakeWorker&>> worker;
        try {
            try {
                worker.emplace(make_worker());
            } catch (const std::bad_alloc&) {
                return;
            }
            work(*worker);
        } catch (...) {
            if (!failed.test_and_set()) failure = std::current_exception();
            next = count;
        }
    };
    const std::size_t helpers = std::min(count, static_cast<std::size_t>(std::max(threads, 1))) - (count > 0 ? 1 : 0);
    {
        const Helpers beside(helpers, help);
        auto worker = make_worker();
        work(worker);
    }
    if (failure) std::rethrow_exception(failure);
}

// Splits long arrays into blocks for several threads. The blocks are the same for any number of threads, so that sums
// do not depend on it.

struct Blocks {
    std::size_t items = 0, size = 1, count = 0;

    // `width`: elements per item. At most 16 blocks, and none too small to be worth starting a thread.
    explicit Blocks(std::size_t all, std::size_t width = 1) : items(all) {
        constexpr std::size_t k_elements = 65536;
        constexpr std::size_t k_most = 16;
        size = std::max({(all + k_most - 1) / k_most, k_elements / std::max<std::size_t>(width, 1), std::size_t{1}});
        count = (all + size - 1) / size;
    }
    std::size_t begin(std::size_t block) const { return block * size; }
    std::size_t end(std::size_t block) const { return std::min(items, (block + 1) * size); }
};

}  // namespace gdnctl::oracle
