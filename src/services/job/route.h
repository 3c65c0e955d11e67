// The way to a cluster's dashboard: services/cluster opens one, services/ray sends its requests along it.
#pragma once

#include <optional>
#include <string>

#include "core/result.h"
#include "platform/clock.h"

namespace gdnctl {

class RayRoute {
public:
    virtual ~RayRoute() = default;
    // Base URL of the dashboard as it can be reached from here: scheme, host, port, maybe a path prefix, no '/' at the
    // end. Asked before the first request, and again after nobody was found there: a dead tunnel is then opened anew.
    // Errors: infrastructure, auth, timeout.
    virtual Result<std::string> url() = 0;
    // Where the agent of a job's node can be reached ("http://10.0.0.7:52365", as the job's details name it); nullopt:
    // there is no way to it from here.
    virtual std::optional<std::string> agent_url(const std::string& address) = 0;
    // Opening a way takes no longer than to this moment, or a second where that is past; nullopt: as long as it may.
    virtual void set_deadline([[maybe_unused]] std::optional<Clock::Monotonic> deadline) {}
};

}  // namespace gdnctl
