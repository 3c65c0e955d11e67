// Calls of an Iris controller: one POST each, with the login that the route provides, retries and errors.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "core/json.h"
#include "services/iris/iris_jobs.h"
#include "services/job/route_client.h"

namespace gdnctl::iris {

const RetryPolicy& retry_policy();

enum class Tries { one, patient };

struct Call {
    std::string method;               // "GetJobState"
    std::string body;                 // JSON
    std::filesystem::path body_file;  // instead of `body`
    std::size_t body_limit = std::size_t{8} << 20;
    std::chrono::milliseconds first_byte{15000};
    std::chrono::milliseconds total{60000};  // 0: none
};

class Client {
public:
    explicit Client(IrisJobsConfig config);

    // Returns the answer, whatever its status. A login that the controller refuses is renewed once. Tries::patient
    // retries while the failure may be temporary. Errors: infrastructure, interrupted, those of the route.
    Result<HttpResponse> send(const Call& call, Tries tries);
    // The JSON of an answer with status 200; others are errors (see refusal()).
    Result<Json> ask(const Call& call, Tries tries);
    Result<Json> ask(std::string method, const Json& request, Tries tries);
    Result<Json> read(const Call& call, const HttpResponse& answer) const;
    Error refuse(const Call& call, const HttpResponse& answer) const;

    const IrisJobsConfig& config() const { return m_config; }
    RouteClient& route() { return m_route; }
    const RouteClient& route() const { return m_route; }
    Clock& clock() const { return *m_config.clock; }

private:
    Result<HttpResponse> send_once(const Call& call);

    IrisJobsConfig m_config;
    RouteClient m_route;
};

}  // namespace gdnctl::iris
