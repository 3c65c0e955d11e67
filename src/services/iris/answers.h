// Answers of an Iris controller as values. Unknown fields are ignored. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "platform/http.h"
#include "services/job/job.h"

namespace gdnctl::iris {

// 64-bit integers come as strings, others as numbers. 0: there is none.
std::int64_t number_of(const Json& object, std::string_view name);

// "/user/id": a job's name. `id` is either one already, or what follows our own user's part.
std::string name_of(std::string_view user, std::string_view id);
// The id under which people know the job: without the part of our own user.
std::string id_of(std::string_view user, std::string_view name);

// ---- errors

// What failed, as the controller says it: its code ("not_found"; empty: not an answer of its API) and its message on
// one line, or the gist of a page.
struct Complaint {
    std::string code, message;
};
Complaint complaint_of(const HttpResponse& answer);
// Whether the same request may succeed in a moment.
bool is_passing(const HttpResponse& answer);
// The error for an answer other than 200. `what` is the request for people. Usage: 400, 404 of a route, 405, 409, 415,
// or a request that the controller cannot read; authentication: 401, 403, a redirect (both with `login_hint`);
// remote_missing: 404 of a job or task; infrastructure: others.
Error refusal(std::string_view what, const HttpResponse& answer, std::string_view base, const std::string& login_hint);

// ---- jobs and tasks

struct Task {
    std::string id, state, error, worker;  // "/me/x/0", "FAILED", ...
    std::int64_t exit_code = 0;
    std::int64_t attempts = 0;    // how often it was started
    bool worker_failure = false;  // of the last attempt
    bool finished = false;        // its processes are gone, or there never were any
    std::optional<StoredOutput> output;
};
// ListTasks.
std::vector<Task> parse_tasks(const Json& answer);

// One job, from GetJobStatus or an item of ListJobs.
struct JobRecord {
    JobDetails details;
    std::string name;          // "/me/x"
    std::string cluster;       // that runs it; empty: the controller's own
    bool rejected = false;     // by the cluster that was to run it
    std::string error;         // of the job, or why it waits
    std::string memory_bytes;  // that it asked for; empty: not known
};
// nullopt: the answer holds no job. `request` may be null.
std::optional<JobRecord> parse_job(const Json& job, const Json& request, std::string_view user);
// GetJobStatus; ListJobs.
std::optional<JobRecord> parse_status(const Json& answer, std::string_view user);
std::vector<JobRecord> parse_list(const Json& answer, std::string_view user);
// Adds what the tasks say: worker, attempts, and for a job that has ended its error type, exit code and message.
void judge(JobRecord& job, const std::vector<Task>& tasks);

// "JOB_STATE_RUNNING". A state that this version does not know counts as running, and becomes `other`.
JobState parse_wire_state(std::string_view wire, std::string& other);
// GetJobState: the wire state of the job; nullopt: the controller does not know it.
std::optional<std::string> parse_state(const Json& answer, std::string_view name);

// ---- others

// ExecInContainer. `error`: why nothing ran; empty: it ran.
struct ExecAnswer {
    std::int64_t exit_code = 0;
    std::string out, err, error;
};
ExecAnswer parse_exec(const Json& answer);

struct LogLine {
    std::string text;          // without its end
    std::int64_t attempt = 0;  // from 0
};
struct LogPage {
    std::vector<LogLine> lines;
    std::string cursor;  // for the next page; empty: not in the answer
};
LogPage parse_log_page(Json&& answer);

// GetSchedulerState: whether this user's next job runs in the band BATCH.
bool runs_as_batch(const Json& answer, std::string_view user);

}  // namespace gdnctl::iris
