// Requests to one dashboard through its route, and how long to retry.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/ray/jobs_api.h"
#include "services/ray/ray_jobs.h"

namespace gdnctl::ray {

// The waits between the attempts of one request, by retry_policy().
class Patience {
public:
    // Ends at `deadline`, if any.
    Patience(Clock& clock, std::stop_token stop, std::optional<Clock::Monotonic> deadline);
    // Sleeps before retrying what failed with `reason`. False: no more retries, because thirty seconds or `limit` are
    // over; see stopped().
    bool wait(std::string_view reason, std::optional<std::chrono::milliseconds> limit = std::nullopt);
    bool stopped() const { return m_stopped; }

private:
    Clock& m_clock;
    std::stop_token m_stop;
    Clock::Monotonic m_start;
    RetryPolicy m_policy;
    int m_attempts = 0;
    bool m_stopped = false;
};

struct Call {
    std::string method = "GET";
    std::string path;  // relative to the dashboard's address: "/api/jobs/"
    std::string body;  // JSON
    std::filesystem::path body_file;
    std::function<bool(std::string_view)> on_chunk;
    std::function<void()> on_begin;  // called before each attempt
    std::size_t body_limit = std::size_t{8} << 20;
    std::chrono::milliseconds first_byte{15000};
    std::chrono::milliseconds total{60000};  // 0: none

    std::string name() const { return method + " " + path; }
};

enum class Tries { one, patient };

class Client {
public:
    explicit Client(RayJobsConfig config) : m_config(std::move(config)) {}

    // Returns the answer, whatever its status. Tries::patient retries while the failure may be temporary. Errors:
    // infrastructure, interrupted, those of the route.
    Result<HttpResponse> send(const Call& call, Tries tries);
    // The same, but any status other than 200 is an error (see refusal()).
    Result<HttpResponse> send_ok(const Call& call, Tries tries);
    // Part of a file served by a node's agent: bytes `range` ("100-199", "-65536").
    Result<HttpResponse> get_range(const std::string& url, const std::string& range, std::size_t limit);

    Error refuse(const Call& call, const HttpResponse& answer) const;
    const RayJobsConfig& config() const { return m_config; }
    void ignore_stop_requests() { m_config.stop = {}; }
    void set_deadline(std::optional<Clock::Monotonic> deadline);
    bool has_answered() const { return m_answered; }
    Clock& clock() const { return *m_config.clock; }
    Patience patience() const { return {*m_config.clock, m_config.stop, m_deadline}; }
    // Waits before retrying a request that failed with this error. Waits less if nothing listens there.
    bool wait(Patience& patience, const Error& error) const;

private:
    Result<HttpResponse> try_once(const Call& call);
    Status authorize(HttpRequest& request) const;
    void shorten(HttpRequest& request) const;

    RayJobsConfig m_config;
    std::optional<Clock::Monotonic> m_deadline;
    bool m_answered = false;  // the server has answered some request
};

// The jobs of one dashboard, with the last known state of each.

class Dashboard {
public:
    explicit Dashboard(RayJobsConfig config) : m_client(std::move(config)) {}

    Client& client() { return m_client; }
    const Client& client() const { return m_client; }

    Result<ServerVersion> version();
    // Errors: remote_missing; infrastructure; authentication.
    Result<JobDetails> details(std::string_view id, Tries tries);
    // The last result of details() for this job; nullopt: none yet.
    std::optional<JobDetails> known(std::string_view id) const;
    Result<std::vector<JobDetails>> list();
    Result<bool> stop(std::string_view id);
    // First waits until the server has finished with a job that has just ended. Further error: conflict (the job is
    // still running).
    Status remove(std::string_view id);

private:
    Client m_client;
    std::map<std::string, JobDetails, std::less<>> m_known;
    std::map<std::string, Clock::Monotonic, std::less<>> m_ended;  // when it was first seen that a job has ended
};

}  // namespace gdnctl::ray
