// Renews the lease of a held TPU: by touching its file, over ssh or locally, or by a small job next to the holder.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

#include "jobs/hold.h"

namespace gdnctl {

class Heart {
public:
    using Beat = std::function<Status(std::stop_token)>;
    // Renews at once, in its thread, and then every interval.
    Heart(Beat beat, std::chrono::milliseconds interval, Clock& clock);

private:
    std::jthread m_thread;
};

// Renews over the road if there is one, otherwise by jobs through its own backend. `run`: the record of a run
// (run_record()), which is renewed with the lease; empty: none.
Result<std::unique_ptr<Heart>> start_heart(const devtpu::HoldRecord& record, const PlaceOptions& options,
                                           Context& context, std::string run = {});

// One renewal.
Status beat_by_road(const devtpu::HoldRecord& record, const devtpu::Road& road, std::string_view run, Context& context,
                    std::stop_token stop);

}  // namespace gdnctl
