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

class LeaseRenewer {
public:
    using Renew = std::function<Status(std::stop_token)>;
    // Renews at once, in its thread, and then every interval.
    LeaseRenewer(Renew renew, std::chrono::milliseconds interval, Clock& clock);

private:
    std::jthread m_thread;
};

// Renews over the connection if there is one, otherwise by jobs through its own backend. `run`: the record of a run
// (run_record()), which is renewed with the lease; empty: none.
Result<std::unique_ptr<LeaseRenewer>> start_renewing(const devtpu::HoldRecord& record,
                                                     const DestinationOptions& options, Context& context,
                                                     std::string run = {});

// One renewal.
Status renew_by_connection(const devtpu::HoldRecord& record, const devtpu::HostConnection& connection,
                           std::string_view run, Context& context, std::stop_token stop);

}  // namespace gdnctl
