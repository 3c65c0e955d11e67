// Runs tests and profiles of a tree as jobs, interprets their results, and tries one device after the other.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "loop/engine/options.h"
#include "loop/engine/outcome.h"
#include "loop/engine/tpu_hold.h"
#include "loop/gates/job_service.h"
#include "loop/gates/validation_options.h"
#include "platform/clock.h"
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
    TestSelection::Oracle oracle = TestSelection::Oracle::off;
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
    std::string command;                 // the command that ran there; if unknown, the one that submitted the job
    std::optional<JobTrace> trace = {};  // of a profile that succeeded, if its target has one
    std::string busy;                    // what disturbed a profile on this machine; empty: nothing known
    bool oracle_ok = false;              // it judged the kernel on the right device, and found it right
    Json oracle = nullptr;               // see oracle_record(); null: it gave no verdict
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

// The sign of an oracle that ended before its verdict, and before any test.
inline constexpr std::string_view k_no_oracle_verdict = "the oracle gave no verdict";

struct JobNeeds {
    TargetEvidence evidence{};
    bool tpu = false;         // signs of one in the log
    bool oracle = false;      // its verdict
    bool oracle_tpu = false;  // which is of a TPU
};
// Interprets an ended job. Pure.
JobEnd judge_job(JobKind kind, JobAnswer answer, Evidence evidence, std::string_view site, const JobNeeds& needs);

// The clusters in the repository's infra/marin-*.yaml that offer this type, except those whose name contains one of the
// words.
std::vector<std::string> discover_clusters(const std::filesystem::path& root, std::string_view tpu,
                                           const std::vector<std::string>& exclude);

// Tries the tests or the profile of a candidate on one place after the other: the held TPU, the held TPU after
// allocating it again, Ray clusters in order, and the held TPU once more; then all of them again later. Pure except for
// its calls.

struct LadderDeps {
    std::function<Result<JobEnd>(const JobSite&)> run;
    HeldTpu* held = nullptr;              // nullptr: no TPU is held
    std::function<bool()> asked_to_stop;  // before each wait
    Clock& clock;
    std::stop_token stop{};
};

class Ladder {
public:
    // `clusters` in the order in which to try them; clusters that turn out not to exist are dropped.
    Ladder(JobKind kind, std::vector<JobSite> clusters, LadderDeps deps)
        : m_kind(kind), m_clusters(std::move(clusters)), m_deps(std::move(deps)) {}

    // Repeats until a job succeeds or fails for good; returns the last failure after `attempts` passes (negative: 30).
    // A job that reaches its time limit twice is not tried again. Errors: those of run(), interrupted.
    Result<JobEnd> climb(std::int64_t attempts, std::chrono::seconds pause);

private:
    Result<JobEnd> pass();
    Result<JobEnd> try_held();
    Result<JobEnd> try_clusters();
    bool get_back(const char* why);
    bool is_final(const JobEnd& end) const;
    Result<JobEnd> run(const JobSite& site);
    JobSite held_site() const;
    JobKind m_kind;
    std::vector<JobSite> m_clusters;
    LadderDeps m_deps;
    int m_time_limits = 0;
};

// Clusters in order: the given ones; else, with `automatic`, the held one, the loop's own and the discovered ones;
// else, if a TPU is held, the first two of these; else the default of such a command.
std::vector<std::string> cluster_order(const ValidationOptions& options, const HoldOptions& hold,
                                       const std::string& active, const std::vector<std::string>& discovered);
// The same, discovered in the repository at `root` according to the options.
std::vector<std::string> gate_clusters(const ValidationOptions& options, const HoldOptions& hold,
                                       const std::string& active, const std::filesystem::path& root);

}  // namespace gdnctl::loop
