// The route to a cluster's dashboard. services/cluster opens one, and services/ray sends its requests through it.
#pragma once

#include <optional>
#include <string>

#include "core/result.h"
#include "platform/clock.h"

namespace gdnctl {

class RayRoute {
public:
    virtual ~RayRoute() = default;
    // Base URL of the dashboard as reachable from here: scheme, host, port, maybe a path prefix, without a trailing
    // '/'. Called before the first request, and again if a connection was refused, so that a dead tunnel is reopened.
    // Errors: infrastructure, auth, timeout.
    virtual Result<std::string> url() = 0;
    // The address at which the agent of a job's node can be reached ("http://10.0.0.7:52365" in the job's details);
    // nullopt: unreachable from here.
    virtual std::optional<std::string> agent_url(const std::string& address) = 0;
    // Limits opening a route to this moment, or to one second if it has passed; nullopt: no limit.
    virtual void set_deadline([[maybe_unused]] std::optional<Clock::Monotonic> deadline) {}
};

}  // namespace gdnctl
