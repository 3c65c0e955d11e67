// The job contract: what a job is, in which states it can be, how its end maps to an exit code, and what a backend
// offers. Every backend keeps it, so that commands do not care where a job runs. States, messages and error types are
// those of Ray's Jobs API.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/exit_code.h"
#include "core/json.h"
#include "core/result.h"
#include "core/time.h"
#include "platform/clock.h"

namespace gdnctl {

// `unknown` and `unknown_end` are states of a newer server: without and with an end time.
enum class JobState { pending, running, stopped, succeeded, failed, unknown, unknown_end };

constexpr bool is_terminal(JobState s) {
    return s != JobState::pending && s != JobState::running && s != JobState::unknown;
}
constexpr bool is_known(JobState s) { return s != JobState::unknown && s != JobState::unknown_end; }
std::string_view to_text(JobState state);                        // "PENDING", ...
std::optional<JobState> parse_job_state(std::string_view text);  // nullopt: not one that is known

// Error types of FAILED jobs. Others may come from newer servers and are kept as they are.
namespace job_error {
inline constexpr std::string_view k_command_error = "JOB_ENTRYPOINT_COMMAND_ERROR";
inline constexpr std::string_view k_command_start_error = "JOB_ENTRYPOINT_COMMAND_START_ERROR";
inline constexpr std::string_view k_runtime_env = "RUNTIME_ENV_SETUP_FAILURE";
inline constexpr std::string_view k_start_timeout = "JOB_SUPERVISOR_ACTOR_START_TIMEOUT";
inline constexpr std::string_view k_start_failure = "JOB_SUPERVISOR_ACTOR_START_FAILURE";
inline constexpr std::string_view k_unschedulable = "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE";
inline constexpr std::string_view k_died = "JOB_SUPERVISOR_ACTOR_DIED";
inline constexpr std::string_view k_unknown = "JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE";
inline constexpr std::string_view k_driver_infra = "JOB_DRIVER_INFRA_FAILURE";
}  // namespace job_error

// Messages that do not depend on the job.
namespace job_message {
inline constexpr std::string_view k_running = "Job is currently running.";
inline constexpr std::string_view k_stopped = "Job was intentionally stopped.";
inline constexpr std::string_view k_succeeded = "Job finished successfully.";
std::string pending(bool asked_for_resources, bool has_runtime_env);
std::string start_timeout(double seconds);
// `log` is the job's whole log or its end; the last 10 lines of it are quoted, at most 20,000 characters.
std::string exit_code(int code, std::string_view log);
std::string already_exists(std::string_view id);
std::string does_not_exist(std::string_view id);
}  // namespace job_message

struct JobDetails {
    std::string submission_id;
    JobState state = JobState::pending;
    std::string other_state{};  // as the server spells one that is not known
    std::string entrypoint;
    std::string message;
    std::optional<std::string> error_type;
    std::optional<WallTime> start_time;  // when it was submitted
    std::optional<WallTime> end_time;
    std::map<std::string, std::string> metadata;
    std::vector<std::string> env_names;  // names only: values may be secrets
    std::optional<std::string> driver_node_id;
    std::optional<std::string> driver_agent_http_address;  // "http://10.0.0.7:52365"
    std::optional<std::int64_t> driver_pid;
    std::optional<int> driver_exit_code;  // -N: signal N
};

// The state as the server spells it.
std::string_view status_of(const JobDetails& details);

enum class FailureClass { none, user, infra, infra_suspect, auth, timeout, stopped };
std::string_view to_text(FailureClass c);

struct JobVerdict {
    FailureClass failure = FailureClass::none;
    ExitCode exit = ExitCode::ok;
};
// What a job's state means to the caller: by error type first, then the exit code, then the message. PENDING, RUNNING
// and `unknown` are `none`, 0; `unknown_end` is `infra`: nothing says that the job succeeded. `last_logs` tells a bad
// accelerator node from a plain failure (infra-suspect, still exit 1).
JobVerdict classify(const JobDetails& details, std::string_view last_logs = {});

struct JobEnv {
    std::string name, value;
};

// The files of the working directory as they are at submission; what a package is made from.
struct WorkingTree {
    std::filesystem::path root;
    std::vector<std::string> files;  // relative, sorted, '/' as separator
};

struct JobRequest {
    std::string submission_id;
    std::string entrypoint;
    std::vector<JobEnv> env;                  // on top of the backend's; later entries win
    std::map<std::string, double> resources;  // "CPU", "TPU", ...; empty: nothing is asked for
    std::map<std::string, std::string> metadata;
    std::optional<WorkingTree> working_dir;  // nullopt: an empty folder
    bool keep_workdir = false;               // local only
    // Runs on the machine of this running job, whatever that job holds there; empty: anywhere. A backend that cannot
    // says so (usage).
    std::string beside;
    // A cluster only; the local backend refuses them.
    std::string working_dir_uri;                     // instead of working_dir: an archive that the nodes can fetch
    std::vector<std::string> pip;                    // requirement lines
    std::map<std::string, std::string> node_labels;  // the node must have them
};

struct Submitted {
    std::string submission_id;
    std::vector<std::string> warnings;
    std::string session{};  // of the backend, see JobBackend::session()
};

// Where a reader of a log begins.
struct LogStart {
    // At the last so many lines as they are now; nullopt: at the first byte.
    std::optional<std::size_t> tail = std::nullopt;
    bool follow = false;  // it will be pumped again: what comes later must join without gap or overlap
};

// One reader of one job's log. The log only grows.
class JobLog {
public:
    using Sink = std::function<bool(std::string_view)>;  // false: enough

