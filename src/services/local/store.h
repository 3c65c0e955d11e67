// $STATE/local on disk: jobs/<id>/{request.json, job.json, supervisor.json, log, stop, work/, back/}, queue.json, lock.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "platform/clock.h"
#include "platform/lock.h"
#include "services/job/job.h"
#include "services/local/processes.h"

namespace gdnctl::local {

using Resources = std::map<std::string, double>;

// What the supervisor needs to know. Contains no values of environment variables.
struct LocalRequest {
    std::string submission_id;
    std::string entrypoint;  // stored with secrets masked; the supervisor gets the real one with the environment
    std::vector<std::string> env_names;
    Resources resources;
    Resources capacity;  // of this host, as declared by the submitter
    double start_timeout_s = 900;
    bool keep_workdir = false;
    std::string bring_back;  // see JobRequest
};

// The process in charge of the job: the submitter until the supervisor takes over.
struct SupervisorRecord {
    ProcessIdentity supervisor;
    std::optional<ProcessIdentity> child;  // leads the session of the entrypoint
};

// A job that waits for resources or holds them, in order of submission.
struct QueueEntry {
    std::string id;
    Resources resources;
    bool holds = false;
};

std::string to_json_text(const LocalRequest& request);
Result<LocalRequest> parse_request(std::string_view text);
std::string to_json_text(const SupervisorRecord& record);
Result<SupervisorRecord> parse_supervisor(std::string_view text);
std::string to_json_text(const std::vector<QueueEntry>& queue);
Result<std::vector<QueueEntry>> parse_queue(std::string_view text);

// Whether the job `id` may start: it fits into what the holders leave, and no earlier job waits for one of the same
// resources.
bool may_start(const std::vector<QueueEntry>& queue, std::string_view id, const Resources& capacity);
bool can_ever_fit(const Resources& wanted, const Resources& capacity);

class Store {
public:
    Store(std::filesystem::path root, Clock& clock, std::stop_token stop = {})
        : m_root(std::move(root)), m_clock(&clock), m_stop(std::move(stop)) {}

    const std::filesystem::path& root() const { return m_root; }
    std::filesystem::path jobs() const { return m_root / "jobs"; }
    std::filesystem::path job(std::string_view id) const { return jobs() / std::string(id); }
    std::filesystem::path file(std::string_view id, std::string_view name) const { return job(id) / std::string(name); }

    Status create() const;  // folders, private to the user
    Status check() const;   // missing, or private to the user
    bool exists(std::string_view id) const;
    Result<FileLock> lock() const;
    void ignore_stop_requests() { m_stop = {}; }

    // Error remote_missing: no such job.
    Result<JobDetails> read(std::string_view id) const;
    Status write(const JobDetails& details) const;
    Result<LocalRequest> read_request(std::string_view id) const;
    // nullopt: no record, or a damaged one. Error: local_io, it cannot be read now, so the state of the supervisor is
    // unknown.
    Result<std::optional<SupervisorRecord>> read_supervisor(std::string_view id) const;
    // Whether the job's supervisor (or the process about to start it) is alive. If its record is damaged, the process
    // mark decides. If it cannot be read, the job counts as supervised and is left alone.
    bool is_looked_after(std::string_view id) const;
    Status write_supervisor(std::string_view id, const SupervisorRecord& record) const;
    std::vector<std::string> ids() const;
    std::optional<std::vector<QueueEntry>> peek_queue() const;  // nullopt: missing or damaged

    // ---- the lock must be held
    // Ends a job whose supervisor is gone: kills its remaining processes and writes FAILED. Returns the current
    // details.
    Result<JobDetails> settle(std::string_view id) const;
    // Writes a terminal state unless there already is one, and releases the resources.
    Status finish(JobDetails details) const;
    // Rebuilt from the jobs if the file is missing or damaged.
    std::vector<QueueEntry> queue() const;
    // Settles a job of the queue if its supervisor is gone; true if it has left the queue.
    bool settle_queued(std::string_view id) const;
    Status write_queue(const std::vector<QueueEntry>& queue) const;
    // Removes the oldest terminal jobs, and leftovers of killed submitters.
    void prune() const;

    // Moves what the job is to bring back from work/ to back/, unless work/ stays.
    void bring_back(const LocalRequest& request) const;
    // Where it is; nullopt: nowhere.
    std::optional<std::filesystem::path> brought_back(std::string_view id) const;
    // Removes work/ of a job that has ended (renames it first, then deletes the files).
    void remove_workdir(std::string_view id) const;

private:
    std::vector<QueueEntry> rebuilt_queue() const;
    Error unreadable_record(std::string_view id, const std::string& text) const;
    void remove_folder(const std::filesystem::path& folder) const;
    void finish_removal(std::string_view id) const;

    std::filesystem::path m_root;
    Clock* m_clock;
    std::stop_token m_stop;
};

}  // namespace gdnctl::local
