// What the tests of the Ray backend share: a dashboard by script, on a clock that moves when someone sleeps.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include <doctest/doctest.h>

#include "core/json.h"
#include "core/log.h"
#include "services/ray/ray_jobs.h"
#include "support/fake_clock.h"
#include "support/fake_http.h"

namespace gdnctl::ray {

inline const std::string k_base = "http://127.0.0.1:8265";
inline const std::string k_agent = "http://10.0.0.7:52365";
inline const char* const k_no_agent = "No available agent to submit job, please try again later.";

struct PlainRoute final : JobRoute {
    Result<std::string> url() override {
        ++asked;
        return k_base;
    }
    std::optional<std::string> agent_url(const std::string& address) override {
        return has_agent ? std::optional(address) : std::nullopt;
    }
    Result<HttpHeaders> headers(bool) override {
        return token.empty() ? HttpHeaders() : HttpHeaders{{"Authorization", "Bearer " + token}};
    }
    std::string token;
    int asked = 0;
    bool has_agent = false;
};

struct RayFixture {
    test::FakeClock clock;
    test::FakeHttp http;
    std::shared_ptr<PlainRoute> route = std::make_shared<PlainRoute>();
    std::stop_source stop;
    std::string token;

    RayFixture() {
        log::set_sink([](log::Level, std::string_view) {});
    }
    ~RayFixture() { log::set_sink(nullptr); }
    RayFixture(const RayFixture&) = delete;
    RayFixture& operator=(const RayFixture&) = delete;

    std::unique_ptr<JobBackend> backend(Http* other = nullptr, bool one_shot = false) {
        RayJobsConfig config;
        config.one_shot = one_shot;
        config.address = k_base;
        config.route = route;
        route->token = token;
        config.token_hint = "looked at RAY_AUTH_TOKEN, ~/.ray/auth_token";
        config.http = other != nullptr ? other : &http;
        config.clock = &clock;
        config.stop = stop.get_token();
        return make_ray_jobs(std::move(config));
    }

    test::FakeHttp::Expected& get(const std::string& path) { return http.expect("GET", k_base + path); }
    test::FakeHttp::Expected& post(const std::string& path) { return http.expect("POST", k_base + path); }
    void version(const char* ray = "2.60.0") {
        get("/api/version")
            .reply(200, std::string(R"({"version":"4","ray_version":")") + ray + R"(","session_name":"session_1"})");
    }

    static JobRequest request(const std::string& id = "job-1") {
        JobRequest r;
        r.submission_id = id;
        r.entrypoint = "true";
        r.metadata = {{"nonce", "0123456789abcdef"}};
        return r;
    }

    static std::string job(const std::string& id, const char* status, const std::string& nonce = "0123456789abcdef") {
        Json job;
        job["type"] = "SUBMISSION";
        job["submission_id"] = id;
        job["status"] = status;
        job["entrypoint"] = "true";
        job["message"] = "m";
        job["start_time"] = 1'773'161'000'000;
        job["metadata"] = {{"nonce", nonce}};
        job["driver_node_id"] = "node1";
        job["driver_agent_http_address"] = k_agent;
        return job.dump();
    }
    static Error refused() {
        return {ErrorKind::infrastructure, "connecting to 127.0.0.1:8265 failed: Connection refused", {}, {}};
    }
};

inline const std::string k_taken =
    "Traceback\nValueError: Job with submission_id job-1 already exists. Please use a different submission_id.\n.\n";

}  // namespace gdnctl::ray
