// The `iris` backend: the job contract over the JSON API of an Iris controller, Marin's scheduler (docs/iris.md). It
// sends its requests through a route to the controller.
#pragma once

#include <chrono>
#include <memory>
#include <stop_token>
#include <string>

#include "platform/clock.h"
#include "platform/http.h"
#include "services/job/job.h"

namespace gdnctl {

struct IrisJobsConfig {
    std::string cluster;              // name for people; empty if only an address was given
    std::string address;              // what a person would open
    std::string dashboard_url;        // base of a job's page; empty: the address
    std::shared_ptr<JobRoute> route;  // never null
    std::string login_hint;           // what to do if the login is refused or missing
    std::string user;                 // the first part of our jobs' names
    bool one_shot = false;            // the caller waits for a single answer: a refused connection is retried for 3 s
                                      // at any time
    std::chrono::milliseconds start_timeout{900'000};  // how long a job waits for its machine
    Http* http = nullptr;
    Clock* clock = nullptr;
    std::stop_token stop;
};

std::unique_ptr<JobBackend> make_iris_jobs(IrisJobsConfig config);

}  // namespace gdnctl
