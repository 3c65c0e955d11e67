// What gates ask of jobs, wherever they run: to run one of a tree to its end, to stop one, and whether a cluster
// answers. Real: own_jobs.h; tests have a script.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/exit_code.h"
#include "core/result.h"
#include "loop/measure/metrics.h"
#include "target/target.h"

namespace gdnctl::loop {

enum class JobKind { tests, profile };
std::string_view to_text(JobKind kind);  // "validation tests", "validation profile"

// Where a job runs: a Ray cluster (or `local`; empty: wherever such a command goes by itself), or the held TPU.
struct JobSite {
    std::string cluster;
    std::string dev_tpu;  // its name; empty: a cluster
    std::string tpu;      // "auto", "v5p-8"; empty: not said
    bool held() const { return !dev_tpu.empty(); }
};
std::string to_text(const JobSite& site);

struct JobSpec {
    JobKind kind = JobKind::tests;
    JobSite site;
    std::filesystem::path tree;  // whose configuration names the target, and whose files travel with the job
    std::filesystem::path log;   // what is said of the job, and the job's own log, are appended
    std::string id;              // empty: it gets one; not of a held TPU
    bool has_settings = false;   // style `levanter`: the next two are more than their defaults
    TestSelection selection;
    ProfileSettings profile;
    std::vector<std::string> profile_env;  // KEY=VALUE
    std::string marin_prefix;              // of a profile on the held TPU
    bool no_sync = false;                  // leave the files there as they are
    std::int64_t limit_s = 0;              // then it is stopped
    std::stop_token stop{};
    EnvList env{};                    // besides the target's
    std::vector<std::string> argv{};  // instead of the target's command
};
// How a person would ask for the same job: the words behind "gdnctl".
std::vector<std::string> command_words(const JobSpec& spec);

// `exit` is what the command of the same name would exit with; empty fields of the report where none is known.
struct JobAnswer {
    ExitCode exit = ExitCode::ok;
    JobReport report;
};

class JobService {
public:
    virtual ~JobService() = default;
    // Submits, and follows to the end; a job that runs out of time, or is cut short by the stop request, is stopped.
    // What goes wrong with it is in the answer. Errors: local_io (its log cannot be written); interrupted, terminated.
    virtual Result<JobAnswer> run(const JobSpec& spec) = 0;
    // Stops a job and, with `wait`, waits for its end, two minutes at most. `tree`: see JobSpec. Errors: remote_missing
    // (no such job), interrupted, terminated, others as they come.
    virtual Status stop(const std::string& id, const JobSite& site, const std::filesystem::path& tree, bool wait) = 0;
    // Whether the cluster answers, and takes our token. Error: why not; timeout after `patience`.
    virtual Status check(const std::string& cluster, std::chrono::milliseconds patience) = 0;
};

}  // namespace gdnctl::loop
