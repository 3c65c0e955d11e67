// Commands in the container of a running job, through ExecInContainer. A command runs detached there, with its output
// and exit status in files, so that its output is passed on byte for byte. This process alone knows its runs.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "services/iris/client.h"

namespace gdnctl::iris {

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
