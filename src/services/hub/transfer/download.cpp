#include "services/hub/transfer/download.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include <fmt/format.h>

#include "platform/signals.h"
#include "services/hub/transfer/file_transfer.h"

namespace gdnctl::hub {

namespace {

constexpr std::chrono::milliseconds k_step{50};

bool is_to_be_fetched(const FileResult& result) { return result.status == FileStatus::skipped && !result.failure; }

// Largest first, so that no large file is left alone at the end.
std::vector<std::size_t> order_of(const std::vector<Wanted>& files, const std::vector<FileResult>& results) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < files.size(); ++i) {
        if (is_to_be_fetched(results[i])) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return files[a].size > files[b].size; });
    return order;
}

}  // namespace

void Downloader::fetch(const std::vector<Wanted>& files, std::vector<FileResult>& results, const OnProgress& progress) {
    const std::vector<std::size_t> order = order_of(files, results);
    std::vector<std::unique_ptr<FileTransfer>> active;
    // With fewer files than connections, a large file may use several.
    const int connections = m_options.jobs / static_cast<int>(std::max<std::size_t>(order.size(), 1));
    std::size_t next = 0, files_done = 0;
    std::int64_t bytes_done = 0;
    const auto fail_rest = [&](const Failure& failure, FileStatus status) {
        for (; next < order.size(); ++next) {
            results[order[next]].failure = failure;
            results[order[next]].status = status;
        }
    };
    while (next < order.size() || !active.empty()) {
        if (m_stop.stop_requested()) {
            for (const auto& transfer : active) transfer->interrupt();
            return fail_rest(failure_of(stopped_error()), FileStatus::skipped);
        }
        const auto gate = m_wire->gate();
        const bool open = !gate || m_clock.monotonic() >= *gate;
        while (open && next < order.size() && active.size() < static_cast<std::size_t>(m_options.jobs)) {
            const std::size_t file = order[next++];
            active.push_back(std::make_unique<FileTransfer>(*this, *m_wire, files[file], results[file], connections));
            active.back()->begin();
        }
        for (const auto& transfer : active) transfer->poll();
        const bool busy = std::any_of(active.begin(), active.end(), [](const auto& one) { return one->busy(); });
        if (m_wire->pool().idle()) {
            const bool waits = std::none_of(active.begin(), active.end(), [](const auto& one) { return one->done(); });
            if (waits && !busy && (!active.empty() || !open)) m_clock.sleep_for(k_step, m_stop);
        } else if (const Status step = m_wire->pool().step(busy ? std::chrono::milliseconds(0) : k_step); !step) {
            for (const auto& transfer : active) transfer->interrupt();
            return fail_rest(failure_of(step.error()), FileStatus::failed);
        }
        std::int64_t bytes = 0;
        std::erase_if(active, [&](const auto& transfer) {
            if (!transfer->done()) {
                bytes += transfer->bytes();
                return false;
            }
            bytes_done += transfer->bytes();
            ++files_done;
            return true;
        });
        progress(bytes_done + bytes, files_done);
    }
}

}  // namespace gdnctl::hub
