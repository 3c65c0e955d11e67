// Runs independent tasks on a few threads. Which thread runs which task is random, and results must not depend on it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <new>
#include <optional>
#include <type_traits>

#include "oracle/simd/helpers.h"

namespace gdnctl::oracle {

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

}  // namespace gdnctl::oracle
