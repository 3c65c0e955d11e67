#include "services/local/local_jobs.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/json.h"
#include "core/log.h"
#include "core/redact.h"
#include "core/text.h"
#include "platform/env.h"
#include "platform/fs.h"
#include "platform/signals.h"
#include "services/job/job.h"
#include "services/local/processes.h"
#include "services/local/store.h"

namespace gdnctl {

namespace {

namespace fs = std::filesystem;
using local::LocalRequest;
using local::Resources;
using local::Store;

constexpr std::size_t k_read_size = std::size_t{1} << 20;
constexpr double k_default_start_timeout_s = 900;

// Removes an unfinished job folder unless keep() was called.
class Staging {
public:
    explicit Staging(fs::path path) : m_path(std::move(path)) {}
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;
    ~Staging() {
        std::error_code ignored;
        if (!m_path.empty()) fs::remove_all(m_path, ignored);
    }
    const fs::path& path() const { return m_path; }
    void keep() { m_path.clear(); }

private:
    fs::path m_path;
};

Result<Resources> declared_capacity(const std::map<std::string, std::string>& env) {
    const auto it = env.find("GDNCTL_LOCAL_RESOURCES");
    if (it == env.end() || text::trim(it->second).empty()) {
        return Resources{{"CPU", std::max(1U, std::thread::hardware_concurrency())}};
    }
    const auto wrong = [] {
        return fail(ErrorKind::config, "GDNCTL_LOCAL_RESOURCES is not a JSON object of numbers",
                    R"(such as {"CPU":2,"TPU":4,"TPU-v5p-8-head":1})");
    };
    const auto json = parse_json(it->second, "GDNCTL_LOCAL_RESOURCES");
    if (!json || !json->is_object()) return wrong();
    Resources capacity;
    for (const auto& [name, amount] : json->items()) {
        if (!amount.is_number()) return wrong();
        if (amount.get<double>() < 0) {
            return fail(ErrorKind::config,
                        fmt::format("GDNCTL_LOCAL_RESOURCES: {} must be 0 or more, not {}", name, amount.dump()));
        }
        capacity.emplace(name, amount.get<double>());
    }
    return capacity;
}

// Reads the log by offset, since the file only grows.
class LocalLog final : public JobLog {
public:
    LocalLog(UniqueFd fd, fs::path path, off_t offset)
        : m_fd(std::move(fd)), m_path(std::move(path)), m_offset(offset) {}
    Result<std::size_t> pump(const Sink& sink) override {
        m_buffer.resize(k_read_size);
        for (std::size_t handed_over = 0;;) {
            const ssize_t n = pread(m_fd.get(), m_buffer.data(), k_read_size, m_offset);
            if (n < 0 && errno == EINTR) continue;
            if (n < 0) return tl::unexpected(file_error(ErrorKind::local_io, "read", m_path, errno));
            m_offset += n;
            handed_over += static_cast<std::size_t>(n);
            if (n == 0 || !sink({m_buffer.data(), static_cast<std::size_t>(n)})) return handed_over;
        }
    }

private:
    UniqueFd m_fd;
    fs::path m_path;
    off_t m_offset;
    std::string m_buffer;
};

// Where the last `lines` lines begin; a last line without newline counts.
off_t tail_offset(int fd, std::size_t lines) {
    struct stat info{};
    if (fstat(fd, &info) != 0 || lines == 0) return info.st_size;
    std::string block;
    std::size_t found = 0;
    for (off_t end = info.st_size; end > 0;) {
        const off_t begin = std::max<off_t>(0, end - 65536);
        block.resize(static_cast<std::size_t>(end - begin));
        const ssize_t n = pread(fd, block.data(), block.size(), begin);
        for (ssize_t i = n - 1; i >= 0; --i) {
            const off_t at = begin + i;
            if (block[static_cast<std::size_t>(i)] != '\n' || at == info.st_size - 1) continue;
            if (++found == lines) return at + 1;
        }
        end = begin;
    }
    return 0;
}

class LocalJobs final : public JobBackend {
public:
    explicit LocalJobs(LocalJobsConfig config)
        : m_config(std::move(config)),
          m_clock(m_config.clock != nullptr ? *m_config.clock : system_clock()),
          m_store(m_config.state_dir / "local", m_clock, m_config.stop) {}

