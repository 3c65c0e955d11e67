// The job contract: what a job is, its states, how its end maps to an exit code, and what a backend offers. Every
// backend follows it, so that commands need not know where a job runs. States, messages and error types are those of
// Ray's Jobs API.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/place_kind.h"
#include "core/result.h"
#include "core/time.h"
#include "platform/clock.h"
#include "platform/http.h"

namespace gdnctl {

// `unknown` and `unknown_end` stand for states of a newer server: without and with an end time.
enum class JobState { pending, running, stopped, succeeded, failed, unknown, unknown_end };

constexpr bool is_terminal(JobState s) {
    return s != JobState::pending && s != JobState::running && s != JobState::unknown;
}
constexpr bool is_known(JobState s) { return s != JobState::unknown && s != JobState::unknown_end; }
std::string_view to_text(JobState state);                        // "PENDING", ...
std::optional<JobState> parse_job_state(std::string_view text);  // nullopt: not a known state

// Error types of FAILED jobs. Newer servers may send others, which are kept unchanged.
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
inline constexpr std::string_view k_time_limit = "JOB_EXECUTION_TIMEOUT";  // the scheduler's own limit for the job
}  // namespace job_error

// Messages that do not depend on the job.
namespace job_message {
inline constexpr std::string_view k_running = "Job is currently running.";
inline constexpr std::string_view k_stopped = "Job was intentionally stopped.";
inline constexpr std::string_view k_succeeded = "Job finished successfully.";
std::string pending(bool asked_for_resources, bool has_runtime_env);
std::string start_timeout(double seconds);
// `log` is the job's whole log or its end. Quotes its last 10 lines, at most 20,000 characters.
std::string exit_code(int code, std::string_view log);
std::string already_exists(std::string_view id);
std::string does_not_exist(std::string_view id);
}  // namespace job_message

struct JobDetails {
    std::string submission_id;
    JobState state = JobState::pending;
    std::string other_state{};  // an unknown state as the server spells it
    std::string entrypoint;
    std::string message;
    std::optional<std::string> error_type;
    std::optional<WallTime> start_time;  // time of submission
    std::optional<WallTime> end_time;
    std::map<std::string, std::string> metadata;
    std::vector<std::string> env_names;  // names only: values may be secrets
    std::optional<std::string> driver_node_id;
    std::optional<std::string> driver_agent_http_address;  // "http://10.0.0.7:52365"
    std::optional<std::int64_t> driver_pid;
    std::optional<int> driver_exit_code;  // -N: signal N
    std::string job_id;                   // the scheduler's own name for the job; empty: the submission id
    std::int64_t attempts = 1;            // how often it was started
    std::vector<std::string> root_cause;  // lines of the log that the scheduler takes for the cause of a failure
};

// The state as the server spells it.
std::string_view status_of(const JobDetails& details);

enum class FailureClass { none, user, infra, infra_suspect, auth, timeout, stopped };
std::string_view to_text(FailureClass c);

struct JobVerdict {
    FailureClass failure = FailureClass::none;
    ExitCode exit = ExitCode::ok;
};
// What a job's state means to the caller, decided by error type, then exit code, then message. PENDING, RUNNING and
// `unknown` are `none`, 0. `unknown_end` is `infra`, since nothing shows that the job succeeded. `last_logs` helps to
// tell a bad accelerator node (infra-suspect, still exit 1) from a plain failure.
JobVerdict classify(const JobDetails& details, std::string_view last_logs = {});

struct JobEnv {
    std::string name, value;
};

// The files of the working directory at submission, from which a package is made.
struct WorkingTree {
    std::filesystem::path root;
    std::vector<std::string> files;  // relative, sorted, '/' as separator
    // Executable files from elsewhere that are added, by the names that they get.
    std::map<std::string, std::filesystem::path> added = {};
};

struct JobRequest {
    std::string submission_id;
    std::string entrypoint;
    std::vector<JobEnv> env;                  // added to the backend's; later entries override earlier ones
    std::map<std::string, double> resources;  // "CPU", "TPU", ...; empty: no resources
    std::map<std::string, std::string> metadata;
    std::optional<WorkingTree> working_dir;  // nullopt: an empty folder
    bool keep_workdir = false;               // local only
    // A file or folder of the working directory that outlives it, see JobBackend::brought_back(); empty: none.
    std::string bring_back;  // local only
    // Runs the job on the machine of this running job, even if that job holds its resources; empty: anywhere. A backend
    // without support for it returns a usage error.
    std::string beside;
    std::optional<std::chrono::milliseconds> start_timeout{};  // how long it may wait for its machine, on Iris
    // Only for clusters; the local backend rejects them.
    std::string working_dir_uri;                     // replaces working_dir: an archive that the nodes can fetch
    std::vector<std::string> pip;                    // requirement lines
    std::map<std::string, std::string> node_labels;  // labels that the node must have
};

