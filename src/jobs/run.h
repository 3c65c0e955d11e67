// Submits a job, follows it, and interprets its end and results: shared by the commands that submit.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"
#include "jobs/metric.h"
#include "jobs/submit.h"
#include "jobs/watch.h"
#include "services/job/job.h"
#include "services/job/output.h"

namespace gdnctl {

struct JobRun {
    JobPlace place;
    JobDetails details;
    JobVerdict verdict;
    JobRequest request;   // the last one submitted
    std::string subject;  // of sentences about it; empty: "job ID"
    bool submitted = true;
    bool waited = false;
    JobOutput output;                    // if the job was waited for
    std::optional<MetricReader> metric;  // the plan's metric, from the same log
    std::filesystem::path brought_back;  // what JobPlan::bring_back asks for; empty: it was not there
    std::string data;                    // the line that JobPlan::data_prefix asks for; empty: there was none
    std::vector<StoredOutput> outputs;   // of a job that has ended
    std::optional<Error> not_fetched;    // why its outputs are not in the folder that gets them
    // What ended the watch before the job's end, or the submission before its own. It becomes the command's error after
    // the known facts have been reported.
    std::optional<Error> cut_short;
};

// Takes the lines with the plan's data_prefix out of a job's output, and passes on the rest as it arrives.
class DataLines {
public:
    DataLines(std::string prefix, std::function<void(std::string_view)> rest)
        : m_prefix(std::move(prefix)), m_rest(std::move(rest)) {}

    void feed(std::string_view bytes);
    // The output has ended. Returns the last of those lines.
    std::string finish();

private:
    std::string m_prefix;
    std::function<void(std::string_view)> m_rest;
    bool m_passing = false;  // the line so far was not one of them
    std::string m_line, m_last;
};

// Submits the job, prints its id, and follows the log to the job's end unless --no-wait is given. With --resubmit, a
// job lost to cluster faults is submitted again under a new id. Running out of time is a verdict (--timeout: the job
// keeps running; the target's limit: it is stopped). Errors: those of a submission. Later errors, and a signal at any
// time, are in `cut_short` (after a signal the job keeps running, unless --auto-stop).
Result<JobRun> run_job(const JobPlan& plan, const SubmitOptions& options, JobBackend& backend, Context& context);

// Appends backend, ..., end_time, url, job_id, ..., outputs to `object`; status is null if nothing was submitted.
void put_run(Json& object, const JobRun& run);

// Whether a signal caused it.
bool is_interruption(const Error& error);
// The failure class of a job whose watch ended with this error: `infra` or `auth`, else `none`.
FailureClass failure_of(const Error& error);

// Shows the commands to continue with when this one leaves the job running.
void show_next_commands(const JobBackend& backend, std::string_view id);

// Reports on stderr how the job ended if it did not succeed.
void report_end(const JobRun& run);
// What a command returns for a run that it has judged and reported: the error that cut it short; its exit code; for a
// job that succeeded, the error that kept its outputs away.
Result<ExitCode> exit_of(const JobRun& run, ExitCode judged);

// The JSON fields for what a job's log reported (docs/reference/json.md).

// Each is null if the log reported nothing of the kind.
Json tests_json(const std::optional<PytestCounts>& counts);
Json device_json(const std::optional<DeviceReport>& device);
Json verdict_json(const OracleVerdicts& verdicts);
Json profile_json(const ProfileReport& profile);

// entrypoint, env_names, resources of a submission, appended to `object`.
void put_command(Json& object, const JobRequest& request);

// Whether the result is evidence about a TPU: the job succeeded on a cluster, and its log names a TPU as JAX's device
// or, if it does not mention the device, reports the throughput of a profiled run. Never true for a job on this
// machine.
bool is_tpu_evidence(const JobPlace& place, const JobVerdict& verdict, const JobDetails& details,
                     const JobOutput& output);

}  // namespace gdnctl