    PlaceKind kind() const override { return PlaceKind::local; }
    std::string cluster() const override { return "local"; }
    std::string address() const override { return m_store.root().string(); }
    std::string job_url(std::string_view id) const override { return "file://" + m_store.job(id).string(); }

    Result<Submitted> submit(const JobRequest& request) override;
    Result<JobDetails> details(std::string_view id) override;
    Result<std::vector<JobDetails>> list(const JobFilter& filter) override;
    Result<bool> stop(std::string_view id) override;
    std::optional<fs::path> brought_back(std::string_view id) const override { return m_store.brought_back(id); }
    Status remove(std::string_view id) override;
    Result<std::unique_ptr<JobLog>> open_log(std::string_view id, const LogStart& start) override;
    void ignore_stop_requests() override { m_store.ignore_stop_requests(); }

private:
    std::map<std::string, std::string> job_environment(const JobRequest& request) const;
    Result<LocalRequest> plan(const JobRequest& request) const;
    Status stage(const JobRequest& request, const LocalRequest& plan, const fs::path& folder) const;
    Status publish(const fs::path& folder, const LocalRequest& plan) const;
    Status launch(const JobRequest& request) const;

    LocalJobsConfig m_config;
    Clock& m_clock;
    Store m_store;
};

std::map<std::string, std::string> LocalJobs::job_environment(const JobRequest& request) const {
    std::map<std::string, std::string> env = m_config.env;
    for (const std::string_view name : active_python_variables()) env.erase(std::string(name));
    for (const JobEnv& item : request.env) env[item.name] = item.value;
    env["PYTHONUNBUFFERED"] = "1";
    env["GDNCTL_SUBMISSION_ID"] = request.submission_id;
    env[std::string(k_process_mark)] = local::job_mark(m_store.job(request.submission_id));
    env.erase("RAY_ADDRESS");
    env[std::string(local::k_entrypoint_variable)] = request.entrypoint;
    return env;
}

// Rejects what only a cluster can do.
Status check_servable(const JobRequest& request) {
    if (!request.pip.empty()) {
        return fail(ErrorKind::usage, "the local backend does not support --pip-requirements",
                    "local jobs use the packages on this machine");
    }
    if (!request.working_dir_uri.empty()) {
        return fail(ErrorKind::usage, "the local backend does not support a working directory given as a URI: " +
                                          request.working_dir_uri);
    }
    if (!request.node_labels.empty()) {
        return fail(ErrorKind::usage, "the local backend has only one node and does not support node labels");
    }
    return {};
}

Result<LocalRequest> LocalJobs::plan(const JobRequest& request) const {
    GDNCTL_TRY(check_submission_id(request.submission_id));
    GDNCTL_TRY(check_servable(request));
    LocalRequest plan;
    plan.submission_id = request.submission_id;
    plan.entrypoint = redact(request.entrypoint);
    for (const JobEnv& item : request.env) plan.env_names.push_back(item.name);
    std::sort(plan.env_names.begin(), plan.env_names.end());
    plan.env_names.erase(std::unique(plan.env_names.begin(), plan.env_names.end()), plan.env_names.end());
    plan.resources = request.resources;
    std::erase_if(plan.resources, [](const auto& item) { return item.second <= 0; });
    plan.keep_workdir = request.keep_workdir;
    plan.bring_back = request.bring_back;
    plan.start_timeout_s = k_default_start_timeout_s;
    GDNCTL_TRY_ASSIGN(plan.capacity, declared_capacity(m_config.env));
    if (const auto it = m_config.env.find("RAY_JOB_START_TIMEOUT_SECONDS"); it != m_config.env.end()) {
        const auto seconds = text::parse_double(it->second);
        if (!seconds || *seconds < 0 || *seconds > 1e9) {
            return fail(ErrorKind::config, "RAY_JOB_START_TIMEOUT_SECONDS is not a number of seconds: " + it->second);
        }
        plan.start_timeout_s = *seconds;
    }
    return plan;
}

// Creates everything that a job's folder needs before others can see it.
Status LocalJobs::stage(const JobRequest& request, const LocalRequest& plan, const fs::path& folder) const {
    GDNCTL_TRY(make_private_directory(folder));
    if (request.working_dir) {
        GDNCTL_TRY(copy_tree(*request.working_dir, folder / "work", m_config.stop));
    } else {
        GDNCTL_TRY(make_private_directory(folder / "work"));
    }
    JobDetails details;
    details.submission_id = plan.submission_id;
    details.entrypoint = plan.entrypoint;
    details.message = job_message::pending(!plan.resources.empty(), request.working_dir || !request.env.empty());
    details.start_time = m_clock.wall();
    details.metadata = request.metadata;
    details.env_names = plan.env_names;
    GDNCTL_TRY(atomic_replace(folder / "log", "", 0600));
    GDNCTL_TRY(atomic_replace(folder / "request.json", local::to_json_text(plan), 0600));
    GDNCTL_TRY(atomic_replace(folder / "supervisor.json",
                              local::to_json_text({local::identity_of(getpid()), std::nullopt}), 0600));
    return atomic_replace(folder / "job.json", to_text(job_details_json(details), 1) + "\n", 0600);
}

// Gives the folder its final name, if that is free, and adds the job to the queue.
Status LocalJobs::publish(const fs::path& folder, const LocalRequest& plan) const {
    GDNCTL_TRY_ASSIGN(const FileLock lock, m_store.lock());
    const fs::path target = m_store.job(plan.submission_id);
    if (m_store.exists(plan.submission_id)) {
        return fail(ErrorKind::usage, job_message::already_exists(plan.submission_id));
    }
    if (renameat2(AT_FDCWD, folder.c_str(), AT_FDCWD, target.c_str(), RENAME_NOREPLACE) != 0) {
        if (errno == EEXIST) return fail(ErrorKind::usage, job_message::already_exists(plan.submission_id));
        // Some file systems do not support the flag; the lock, held by every writer, protects instead.
        if (std::rename(folder.c_str(), target.c_str()) != 0) {
            return tl::unexpected(file_error(ErrorKind::local_io, "create", target, errno));
        }
    }
    GDNCTL_TRY(sync_directory(m_store.jobs()));
    if (plan.resources.empty()) return {};
    auto queue = m_store.queue();
    std::erase_if(queue, [&](const auto& entry) { return entry.id == plan.submission_id; });
    queue.push_back({plan.submission_id, plan.resources, false});
    return m_store.write_queue(queue);
}

Status LocalJobs::launch(const JobRequest& request) const {
    const Status started = local::launch_supervisor(m_config.supervisor, m_store.job(request.submission_id),
                                                    job_environment(request), m_config.env);
    if (started) {
        // We may have adopted it, as a process that adopts its descendants, but it must outlive us.
        const auto record = m_store.read_supervisor(request.submission_id);
        if (record && *record) spare_from_sweeps((*record)->supervisor.id.pid);
        return {};
    }
    if (const auto lock = m_store.lock()) {
        if (auto details = m_store.read(request.submission_id)) {
            details->state = JobState::failed;
            details->error_type = std::string(job_error::k_start_failure);
            details->message = "Job supervisor actor failed to start: " + started.error().text();
            details->end_time = m_clock.wall();
            [[maybe_unused]] const Status written = m_store.finish(*details);
        }
    }
    m_store.remove_workdir(request.submission_id);
    return started;
}

Result<Submitted> LocalJobs::submit(const JobRequest& request) {
    GDNCTL_TRY_ASSIGN(const LocalRequest wanted, plan(request));
    GDNCTL_TRY(m_store.create());
    if (m_store.exists(wanted.submission_id)) {
        return fail(ErrorKind::usage, job_message::already_exists(wanted.submission_id));
    }
    {
        GDNCTL_TRY_ASSIGN(const FileLock lock, m_store.lock());
        m_store.prune();
    }
    static std::atomic<int> number = 0;  // several threads may submit the same id
    const auto self = local::identity_of(getpid());
    Staging staging(m_store.jobs() / (".new-" + std::to_string(self.id.pid) + "-" +
                                      std::to_string(self.id.start_ticks) + "-" + std::to_string(++number)));
    GDNCTL_TRY(stage(request, wanted, staging.path()));
    if (m_config.stop.stop_requested()) return tl::unexpected(stopped_error());
    GDNCTL_TRY(publish(staging.path(), wanted));
    staging.keep();
    GDNCTL_TRY(launch(request));
    Submitted submitted{wanted.submission_id, {}};
    if (!local::can_ever_fit(wanted.resources, wanted.capacity)) {
        submitted.warnings.push_back("this host can never offer the resources that the job requests (" +
                                     Json(wanted.resources).dump() + " of " + Json(wanted.capacity).dump() +
                                     "): it stays PENDING until the start timeout");
    }
    return submitted;
}

Result<JobDetails> LocalJobs::details(std::string_view id) {
    // All jobs here have valid ids; anything else must not become part of a path.
    if (!check_submission_id(id)) {
        return fail(ErrorKind::remote_missing, job_message::does_not_exist(id), "`gdnctl ray-list` shows the jobs");
    }
    GDNCTL_TRY(m_store.check());
    GDNCTL_TRY_ASSIGN(JobDetails details, m_store.read(id));
    if (is_terminal(details.state)) return details;
    if (m_store.is_looked_after(id)) return details;
    GDNCTL_TRY_ASSIGN(const FileLock lock, m_store.lock());
    return m_store.settle(id);
}

Result<std::vector<JobDetails>> LocalJobs::list(const JobFilter& filter) {
    GDNCTL_TRY(m_store.check());
    std::error_code problem;
    const fs::directory_iterator readable(m_store.jobs(), problem);
    if (problem && problem != std::errc::no_such_file_or_directory) {
        return tl::unexpected(file_error(ErrorKind::local_io, "read", m_store.jobs(), problem.value()));
    }
    std::vector<JobDetails> jobs;
    for (const std::string& id : m_store.ids()) {
        auto job = details(id);
        if (job) {
            jobs.push_back(std::move(*job));
        } else if (job.error().kind != ErrorKind::remote_missing) {
            log::warning("{}", job.error().text());
        }
    }
    sort_newest_first(jobs);
    keep_filtered(jobs, filter);
    return jobs;
}

Result<bool> LocalJobs::stop(std::string_view id) {
    GDNCTL_TRY_ASSIGN(JobDetails job, details(id));
    if (is_terminal(job.state)) return false;
    GDNCTL_TRY_ASSIGN(const FileLock lock, m_store.lock());
    GDNCTL_TRY_ASSIGN(job, m_store.read(id));
    if (is_terminal(job.state)) return false;
    // Empty, because a full disk still takes a name, and what frees it must not wait for space.
    const UniqueFd file(open(m_store.file(id, "stop").c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file.valid()) return tl::unexpected(file_error(ErrorKind::local_io, "write", m_store.file(id, "stop"), errno));
    if (job.state == JobState::running) return true;
    job.state = JobState::stopped;
    job.message = job_message::k_stopped;
    job.end_time = m_clock.wall();
    GDNCTL_TRY(m_store.finish(job));
    return true;
}

Status LocalJobs::remove(std::string_view id) {
    GDNCTL_TRY_ASSIGN(const JobDetails job, details(id));
    if (!is_terminal(job.state)) {
        return fail(ErrorKind::conflict,
                    "Attempted to delete job '" + std::string(id) + "', but it is in a non-terminal state",
                    "`gdnctl ray-stop --wait " + std::string(id) + "` ends it");
    }
    GDNCTL_TRY_ASSIGN(const FileLock lock, m_store.lock());
    const fs::path trash = m_store.jobs() / (".old-" + std::string(id));
    if (std::rename(m_store.job(id).c_str(), trash.c_str()) != 0) {
        return tl::unexpected(file_error(ErrorKind::local_io, "remove", m_store.job(id), errno));
    }
    std::error_code problem;
    fs::remove_all(trash, problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "remove", trash, problem.value()));
    return {};
}

Result<std::unique_ptr<JobLog>> LocalJobs::open_log(std::string_view id, const LogStart& start) {
    GDNCTL_TRY(details(id));
    const fs::path path = m_store.file(id, "log");
    UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!fd.valid()) return tl::unexpected(file_error(ErrorKind::local_io, "open", path, errno));
    const off_t offset = start.tail ? tail_offset(fd.get(), *start.tail) : 0;
    return std::make_unique<LocalLog>(std::move(fd), path, offset);
}

}  // namespace

std::unique_ptr<JobBackend> make_local_jobs(LocalJobsConfig config) {
    return std::make_unique<LocalJobs>(std::move(config));
}

}  // namespace gdnctl
