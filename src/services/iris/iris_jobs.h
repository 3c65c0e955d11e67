// The `iris` backend: the job contract over the JSON API of an Iris controller, Marin's scheduler (docs/iris.md). It
// sends its requests through a route to the controller.
#pragma once

#include <chrono>
#include <cstdint>
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

// The most bytes that the package of a working tree may have.
inline constexpr std::uint64_t k_iris_package_limit = 26'214'400;

// The body of LaunchJob for this request of `user`, without the package and with all values of environment variables
// masked, for display. Errors: usage (a request that no Iris cluster accepts).
Result<std::string> preview_launch(const JobRequest& request, const std::string& user);

// What a controller reports about itself.

struct UserBudget {
    std::int64_t spent = 0, limit = 0;
    std::string band;  // of the user's next jobs: "PRIORITY_BAND_BATCH" once more is spent than the limit
    bool is_spent() const { return band == "PRIORITY_BAND_BATCH"; }
};
struct ControllerFacts {
    std::string user;                              // as the controller knows us
    std::string auth_mode;                         // "iap", "none"; empty: not reported
    std::optional<std::int64_t> running, pending;  // tasks of everyone; nullopt: not reported
    std::optional<UserBudget> budget;              // of the first part of our jobs' names; nullopt: no tasks
};
// Errors: authentication, infrastructure (no answer, not Iris), interrupted, terminated, those of the route.
Result<ControllerFacts> ask_controller(IrisJobsConfig config);

}  // namespace gdnctl
