#include "platform/signals.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <mutex>

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace gdnctl {

namespace {

// Everything that the handler touches is lock-free and never destroyed.
std::atomic<int> g_first_signal{0};
std::atomic<int> g_wake_fd{-1};
std::atomic<std::int64_t> g_first_ms{0};
std::array<std::atomic<std::int64_t>, 64> g_groups{};  // pid, with the signal to send in the upper bits; 0: free

constexpr int k_signal_shift = 32;
// When a process group is signalled and a wrapper in it forwards the signal, two arrive but one is meant.
constexpr std::int64_t k_one_signal_ms = 1000;

std::int64_t milliseconds_now() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

void die_at_once(int signal) {
    for (const auto& slot : g_groups) {
        const std::int64_t entry = slot.load();
        const auto group = static_cast<pid_t>(entry & 0xffffffff);
        if (group > 1) kill(-group, static_cast<int>(entry >> k_signal_shift));
    }
    struct sigaction plain{};
    plain.sa_handler = SIG_DFL;
    sigaction(signal, &plain, nullptr);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    raise(signal);
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

extern "C" void handle_signal(int signal) {
    const int saved_errno = errno;
    int none = 0;
    const bool first = g_first_signal.compare_exchange_strong(none, signal);
    if (first) g_first_ms.store(milliseconds_now());
    const bool later = milliseconds_now() - g_first_ms.load() >= k_one_signal_ms;
    if (!first && (signal == SIGINT || (signal == SIGTERM && later))) die_at_once(signal);
    const std::uint64_t one = 1;
    // A full counter means that the watcher has already been woken.
    [[maybe_unused]] const ssize_t n = write(g_wake_fd.load(), &one, sizeof one);
    errno = saved_errno;
}

// Never destroyed, since the watcher uses it until the process ends.
struct Watch {
    std::stop_source source;
    int fd = -1;
};

extern "C" void* watch_signals(void* argument) {
    auto* watch = static_cast<Watch*>(argument);
    std::uint64_t count = 0;
    while (read(watch->fd, &count, sizeof count) < 0 && errno == EINTR) {
    }
    watch->source.request_stop();
    return nullptr;
}

void start_watcher(Watch& watch) {
    watch.fd = eventfd(0, EFD_CLOEXEC);
    if (watch.fd < 0) return;  // no descriptor left: signals end the process as they do by default
    g_wake_fd.store(watch.fd);
    // Signals must go to the main thread, to interrupt its blocking calls.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, std::size_t{256} << 10);
    pthread_t thread{};
    if (pthread_create(&thread, &attributes, watch_signals, &watch) != 0) {
        // Without the watcher, restore the default (death by the signal) rather than ignore signals.
        g_wake_fd.store(-1);
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void set_disposition(int signal, void (*handler)(int)) {
    struct sigaction action{};
    action.sa_handler = handler;
    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, nullptr);
}

void handle_unless_ignored(int signal) {
    struct sigaction old{};
    if (sigaction(signal, nullptr, &old) == 0 && old.sa_handler == SIG_IGN) return;
    set_disposition(signal, handle_signal);
}

}  // namespace

std::stop_token stop_on_signals() {
    static const std::stop_token token = [] {
        static Watch* const watch = new Watch;  // stays reachable after its thread has ended
        start_watcher(*watch);
        set_disposition(SIGPIPE, SIG_IGN);
        if (g_wake_fd.load() >= 0) {
            for (const int signal : {SIGINT, SIGTERM, SIGHUP}) handle_unless_ignored(signal);
        }
        return watch->source.get_token();
    }();
    return token;
}

std::optional<int> received_signal() {
    const int signal = g_first_signal.load();
    if (signal == 0) return std::nullopt;
    return signal;
}

Error stopped_error() {
    const int signal = g_first_signal.load();
    if (signal == SIGTERM) return {ErrorKind::terminated, "terminated", {}, {}};
    return {ErrorKind::interrupted, signal == SIGHUP ? "interrupted: the terminal was closed" : "interrupted", {}, {}};
}

KilledWithUs::KilledWithUs(pid_t group, int signal) : m_entry(std::int64_t{signal} << k_signal_shift | group) {
    for (auto& slot : g_groups) {
        std::int64_t none = 0;
        if (slot.compare_exchange_strong(none, m_entry)) return;
    }
}

KilledWithUs::~KilledWithUs() {
    for (auto& slot : g_groups) {
        std::int64_t mine = m_entry;
        if (slot.compare_exchange_strong(mine, 0)) return;
    }
}

}  // namespace gdnctl
