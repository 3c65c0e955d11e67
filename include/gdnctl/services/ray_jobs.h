// The `ray` backend: the job contract over Ray's HTTP Jobs API. It knows the API; how a dashboard is reached (a plain
// address, an ssh tunnel) is a route that the caller brings along.
#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "gdnctl/platform/clock.h"
#include "gdnctl/platform/http.h"
#include "gdnctl/services/job.h"

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

struct RayJobsConfig {
    std::string cluster;              // name for people; empty where only an address was given
    std::string address;              // what a person would open
    std::shared_ptr<RayRoute> route;  // never null
    std::string token;                // empty: none; sent to the route's origin and its agents alone
    std::string token_hint;           // what to do when it, or the lack of one, is refused
    bool one_shot = false;            // somebody waits for one answer: a refused connection is given 3 s at any time
    Http* http = nullptr;
    Clock* clock = nullptr;
    std::stop_token stop;
};

std::unique_ptr<JobBackend> make_ray_jobs(RayJobsConfig config);

// The body of POST /api/jobs/ for this request, as JSON, with every value of an environment variable masked: what a
// person may see. `package_uri` stands for the uploaded working tree; empty: none. Errors: usage (what no cluster
// takes).
Result<std::string> preview_submission(const JobRequest& request, const std::string& package_uri);

}  // namespace gdnctl
