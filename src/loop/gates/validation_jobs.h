// Runs tests and profiles of a tree as jobs, and interprets their results.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "loop/engine/outcome.h"
#include "loop/gates/job_service.h"
#include "loop/gates/validation_options.h"
#include "target/target.h"

namespace gdnctl::loop {

struct JobOrder {
    JobKind kind = JobKind::tests;
    JobSite site;
    std::filesystem::path tree;  // the candidate's
    std::filesystem::path log;   // appended to
    std::string profile_prefix;  // for the profile's name
    std::string pytest_args;     // instead of the options'
    std::stop_token stop{};
    std::optional<CeChoice> ce{};     // instead of the options'
    EnvList env{};                    // in addition to the target's
    std::vector<std::string> argv{};  // instead of the target's command
};

// The result of a job. `rc` is the exit code of the command that runs such a job.
struct JobEnd {
    int rc = 0;
    JobReport report;  // fields are empty without a report
    Evidence evidence;
    std::optional<Failure> failure;  // nullopt: it succeeded and counts as evidence
    bool retryable = false;          // on another cluster, or later
    bool site_is_unknown = false;    // no such cluster: do not try it again
    std::string summary;             // "87 passed, 2 skipped on us-central1 (job raysubmit_x)"
    std::filesystem::path log;
    std::string command;  // the command that ran there; if unknown, the one that submitted the job
    std::string busy;     // what disturbed a profile on this machine; empty: nothing known
};

class TargetJobs {
public:
    // All arguments must outlive this object.
    TargetJobs(const Target& target, const ValidationOptions& options, JobService& service)
        : m_target(target), m_options(options), m_service(service) {}

    // Returns the id of a job that is about to be submitted, after recording it, so that a job that outlives this
    // process can be stopped. Without this the submitter names the jobs.
    using Name = std::function<Result<std::string>(const JobOrder&)>;
    void name_jobs_by(Name name) { m_name = std::move(name); }

    // Asks, before a profile that may run on this machine, what would disturb it; empty: nothing.
    void watch_machine_by(std::function<std::string()> busy) { m_busy = std::move(busy); }

    // Submits a job and follows it to its end; stops it once if it still runs then. Errors: local_io, interrupted,
    // terminated.
    Result<JobEnd> run(const JobOrder& order);

    const Target& target() const { return m_target; }
    const ValidationOptions& options() const { return m_options; }
    JobSpec spec(const JobOrder& order) const;

private:
    void stop_job(const JobOrder& order, const std::string& id);
    void show_failure(const JobEnd& end) const;
    const Target& m_target;
    const ValidationOptions& m_options;
    JobService& m_service;
    Name m_name;
    std::function<std::string()> m_busy;
};

// Interprets an ended job. Pure.
JobEnd judge_job(JobKind kind, JobAnswer answer, Evidence evidence, std::string_view site,
                 const TargetEvidence& expected, bool wants_tpu);

// The clusters in the repository's infra/marin-*.yaml that offer this type, except those whose name contains one of the
// words.
std::vector<std::string> discover_clusters(const std::filesystem::path& root, std::string_view tpu,
                                           const std::vector<std::string>& exclude);

}  // namespace gdnctl::loop
