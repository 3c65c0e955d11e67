// The `ray` backend: the job contract over Ray's HTTP Jobs API. It only knows the API; the caller provides the route to
// a dashboard (a plain address, an ssh tunnel).
#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "platform/clock.h"
#include "platform/http.h"
#include "services/job/job.h"

namespace gdnctl {

struct RayJobsConfig {
    std::string cluster;              // name for people; empty if only an address was given
    std::string address;              // what a person would open
    std::shared_ptr<JobRoute> route;  // never null
    std::string token_hint;           // what to do if the token is refused or missing
    bool one_shot = false;            // the caller waits for a single answer: a refused connection is retried for 3 s
                                      // at any time
    Http* http = nullptr;
    Clock* clock = nullptr;
    std::stop_token stop;
};

std::unique_ptr<JobBackend> make_ray_jobs(RayJobsConfig config);

// The body of POST /api/jobs/ for this request, as JSON with all values of environment variables masked, for display.
// `package_uri` stands for the uploaded working tree; empty: none. Errors: usage (a request that no cluster accepts).
Result<std::string> preview_submission(const JobRequest& request, const std::string& package_uri);

}  // namespace gdnctl
