// Tasks on a few threads: all are done, also where a thread is missing, and no exception is lost.
#include "oracle/simd/tasks.h"

#include <atomic>
#include <cfenv>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

using namespace gdnctl::oracle;

namespace {

std::vector<int> done(std::size_t count, int threads, bool others_have_memory) {
    std::vector<int> times(count, 0);
    const auto caller = std::this_thread::get_id();
    run_tasks(count, threads, [&] {
        if (!others_have_memory && std::this_thread::get_id() != caller) throw std::bad_alloc();
        return [&](std::size_t task) { ++times[task]; };
    });
    return times;
}

}  // namespace

TEST_CASE("tasks: each is done once, whatever the number of threads") {
    for (const std::size_t count : {0UL, 1UL, 2UL, 100UL}) {
        for (const int threads : {-1, 0, 1, 2, 7, 200}) CHECK(done(count, threads, true) == std::vector<int>(count, 1));
    }
}

TEST_CASE("tasks: threads without memory leave theirs to the others") {
    CHECK(done(50, 8, false) == std::vector<int>(50, 1));
    CHECK_THROWS_AS(run_tasks(3, 4, []() -> void (*)(std::size_t) { throw std::bad_alloc(); }), std::bad_alloc);
}

TEST_CASE("tasks: what a thread throws reaches the caller") {
    for (const int threads : {1, 4}) {
        std::atomic<int> begun = 0;
        CHECK_THROWS_AS(run_tasks(64, threads,
                                  [&] {
                                      return [&](std::size_t) {
                                          if (++begun == 2) throw std::runtime_error("second");
                                      };
                                  }),
                        std::runtime_error);
    }
}

TEST_CASE("tasks: several threads call at once, and tasks have tasks") {
    std::atomic<int> sum = 0;
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 3; ++caller) {
        callers.emplace_back([&] {
            for (int round = 0; round < 50; ++round) {
                run_tasks(4, 3, [&] {
                    return [&](std::size_t) {
                        run_tasks(2, 2, [&] { return [&](std::size_t task) { sum += static_cast<int>(task) + 1; }; });
                    };
                });
            }
        });
    }
    for (std::thread& caller : callers) caller.join();
    CHECK(sum == 3 * 50 * 4 * (1 + 2));
}

TEST_CASE("tasks: threads that help take no signals") {
    std::atomic<int> helped = 0;
    std::atomic<bool> open = false, begun = false;
    const auto caller = std::this_thread::get_id();
    // One task is the caller's, one a helper's.
    run_tasks(2, 2, [&] {
        return [&](std::size_t) {
            if (std::this_thread::get_id() == caller) {
                begun = true;
                while (helped == 0) std::this_thread::yield();
                return;
            }
            while (!begun) std::this_thread::yield();
            sigset_t mask;
            pthread_sigmask(SIG_SETMASK, nullptr, &mask);
            for (const int signal : {SIGINT, SIGTERM, SIGCHLD, SIGUSR1}) open = open || sigismember(&mask, signal) == 0;
            ++helped;
        };
    });
    CHECK(helped == 1);
    CHECK_FALSE(open);
}

#if defined(__x86_64__)
TEST_CASE("tasks: threads that help round as the caller does") {
    // 1/3 in fp32, which is rounded up to the nearest.
    const auto third_of_helper = [] {
        std::atomic<float> third = 0;
        const auto caller = std::this_thread::get_id();
        run_tasks(2, 2, [&] {
            return [&](std::size_t) {
                volatile float three = 3;
                if (std::this_thread::get_id() != caller) third = 1 / three;
                while (third == 0) std::this_thread::yield();
            };
        });
        return third.load();
    };
    CHECK(third_of_helper() == 0x1.555556p-2F);
    REQUIRE(fesetround(FE_DOWNWARD) == 0);
    const float downward = third_of_helper();
    REQUIRE(fesetround(FE_TONEAREST) == 0);
    CHECK(downward == 0x1.555554p-2F);
    CHECK(third_of_helper() == 0x1.555556p-2F);
}
#endif

// Not under ThreadSanitizer, which ends a child that starts threads after a fork.
TEST_CASE("tasks: a forked child finds helpers of its own") {
    CHECK(done(10, 4, true) == std::vector<int>(10, 1));  // the parent has some
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(60);
        std::atomic<int> began = 0;
        // Ends only if somebody else has a task, too.
        run_tasks(2, 2, [&] {
            return [&](std::size_t) {
                ++began;
                while (began < 2) std::this_thread::yield();
            };
        });
        _exit(began == 2 ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

TEST_CASE("tasks: helpers sleep when nothing is asked of them") {
    CHECK(done(64, 9, true) == std::vector<int>(64, 1));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const auto used = [] {
        timespec time{};
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
        return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
    };
    const auto before = used();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    CHECK(used() - before < std::chrono::milliseconds(150));
}
