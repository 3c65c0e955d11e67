// The jobs of one dashboard, with the last known state of each.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/ray/client.h"

namespace gdnctl::ray {

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