    virtual ~JobLog() = default;
    // Hands over, in order and in pieces, everything that was not handed over yet; returns how many bytes, 0: nothing
    // new. A byte is handed over once, whatever happens on the way. After an error pumping may go on where it was.
    // Errors: infrastructure (out of reach, which may pass); remote_missing (the log is gone for good).
    virtual Result<std::size_t> pump(const Sink& sink) = 0;
};

// How often following a job looks for more.
struct FollowPace {
    std::chrono::milliseconds log{200};
    std::chrono::milliseconds status{200};
};

class JobBackend {
public:
    virtual ~JobBackend() = default;
    virtual std::string name() const = 0;     // "local", "ray"
    virtual std::string cluster() const = 0;  // "local", "us-central1"
    virtual std::string address() const = 0;  // what a person would open or look into
    virtual std::string job_url(std::string_view id) const = 0;

    // Errors: usage (id taken, request this backend cannot serve), local_io, infrastructure; interrupted, terminated
    // (with a hint: the job may have been taken all the same).
    virtual Result<Submitted> submit(const JobRequest& request) = 0;
    // Error: remote_missing `Job X does not exist`.
    virtual Result<JobDetails> details(std::string_view id) = 0;
    // The same in one try, for callers that come again: at most one request.
    virtual Result<JobDetails> poll(std::string_view id) { return details(id); }
    // Whether somebody has answered this backend over a network yet: then a refused connection is worth waiting for.
    virtual bool has_answered() const { return false; }
    // What changes when the backend forgets its jobs (a cluster whose head was restarted); empty where it never does.
    virtual Result<std::string> session() { return std::string(); }
    virtual FollowPace pace() const { return {}; }
    virtual Result<std::vector<JobDetails>> list() = 0;  // newest first by (start time, id)
    // True: it will stop or has stopped by this call; false: it had ended already.
    virtual Result<bool> stop(std::string_view id) = 0;
    virtual Status remove(std::string_view id) = 0;  // terminal jobs only (else conflict)
    virtual Result<std::unique_ptr<JobLog>> open_log(std::string_view id, const LogStart& start) = 0;
    // No request lasts longer than to this moment, or a second where that is past; nullopt: each as long as it may.
    virtual void set_deadline([[maybe_unused]] std::optional<Clock::Monotonic> deadline) {}
    // From here on a stop request that this backend was made with cuts nothing short: for cleaning up after a signal.
    virtual void ignore_stop_requests() {}
};

// `gdnctl-<kind>-<user>-<YYYYmmddTHHMMSS>-<8 hex>`: letters, digits, '_' and '-' only, at most 100 characters.
std::string make_submission_id(std::string_view kind, std::string_view user, WallTime now, std::uint32_t random);
// For an id that gdnctl gives a job. Error: usage (characters, length, or the reserved word `latest`).
Status check_submission_id(std::string_view id);
// For the id of a job that exists: any text, since other programs name jobs too. Error: usage (empty, or `latest`).
Status check_job_id(std::string_view id);

// {"TPU-<type>-head": 1, "TPU": chips} of one host of this type. Errors: usage `Cannot parse TPU type: X`,
// `Only single tpu nodes are supported with the CLI`.
Result<std::map<std::string, double>> tpu_resources(std::string_view type);

// Splits KEY=VALUE items (KEY is [A-Za-z_][A-Za-z0-9_]*, the value may be empty, blank items are skipped). Error:
// usage.
Result<std::vector<JobEnv>> parse_env_items(const std::vector<std::string>& items, std::string_view option);

// One job as the Jobs API spells it (type, job_id, submission_id, ..., driver_exit_code). Values of environment
// variables are masked. Unknown keys are ignored when reading; error: bad_input.
Json job_details_json(const JobDetails& details);
Result<JobDetails> parse_job_details(std::string_view text);
// An array of them, newest first by (start time, id); entries that are no job, and ghosts, are left out. Error:
// bad_input.
Result<std::vector<JobDetails>> parse_job_list(std::string_view text);
// What a cluster makes of a job that was deleted too soon after its end: no job any more.
bool is_ghost(const JobDetails& job);
void sort_newest_first(std::vector<JobDetails>& jobs);

// Whether a file of the working tree travels with a job (no caches, virtual environments, docs, packs, snapshots).
bool is_packaged(std::string_view relative_path);

// Where the details came from, for the JSON of commands.
struct JobPlace {
    std::string backend, cluster, address, url;
};
// backend, cluster, address, submission_id, status, error_type, message, failure_class, driver_exit_code, start_time,
// end_time (both ms since the epoch), url, appended to `object` in that order.
void put_job(Json& object, const JobPlace& place, const JobDetails& details, const JobVerdict& verdict);

}  // namespace gdnctl