struct Submitted {
    std::string submission_id;
    std::vector<std::string> warnings;
    std::string session{};  // of the backend, see JobBackend::session()
};

// What a job has left in its output folder, kept after its end.
struct StoredOutput {
    enum class State { uploaded, failed, unavailable };
    State state = State::uploaded;
    std::string task;         // whose folder it was; empty: jobs have no tasks here
    std::string uri;          // file:// or gs://; a folder, or an archive outputs.tar.zst
    std::uint64_t bytes = 0;  // of that folder or archive
    std::string sha256;       // of an archive; empty: not known
    std::string error;        // why it was not stored
};
std::string_view to_text(StoredOutput::State state);  // "uploaded", ...

// Which jobs to list. Jobs are newest first; a limit keeps the first ones.
struct JobFilter {
    std::string user{};       // submitted by this user; empty: by anyone
    std::string name_part{};  // part of the id, in any case; empty: any id
    std::size_t limit = 0;    // 0: all that the backend shows
};
// Drops the jobs that the filter does not mean. `jobs`: newest first.
void keep_filtered(std::vector<JobDetails>& jobs, const JobFilter& filter);

// Where to start reading a log.
struct LogStart {
    // Start at the last N lines as of now; nullopt: at the first byte.
    std::optional<std::size_t> tail = std::nullopt;
    bool follow = false;  // pump() will be called again; later output must follow without gap or overlap
};

// Reads one job's log, which only grows.
class JobLog {
public:
    using Sink = std::function<bool(std::string_view)>;  // false: stop

    virtual ~JobLog() = default;
    // Passes on everything new, in order and in pieces, and returns the number of bytes; 0: nothing new. Each byte is
    // passed on exactly once, whatever happens. After an error, the next call continues at the same place. Errors:
    // infrastructure (unreachable, perhaps temporarily); remote_missing (the log is gone for good).
    virtual Result<std::size_t> pump(const Sink& sink) = 0;
};

// How often to poll when following a job.
struct FollowPace {
    std::chrono::milliseconds log{200};
    std::chrono::milliseconds status{200};
};

// The upload limit of a Ray cluster, in bytes. It also applies on this machine, so that a job that runs here can also
// run on a cluster.
inline constexpr std::uint64_t k_package_limit = 104'857'600;

class JobBackend {
public:
    virtual ~JobBackend() = default;
    virtual PlaceKind kind() const = 0;
    std::string name() const { return std::string(to_text(kind())); }
    virtual std::string cluster() const = 0;  // "local", "us-central1"
    virtual std::string address() const = 0;  // what a person would open or inspect
    virtual std::string job_url(std::string_view id) const = 0;

    // Errors: usage (the id is taken, or this backend cannot serve the request), local_io, infrastructure; interrupted,
    // terminated (with a hint: the job may have been accepted anyway).
    virtual Result<Submitted> submit(const JobRequest& request) = 0;
    // Error: remote_missing `Job X does not exist`.
    virtual Result<JobDetails> details(std::string_view id) = 0;
    // The same with at most one request, for callers that poll.
    virtual Result<JobDetails> poll(std::string_view id) { return details(id); }
    // Whether the backend has answered over a network before. If so, a refused connection is worth retrying.
    virtual bool has_answered() const { return false; }
    // Changes when the backend forgets its jobs (a cluster whose head was restarted); empty if it never does.
    virtual Result<std::string> session() { return std::string(); }
    virtual FollowPace pace() const { return {}; }
    virtual Result<std::vector<JobDetails>> list(const JobFilter& filter) = 0;  // newest first by (start time, id)
    // True: it will stop, or stopped because of this call; false: it had already ended.
    virtual Result<bool> stop(std::string_view id) = 0;
    // Where JobRequest::bring_back of an ended job is on this machine; nullopt: the job did not leave it.
    virtual std::optional<std::filesystem::path> brought_back([[maybe_unused]] std::string_view id) const {
        return std::nullopt;
    }
    virtual Status remove(std::string_view id) = 0;  // terminal jobs only (else conflict)
    virtual Result<std::unique_ptr<JobLog>> open_log(std::string_view id, const LogStart& start) = 0;
    // What a job that has ended stored in the folder $GDNCTL_OUTPUT_DIR; empty: nothing, or jobs have none here.
    virtual Result<std::vector<StoredOutput>> outputs([[maybe_unused]] std::string_view id) {
        return std::vector<StoredOutput>();
    }
    // Whether the machine of a running job can be reached by ssh.
    virtual bool hosts_have_ssh() const { return true; }
    // The largest package of a working tree, in bytes.
    virtual std::uint64_t package_limit() const { return k_package_limit; }
    // Limits each request to this moment, or to one second if it has passed; nullopt: no limit.
    virtual void set_deadline([[maybe_unused]] std::optional<Clock::Monotonic> deadline) {}
    // From now on, stop requests interrupt nothing: for cleaning up after a signal.
    virtual void ignore_stop_requests() {}
};

