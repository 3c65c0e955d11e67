// Tasks on a few threads: all are done, also where a thread is missing, and no exception is lost.
#include "oracle/kernels/tasks.h"

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

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
