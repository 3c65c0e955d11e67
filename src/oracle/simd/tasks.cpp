#include "oracle/simd/tasks.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sched.h>
#include <signal.h>

namespace gdnctl::oracle {

namespace {

using Clock = std::chrono::steady_clock;

// How long a thread polls before it sleeps. Waking takes 0.05 ms on a virtual machine.
constexpr auto k_helper_looks = std::chrono::milliseconds(1);
constexpr auto k_caller_looks = std::chrono::microseconds(200);
constexpr auto k_selfish = std::chrono::microseconds(50);
// Per process, whatever its callers ask for.
constexpr std::size_t k_most_helpers = 256;

thread_local std::size_t t_number = 0;

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

// This thread's rounding mode, and whether it treats denormals as 0.
unsigned arithmetic() {
#if defined(__x86_64__)
    return __builtin_ia32_stmxcsr();
#else
    return 0;
#endif
}

void set_arithmetic([[maybe_unused]] unsigned state) {
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(state);
#endif
}

// Waits until there() is true, `longest` is over, or `worthwhile`() is false; returns whether it was true. A longer
// wait yields the processor in between.
template <class There, class Worthwhile>
bool look_out(std::chrono::nanoseconds longest, const There& there, const Worthwhile& worthwhile) {
    const Clock::time_point begin = Clock::now();
    for (;;) {
        for (int i = 0; i < 64; ++i) {
            if (there()) return true;
            pause();
        }
        const auto passed = Clock::now() - begin;
        if (passed > longest || !worthwhile()) return false;
        if (passed > k_selfish) sched_yield();
    }
}

template <class There>
bool look_out(std::chrono::nanoseconds longest, const There& there) {
    return look_out(longest, there, [] { return true; });
}

// Spins for a lock that is only held briefly, except while threads start; sleeping and being woken would take longer.
void lock_soon(std::unique_lock<std::mutex>& lock) {
    if (!look_out(k_selfish, [&lock] { return lock.try_lock(); })) lock.lock();
}

}  // namespace

class HelperPool {
public:
    // Never destroyed: helpers wait in it until the process ends.
    static HelperPool& get();

    void call(Helpers& helpers);
    void end(Helpers& helpers);

private:
    bool start();
    void run();
    Helpers* take(std::unique_lock<std::mutex>& lock);

    static std::atomic<HelperPool*> s_pool;

    std::mutex m_mutex;
    std::condition_variable m_called, m_ended;
    std::vector<Helpers*> m_calls;          // those that still want helpers
    std::atomic<std::size_t> m_wanted = 0;  // over all calls
    std::atomic<int> m_processor = -1;      // of the last caller
    std::size_t m_free = 0;                 // threads without work
    std::size_t m_asleep = 0;               // of the free ones
    std::size_t m_started = 0;
};

std::atomic<HelperPool*> HelperPool::s_pool = nullptr;

HelperPool& HelperPool::get() {
    static const int at_fork = pthread_atfork(nullptr, nullptr, [] { s_pool = nullptr; });
    static_cast<void>(at_fork);
    HelperPool* pool = s_pool;
    if (pool == nullptr) {
        auto* mine = new HelperPool;
        if (s_pool.compare_exchange_strong(pool, mine)) return *mine;
        delete mine;
    }
    return *pool;
}

void HelperPool::call(Helpers& helpers) {
    std::unique_lock lock(m_mutex, std::defer_lock);
    lock_soon(lock);
    m_processor.store(sched_getcpu(), std::memory_order_relaxed);
    m_calls.push_back(&helpers);
    m_wanted += helpers.m_wanted;
    while (m_free < m_wanted && m_started < k_most_helpers && start()) continue;
    for (std::size_t awake = m_free - m_asleep; awake < m_wanted && awake < m_free; ++awake) m_called.notify_one();
}

// False: no thread, or no memory for one.
bool HelperPool::start() {
    sigset_t others, before;
    sigfillset(&others);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&others, own);
    pthread_sigmask(SIG_SETMASK, &others, &before);
    bool started = true;
    try {
        std::thread([this, number = m_started + 1] {
            t_number = number;
            run();
        }).detach();
    } catch (...) {
        started = false;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    m_started += started ? 1 : 0;
    m_free += started ? 1 : 0;
    return started;
}

void HelperPool::run() {
    std::unique_lock lock(m_mutex);
    for (;;) {
        Helpers* call = take(lock);
        --m_free;
        lock.unlock();
        set_arithmetic(call->m_arithmetic);
        call->m_help(call->m_context);
        lock_soon(lock);
        ++m_free;
        if (--call->m_busy == 0) m_ended.notify_all();  // the caller may be gone by now
    }
}

// Takes the oldest call. Polls for one without the lock, then sleeps; at once if this thread is on the last caller's
// processor, where it would only be in the way. It is then woken on another one.
Helpers* HelperPool::take(std::unique_lock<std::mutex>& lock) {
    while (m_calls.empty()) {
        lock.unlock();
        const bool called = look_out(
            k_helper_looks, [this] { return m_wanted.load(std::memory_order_relaxed) > 0; },
            [this] { return sched_getcpu() != m_processor.load(std::memory_order_relaxed); });
        lock_soon(lock);
        if (called || !m_calls.empty()) continue;
        ++m_asleep;
        m_called.wait(lock);
        --m_asleep;
    }
    Helpers* call = m_calls.front();
    ++call->m_busy;
    --m_wanted;
    if (--call->m_wanted == 0) m_calls.erase(m_calls.begin());
    return call;
}

void HelperPool::end(Helpers& helpers) {
    std::unique_lock lock(m_mutex, std::defer_lock);
    lock_soon(lock);
    m_wanted -= helpers.m_wanted;
    std::erase(m_calls, &helpers);
    lock.unlock();
    if (look_out(k_caller_looks, [&] { return helpers.m_busy == 0; })) return;
    lock.lock();
    m_ended.wait(lock, [&] { return helpers.m_busy == 0; });
}

std::size_t Helpers::number() { return t_number; }

Helpers::Helpers(std::size_t count, void (*help)(void*), void* context)
    : m_help(help), m_context(context), m_arithmetic(arithmetic()), m_wanted(count) {
    if (count == 0) return;
    try {
        m_pool = &HelperPool::get();
        m_pool->call(*this);
    } catch (...) {
        m_pool = nullptr;  // no memory for the call, so no helper knows of it and the caller does all the work
    }
}

Helpers::~Helpers() {
    if (m_pool != nullptr) m_pool->end(*this);
}

}  // namespace gdnctl::oracle
