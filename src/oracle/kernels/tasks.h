// Independent tasks on a few threads. Which thread runs which task is left to chance; results must not depend on it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace gdnctl::oracle {

// Calls make_worker() once per thread, then worker(task) for every task in [0, count). Workers must not throw.
template <class MakeWorker>
void run_tasks(std::size_t count, int threads, const MakeWorker& make_worker) {
    std::atomic<std::size_t> next = 0;
    const auto loop = [&] {
        auto worker = make_worker();
        for (std::size_t task = next++; task < count; task = next++) worker(task);
    };
    const std::size_t helpers = std::min(count, static_cast<std::size_t>(std::max(threads, 1))) - (count > 0 ? 1 : 0);
    std::vector<std::jthread> pool;
    for (std::size_t i = 0; i < helpers; ++i) pool.emplace_back(loop);
    loop();
}

}  // namespace gdnctl::oracle
