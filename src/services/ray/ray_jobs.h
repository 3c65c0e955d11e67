// The `ray` backend: the job contract over Ray's HTTP Jobs API. It knows the API; how a dashboard is reached (a plain
// address, an ssh tunnel) is a route that the caller brings along.
#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "platform/clock.h"
#include "platform/http.h"
#include "services/job/job.h"
#include "services/job/route.h"

namespace gdnctl {

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
