// Runs the gates' jobs in this process, the same way as the commands ray-test, ray-profile, dev-tpu-test,
// dev-tpu-profile, ray-stop and cluster check.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "core/config.h"
#include "jobs/target_job.h"
#include "loop/gates/job_service.h"
#include "platform/context.h"

namespace gdnctl::loop {

// The configuration that a command started in this folder would read. Errors: usage, config, local_io.
using ConfigAt = std::function<Result<Config>(const std::filesystem::path& folder)>;

class OwnJobs final : public JobService {
public:
    // Both must outlive the object.
    OwnJobs(const ConfigAt& config, Context& context) : m_config(config), m_context(context) {}

    Result<JobAnswer> run(const JobSpec& spec) override;
    Status stop(const std::string& id, const JobSite& site, const std::filesystem::path& tree, bool wait) override;
    Status check(const std::string& cluster, std::chrono::milliseconds patience) override;

private:
    const ConfigAt& m_config;
    Context& m_context;
};

// The report for gates about a run that ended or was interrupted.
JobReport job_report(const JobRun& run, const PlannedJob& job);

}  // namespace gdnctl::loop
