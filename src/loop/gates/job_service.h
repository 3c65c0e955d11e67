// The interface through which gates use jobs, wherever they run: run a job of a tree to its end, stop one, and check
// that a cluster answers. InProcessJobs implements it; tests use a scripted stand-in.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "core/result.h"
#include "jobs/job_trace.h"
#include "jobs/target_job.h"
#include "loop/measure/measurement.h"
#include "platform/context.h"
#include "target/target.h"

namespace gdnctl::loop {

enum class JobKind { tests, profile };
std::string_view to_text(JobKind kind);  // "validation tests", "validation profile"

// Where a job runs: a Ray cluster (or `local`; empty: the default of the command), or the held TPU.
struct JobSite {
    std::string cluster;
    std::string dev_tpu;  // its name; empty: a cluster
    std::string tpu;      // "auto", "v5p-8"; empty: not given
    bool held() const { return !dev_tpu.empty(); }
};
std::string to_text(const JobSite& site);

struct JobSpec {
    JobKind kind = JobKind::tests;
    JobSite site;
    std::filesystem::path tree;  // its configuration defines the target; its files are uploaded with the job
    std::filesystem::path log;   // messages about the job and its own log are appended
    std::string id;              // empty: generated; unused on a held TPU
    bool has_settings = false;   // style `levanter`: the next two apply
    TestSelection selection;
    ProfileSettings profile;
    std::vector<std::string> profile_env;  // KEY=VALUE
    std::string marin_prefix;              // for a profile on the held TPU
    bool no_sync = false;                  // do not sync the files on the host
    std::int64_t limit_s = 0;              // the job is stopped after it
    std::stop_token stop{};
    EnvList env{};                      // in addition to the target's
    std::vector<std::string> argv{};    // instead of the target's command
    std::vector<std::string> oracle{};  // the words of `oracle verify`, where the job does nothing else
};
// The command line that runs the same job, without "gdnctl".
std::vector<std::string> command_words(const JobSpec& spec);

// `exit` is the exit code of the command of the same name. Fields of the report that are unknown are empty.
struct JobAnswer {
    ExitCode exit = ExitCode::ok;
    JobReport report;
    std::optional<JobTrace> trace{};  // of a profile; nullopt: its target has none, or it failed
    std::string oracle{};             // gdnctl.oracle-verify/1, as the job printed it; empty: it did not
};

class JobService {
public:
    virtual ~JobService() = default;
    // Submits a job and follows it to its end. Stops it when its time runs out or on a stop request.
    // The answer says what went wrong with the job. Errors: local_io (its log cannot be written); interrupted,
    // terminated.
    virtual Result<JobAnswer> run(const JobSpec& spec) = 0;
    // Stops a job and, with `wait`, waits for its end, two minutes at most. `tree`: see JobSpec. Errors: remote_missing
    // (no such job), interrupted, terminated, and those of the backend.
    virtual Status stop(const std::string& id, const JobSite& site, const std::filesystem::path& tree, bool wait) = 0;
    // Checks that the cluster answers and accepts our token. Error: why not; timeout after `patience`.
    virtual Status check(const std::string& cluster, std::chrono::milliseconds patience) = 0;
};

// Runs the gates' jobs in this process, the same way as the commands ray-test, ray-profile, dev-tpu-test,
// dev-tpu-profile, ray-stop and cluster check.

// The configuration that a command started in this folder would read. Errors: usage, config, local_io.
using ConfigAt = std::function<Result<Config>(const std::filesystem::path& folder)>;

class InProcessJobs final : public JobService {
public:
    // Both must outlive the object.
    InProcessJobs(const ConfigAt& config, Context& context) : m_config(config), m_context(context) {}

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
