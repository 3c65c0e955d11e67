// Requests to one dashboard: its address, our token, and how long to bear with it.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "services/ray/answers.h"
#include "services/ray/ray_jobs.h"

namespace gdnctl::ray {

// Half a second and half as much more each time, up to five; thirty seconds in all.
class Patience {
public:
    // Ends at `deadline`, if there is one.
    Patience(Clock& clock, std::stop_token stop, std::optional<Clock::Monotonic> deadline);
    // Sleeps before another try of what failed with `reason`. False: no more tries, as thirty seconds or `limit` are
    // over; see stopped().
    bool wait(std::string_view reason, std::optional<std::chrono::milliseconds> limit = std::nullopt);
    bool stopped() const { return m_stopped; }

private:
    Clock& m_clock;
    std::stop_token m_stop;
    Clock::Monotonic m_start, m_end;
    std::chrono::milliseconds m_delay{500};
    bool m_stopped = false;
};

struct Call {
    std::string method = "GET";
    std::string path;  // from the dashboard's address on: "/api/jobs/"
    std::string body;  // JSON
    std::filesystem::path body_file;
    std::function<bool(std::string_view)> on_chunk;
    std::function<void()> on_begin;  // before each try
    std::size_t body_limit = std::size_t{8} << 20;
    std::chrono::milliseconds first_byte{15000};
    std::chrono::milliseconds total{60000};  // 0: none

    std::string name() const { return method + " " + path; }
};

enum class Tries { one, patient };

class Client {
public:
    explicit Client(RayJobsConfig config) : m_config(std::move(config)) {}

    // The answer, whatever its status. Patient: again and again while the failure is of the passing kind. Errors:
    // infrastructure, interrupted, those of the route.
    Result<HttpResponse> send(const Call& call, Tries tries);
    // The same, where anything but 200 is an error (see refusal()).
    Result<HttpResponse> send_ok(const Call& call, Tries tries);
    // A piece of a file that the agent of a node serves: bytes `range` ("100-199", "-65536").
    Result<HttpResponse> get_range(const std::string& url, const std::string& range, std::size_t limit);

    Error refuse(const Call& call, const HttpResponse& answer) const;
    const RayJobsConfig& config() const { return m_config; }
    void ignore_stop_requests() { m_config.stop = {}; }
    void set_deadline(std::optional<Clock::Monotonic> deadline);
    bool has_answered() const { return m_answered; }
    Clock& clock() const { return *m_config.clock; }
    Patience patience() const { return {*m_config.clock, m_config.stop, m_deadline}; }
    // Waits before another try of a request that ended with this error; not for long where nobody listens.
    bool wait(Patience& patience, const Error& error) const;

private:
    Result<HttpResponse> try_once(const Call& call);
    void authorize(HttpRequest& request) const;
    void shorten(HttpRequest& request) const;

    RayJobsConfig m_config;
    std::optional<Clock::Monotonic> m_deadline;
    bool m_answered = false;  // the server has, to some request
};

// Out of reach for the moment, as far as one can tell.
bool is_out_of_reach(const Error& error);

}  // namespace gdnctl::ray
