// Calls of an Iris controller, and what is made of them for one job: its log, and commands in its container.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
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

// One POST each, with the login that the route provides.
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
    // `login`: the error is of the route, which has tried as often as it makes sense.
    Result<HttpResponse> send_once(const Call& call, bool& login);

    IrisJobsConfig m_config;
    RouteClient m_route;
};

// ---- the log of a job: lines that the controller's log server hands on, read with a cursor

// What a log needs to know about its job, kept up to date by the backend.
struct JobFacts {
    std::string cluster;                    // that runs the job; empty: the controller's own
    std::optional<Clock::Monotonic> ended;  // when the job ended; nullopt: it has not
};

// `name`: "/me/x". Lines may come up to some seconds after the job's end: pump() waits for them then.
std::unique_ptr<JobLog> make_log(std::shared_ptr<Client> client, std::string name,
                                 std::shared_ptr<const JobFacts> facts, const LogStart& start);

// ---- commands in the container of a running job, through ExecInContainer
//
// A command runs detached there, with its output and exit status in files, so that its output is passed on byte for
// byte. This process alone knows its runs.

class Run;

class Runs {
public:
    Runs(std::shared_ptr<Client> client, std::string user) : m_client(std::move(client)), m_user(std::move(user)) {}

    bool empty() const { return m_runs.empty(); }
    bool knows(std::string_view id) const { return m_runs.contains(id); }
    // Starts the request's command in the container of the job `beside`. The working tree travels once per content, and
    // commands with the same tree share its folder; without one, the command runs in the tree that was sent last.
    // Errors: usage (a tree that is too large, a value that is not UTF-8), infrastructure (no such container),
    // local_io.
    Result<Submitted> start(const JobRequest& request);
    // Looks at the run once.
    Result<JobDetails> details(std::string_view id);
    Result<bool> stop(std::string_view id);
    // Forgets a run that has ended, here and in the container.
    Status remove(std::string_view id);
    std::unique_ptr<JobLog> open_log(std::string_view id);

private:
    std::shared_ptr<Client> m_client;
    std::string m_user;
    std::map<std::string, std::shared_ptr<Run>, std::less<>> m_runs;
};

}  // namespace gdnctl::iris