// `gdnctl-<kind>-<user>-<YYYYmmddTHHMMSS>-<8 hex>`: letters, digits, '_' and '-' only, at most 100 characters.
std::string make_submission_id(std::string_view kind, std::string_view user, WallTime now, std::uint32_t random);
// Checks an id that gdnctl gives to a job. Error: usage (characters, length, or the reserved word `latest`).
Status check_submission_id(std::string_view id);
// Checks the id of an existing job: any text, since other programs name jobs too. Error: usage (empty, or `latest`).
Status check_job_id(std::string_view id);

// {"TPU-<type>-head": 1, "TPU": chips} for one host of this type. Errors: usage `Cannot parse TPU type: X`, `Only
// single tpu nodes are supported with the CLI`.
Result<std::map<std::string, double>> tpu_resources(std::string_view type);

// Splits KEY=VALUE items. KEY is [A-Za-z_][A-Za-z0-9_]*, the value may be empty, and blank items are skipped. Error:
// usage.
Result<std::vector<JobEnv>> parse_env_items(const std::vector<std::string>& items, std::string_view option);

// One job in the format of the Jobs API (type, job_id, submission_id, ..., driver_exit_code). Masks values of
// environment variables. Reading ignores unknown keys; error: bad_input.
Json job_details_json(const JobDetails& details);
Result<JobDetails> parse_job_details(std::string_view text);
// Whether this is what remains on a cluster of a job that was deleted too soon after its end.
bool is_ghost(const JobDetails& job);
void sort_newest_first(std::vector<JobDetails>& jobs);

// Whether a file of the working tree belongs in the package (no caches, virtual environments, docs, packs, snapshots).
bool is_packaged(std::string_view relative_path);

// The source of the details, for the JSON output of commands.
struct JobPlace {
    std::string backend, cluster, address, url;
};
// Appends backend, cluster, address, submission_id, status, error_type, message, failure_class, driver_exit_code,
// start_time, end_time (both in ms since the epoch) and url to `object`, in this order.
void put_job(Json& object, const JobPlace& place, const JobDetails& details, const JobVerdict& verdict);
// Appends job_id, attempts, root_cause and outputs.
void put_end(Json& object, const JobDetails& details, const std::vector<StoredOutput>& outputs);

// The package of a working tree: uploaded to a cluster, or unpacked as a private copy for a local job.

// Packs the tree's files (links followed, vanished files skipped, exec bits kept) into the ZIP archive `package` and
// returns its size in bytes. The same files give the same bytes, whatever their dates and owners. Errors: local_io (a
// link that leaves the root, disk full); usage (larger than `limit` bytes, reported as soon as it is exceeded; names
// the largest files); interrupted, terminated (`stop` was requested).
Result<std::uint64_t> pack_tree(const WorkingTree& tree, const std::filesystem::path& package, std::stop_token stop,
                                std::uint64_t limit = k_package_limit);

// The usage error for a package of more than `limit` bytes; names the ten largest files of the tree.
Error package_too_large(const WorkingTree& tree, std::uint64_t limit);

// Makes the folder `into` with copies of the same files, for a job on this machine. Errors: those of pack_tree(), also
// where the package would be too large.
Status copy_tree(const WorkingTree& tree, const std::filesystem::path& into, std::stop_token stop,
                 std::uint64_t limit = k_package_limit);

// The route to a cluster's server. services/cluster opens one, and services/ray and services/iris send their requests
// through it.

class JobRoute {
public:
    virtual ~JobRoute() = default;
    // Base URL of the server as reachable from here: scheme, host, port, maybe a path prefix, without a trailing '/'.
    // Called before the first request, and again if a connection was refused, so that a dead tunnel is reopened.
    // Errors: infrastructure, auth, timeout.
    virtual Result<std::string> url() = 0;
    // The headers that authorise a request, all secret; empty: there is no login. `refused`: the server has just
    // answered 401 to the previous ones, so a login that expires is renewed. Thread-safe. Errors: authentication (no
    // login, or an expired one), infrastructure, interrupted.
    virtual Result<HttpHeaders> headers([[maybe_unused]] bool refused) { return HttpHeaders(); }
    // The address at which the agent of a job's node can be reached ("http://10.0.0.7:52365" in the job's details);
    // nullopt: unreachable from here.
    virtual std::optional<std::string> agent_url([[maybe_unused]] const std::string& address) { return std::nullopt; }
    // Limits opening a route to this moment, or to one second if it has passed; nullopt: no limit.
    virtual void set_deadline([[maybe_unused]] std::optional<Clock::Monotonic> deadline) {}
};

}  // namespace gdnctl
