// Tests and profiles of a tree as jobs, and what their ends mean.
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
    std::filesystem::path tree;  // of the candidate
    std::filesystem::path log;   // appended to
    std::string profile_prefix;  // of a profile's name
    std::string pytest_args;     // instead of the options'
    std::stop_token stop{};
    std::optional<CeChoice> ce{};     // instead of the options'
    EnvList env{};                    // besides the target's
    std::vector<std::string> argv{};  // instead of the target's command
};

// How it ended. rc is what the command that runs such a job would exit with.
struct JobEnd {
    int rc = 0;
    JobReport report;  // empty fields where there was no report
    Evidence evidence;
    std::optional<Failure> failure;  // nullopt: it succeeded, and is evidence
    bool retryable = false;          // elsewhere, or later
    bool site_is_unknown = false;    // no such cluster: not to be asked again
    std::string summary;             // "87 passed, 2 skipped on us-central1 (job raysubmit_x)"
    std::filesystem::path log;
    std::string command;  // that ran there; that of the job's submission where it is not known
    std::string busy;     // what disturbed a profile that ran on this machine; empty: nothing that is known of
};

class TargetJobs {
public:
    // All must outlive it.
    TargetJobs(const Target& target, const ValidationOptions& options, JobService& service)
        : m_target(target), m_options(options), m_service(service) {}

    // Puts the id of a job that is about to be submitted on record, so that one that outlives us can be stopped, and
    // gives it. Without this jobs get their names from whoever submits them.
    using Name = std::function<Result<std::string>(const JobOrder&)>;
    void name_jobs_by(Name name) { m_name = std::move(name); }

    // Asks, before a profile that may run on this machine, what would disturb it; empty: nothing.
    void watch_machine_by(std::function<std::string()> busy) { m_busy = std::move(busy); }

    // Submits and follows to the end; what is still running then is stopped, once. Errors: local_io, interrupted,
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

// What an ended job means. Pure.
JobEnd judge_job(JobKind kind, JobAnswer answer, Evidence evidence, std::string_view site,
                 const TargetEvidence& expected, bool wants_tpu);

// Names of clusters in infra/marin-*.yaml of the repository that offer this type, without those that contain one of the
// words.
std::vector<std::string> discover_clusters(const std::filesystem::path& root, std::string_view tpu,
                                           const std::vector<std::string>& exclude);

}  // namespace gdnctl::loop
