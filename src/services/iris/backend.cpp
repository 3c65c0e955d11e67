// The job contract on an Iris controller.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "core/base64.h"
#include "core/log.h"
#include "core/text.h"
#include "platform/signals.h"
#include "platform/unnamed_file.h"
#include "services/iris/answers.h"
#include "services/iris/client.h"
#include "services/iris/request.h"

namespace gdnctl::iris {

namespace {

using namespace std::chrono_literals;

constexpr std::string_view k_hold_prefix = "gdnctl-hold-";
constexpr std::size_t k_most_jobs = 500;                // of one answer
constexpr std::chrono::seconds k_submit_patience{180};  // sending again what may have arrived
constexpr std::chrono::seconds k_second_look{2};        // before a job that was there counts as lost
constexpr std::chrono::seconds k_end_of_processes{40};  // after a stop
constexpr std::chrono::seconds k_late_lines{15};        // after a job's end

std::string nonce_of(const std::map<std::string, std::string>& metadata) {
    const auto it = metadata.find("nonce");
    return it == metadata.end() ? std::string() : it->second;
}

bool is_holder(std::string_view name) { return name.substr(name.rfind('/') + 1).starts_with(k_hold_prefix); }

// The whole request in a file, because a bundle may be large: the bundle goes into the last field.
Result<UnnamedFile> request_file(const Json& launch, const WorkingTree& tree, const std::stop_token& stop) {
    GDNCTL_TRY_ASSIGN(UnnamedFile package, UnnamedFile::create());
    GDNCTL_TRY_ASSIGN(const std::uint64_t size, pack_tree(tree, package.path(), stop, k_iris_package_limit));
    log::info("sending the working directory with the job ({:.1f} MB)", static_cast<double>(size) / 1e6);
    GDNCTL_TRY_ASSIGN(UnnamedFile file, UnnamedFile::create());
    std::string text = to_text(launch);
    text.back() = ',';
    GDNCTL_TRY(file.append(text + "\"bundleBlob\":\""));
    constexpr std::size_t k_bytes = std::size_t{3} << 18;  // three bytes are four characters
    for (std::uint64_t at = 0; at < size; at += k_bytes) {
        GDNCTL_TRY_ASSIGN(const std::string bytes, package.read(at, k_bytes));
        GDNCTL_TRY(file.append(to_base64(bytes)));
    }
    GDNCTL_TRY(file.append("\"}"));
    return file;
}

// What this process knows of a job.
struct Known {
    JobDetails details;
    std::shared_ptr<JobFacts> facts = std::make_shared<JobFacts>();
    bool ran = false;                         // it was seen before its end
    std::optional<Clock::Monotonic> stopped;  // when this process stopped it; nullopt: it did not, or all is over
};

class IrisJobs final : public JobBackend {
public:
    explicit IrisJobs(IrisJobsConfig config)
        : m_client(std::make_shared<Client>(std::move(config))), m_runs(m_client, this->config().user) {}

    PlaceKind kind() const override { return PlaceKind::iris; }
    std::string cluster() const override { return config().cluster; }
    std::string address() const override { return config().address; }
    std::string job_url(std::string_view id) const override {
        if (m_runs.knows(id)) return {};  // not a job of the controller
        const std::string& base = config().dashboard_url.empty() ? config().address : config().dashboard_url;
        return base + "/#/job/" + text::percent_encode(full(id));
    }
    bool has_answered() const override { return m_client->route().has_answered(); }
    bool hosts_have_ssh() const override { return false; }
    std::uint64_t package_limit() const override { return k_iris_package_limit; }
    FollowPace pace() const override;

    Result<Submitted> submit(const JobRequest& request) override;
    Result<JobDetails> details(std::string_view id) override {
        return m_runs.knows(id) ? m_runs.details(id) : ask_details(id, Tries::patient);
    }
    Result<JobDetails> poll(std::string_view id) override;
    Result<std::vector<JobDetails>> list(const JobFilter& filter) override;
    Result<bool> stop(std::string_view id) override;
    Status remove(std::string_view id) override { return m_runs.knows(id) ? m_runs.remove(id) : Status(); }
    Result<std::unique_ptr<JobLog>> open_log(std::string_view id, const LogStart& start) override;
    Result<std::vector<StoredOutput>> outputs(std::string_view id) override;
    void set_deadline(std::optional<Clock::Monotonic> deadline) override { m_client->route().set_deadline(deadline); }
    void ignore_stop_requests() override { m_client->route().ignore_stop_requests(); }

private:
    const IrisJobsConfig& config() const { return m_client->config(); }
    std::string full(std::string_view id) const { return name_of(config().user, id); }
    Known& known(std::string_view id) { return m_known[full(id)]; }

    Result<std::string> launch(const Call& call, const std::string& name, const std::string& nonce);
    Result<std::string> taken(const std::string& name, const std::string& nonce);
    std::vector<std::string> budget_warning(const JobRequest& request);
    Result<JobRecord> status(std::string_view id, Tries tries);
    Result<JobDetails> ask_details(std::string_view id, Tries tries);
    Result<JobDetails> note(JobRecord record, const std::vector<Task>& tasks);
    Result<std::vector<Task>> tasks_of(const std::string& name, Tries tries);
    bool has_processes(Known& job, const std::vector<Task>& tasks);

    std::shared_ptr<Client> m_client;
    Runs m_runs;
    std::map<std::string, Known> m_known;     // by name
    std::optional<Clock::Monotonic> m_began;  // the first job of this process
};

FollowPace IrisJobs::pace() const {
    if (!m_runs.empty()) return {100ms, 100ms};
    const auto age = m_began ? m_client->clock().monotonic() - *m_began : 0s;
    return {1000ms, age < 10s ? 250ms : age < 60s ? 1000ms : 5000ms};
}

// ---- submission

// Before a job that needs a TPU: whether others will take it away. Without an answer nothing is said.
std::vector<std::string> IrisJobs::budget_warning(const JobRequest& request) {
    if (!request.resources.contains("TPU")) return {};
    const auto state = m_client->ask("GetSchedulerState", Json::object(), Tries::one);
    if (!state || !runs_as_batch(*state, config().user)) return {};
    const std::string& place = config().cluster.empty() ? config().address : config().cluster;
    return {fmt::format("your budget on {} is spent: the job runs as BATCH and is preempted first", place)};
}

Result<Submitted> IrisJobs::submit(const JobRequest& request) {
    GDNCTL_TRY(check_servable(request));
    if (!request.beside.empty()) return m_runs.start(request);
    const std::string name = full(request.submission_id);
    GDNCTL_TRY_ASSIGN(const Json launch_request,
                      launch_json(request, name, request.start_timeout.value_or(config().start_timeout)));
    Call call;
    call.method = "LaunchJob";
    call.first_byte = 60s;
    call.total = 0s;
    std::optional<UnnamedFile> file;
    if (request.working_dir) {
        GDNCTL_TRY_ASSIGN(file, request_file(launch_request, *request.working_dir, m_client->route().stop()));
        call.body_file = file->path();
    } else {
        call.body = to_text(launch_request);
    }
    std::vector<std::string> warnings = budget_warning(request);
    GDNCTL_TRY_ASSIGN(const std::string given, launch(call, name, nonce_of(request.metadata)));
    Known& job = known(given);
    job.ran = true;
    job.details.submission_id = id_of(config().user, given);
    if (!m_began) m_began = m_client->clock().monotonic();
    return Submitted{job.details.submission_id, std::move(warnings)};
}

// Sends the same job until there is an answer. The controller takes a name only once, so that is one job. Returns its
// name, in which the controller may have put another user.
Result<std::string> IrisJobs::launch(const Call& call, const std::string& name, const std::string& nonce) {
    RetryPolicy policy = retry_policy();
    policy.total = k_submit_patience;
    Patience patience = m_client->route().patience(policy);
    const auto in_doubt = [&](Error error) {
        error.hint = "check whether the job was accepted: `gdnctl job wait " + id_of(config().user, name) + "`";
        return tl::unexpected(std::move(error));
    };
    for (;;) {
        auto answer = m_client->send(call, Tries::one);
        if (answer && answer->status == 409) return taken(name, nonce);
        if (answer && !is_passing(*answer)) {
            auto body = m_client->read(call, *answer);
            if (!body && body.error().message.find("unschedulable") != std::string::npos) {
                const std::string& place = config().cluster;
                body.error().hint = fmt::format("`gdnctl cluster {}` shows what it offers",
                                                place.empty() ? "list" : "check " + text::shell_quote(place));
            }
            if (!body) return tl::unexpected(std::move(body).error());
            const std::string given = json::text(*body, "jobId");
            return given.empty() ? name : given;
        }
        if (!answer && !is_out_of_reach(answer.error())) return in_doubt(std::move(answer).error());
        Error error = answer ? m_client->refuse(call, *answer) : std::move(answer).error();
        if (m_client->route().wait(patience, error)) continue;
        return in_doubt(patience.stopped() ? stopped_error() : std::move(error));
    }
}

// The name is taken: by us, if an earlier attempt got through, even one that libcurl made for itself.
Result<std::string> IrisJobs::taken(const std::string& name, const std::string& nonce) {
    GDNCTL_TRY_ASSIGN(const JobRecord job, status(name, Tries::patient));
    if (!nonce.empty() && nonce_of(job.details.metadata) == nonce) return name;
    return fail(ErrorKind::usage, job_message::already_exists(id_of(config().user, name)));
}

// ---- looking at jobs

// GetJobStatus. A job that was seen before gets a second look before it counts as lost.
Result<JobRecord> IrisJobs::status(std::string_view id, Tries tries) {
    const std::string name = full(id);
    const Json request{{"jobId", name}};
    auto answer = m_client->ask("GetJobStatus", request, tries);
    const auto missing = [&] { return !answer && answer.error().kind == ErrorKind::remote_missing; };
    if (missing() && m_known.contains(name)) {
        if (!m_client->clock().sleep_for(k_second_look, m_client->route().stop())) {
            return tl::unexpected(stopped_error());
        }
        answer = m_client->ask("GetJobStatus", request, tries);
    }
    if (missing()) {
        return fail(ErrorKind::remote_missing, job_message::does_not_exist(id), "`gdnctl job list` shows the jobs");
    }
    if (!answer) return tl::unexpected(std::move(answer).error());
    auto job = parse_status(*answer, config().user);
    if (job) return std::move(*job);
    return fail(ErrorKind::infrastructure, fmt::format("{} returned no job for GetJobStatus", config().address));
}

Result<std::vector<Task>> IrisJobs::tasks_of(const std::string& name, Tries tries) {
    GDNCTL_TRY_ASSIGN(const Json answer, m_client->ask("ListTasks", Json{{"jobId", name}}, tries));
    return parse_tasks(answer);
}

Result<JobDetails> IrisJobs::ask_details(std::string_view id, Tries tries) {
    GDNCTL_TRY_ASSIGN(JobRecord job, status(id, tries));
    std::vector<Task> tasks;
    if (job.details.state != JobState::pending) {
        GDNCTL_TRY_ASSIGN(tasks, tasks_of(job.name, tries));
    }
    judge(job, tasks);
    if (job.details.state == JobState::failed) {
        const auto failed = std::find_if(tasks.begin(), tasks.end(), [](const Task& t) { return t.state == "FAILED"; });
        if (failed != tasks.end()) {
            GDNCTL_TRY_ASSIGN(const Json task, m_client->ask("GetTaskStatus", Json{{"taskId", failed->id}}, tries));
            job.details.root_cause = json::texts(task, "rootCauseHighlights");
        }
    }
    return note(std::move(job), tasks);
}

// A stopped job has ended for the controller at once, and for us when its processes are gone.
bool IrisJobs::has_processes(Known& job, const std::vector<Task>& tasks) {
    if (!job.stopped) return false;
    const bool over = m_client->clock().monotonic() - *job.stopped > k_end_of_processes ||
                      std::all_of(tasks.begin(), tasks.end(), [](const Task& t) { return t.finished; });
    if (over) job.stopped.reset();
    return !over;
}

Result<JobDetails> IrisJobs::note(JobRecord record, const std::vector<Task>& tasks) {
    if (!m_began) m_began = m_client->clock().monotonic();
    Known& job = known(record.name);
    if (!record.cluster.empty() && job.facts->cluster != record.cluster) {
        log::info("runs on cluster {}", text::visible(record.cluster));
    }
    job.facts->cluster = record.cluster;
    JobDetails& now = record.details;
    if (is_terminal(now.state) && has_processes(job, tasks)) {
        now.state = JobState::running;
        now.message = job_message::k_running;
        now.end_time.reset();
    }
    if (!is_terminal(now.state)) {
        job.ran = true;
    } else if (!job.facts->ended) {
        // The controller's clock counts only for jobs whose end was not seen.
        const auto since = now.end_time ? m_client->clock().wall() - *now.end_time : 0ms;
        const auto age = job.ran ? 0ms : std::clamp<std::chrono::milliseconds>(since, 0ms, k_late_lines);
        job.facts->ended = m_client->clock().monotonic() - age;
    }
    job.details = now;
    return now;
}

// One request while nothing changes: the state alone, or, as long as the job waits, why it does.
Result<JobDetails> IrisJobs::poll(std::string_view id) {
    if (m_runs.knows(id)) return m_runs.details(id);
    const auto it = m_known.find(full(id));
    if (it == m_known.end() || it->second.details.state == JobState::pending || it->second.stopped) {
        return ask_details(id, Tries::one);
    }
    const Json request{{"jobIds", Json::array({it->first})}};
    GDNCTL_TRY_ASSIGN(const Json answer, m_client->ask("GetJobState", request, Tries::one));
    const auto wire = parse_state(answer, it->first);
    std::string other;
    const bool same = wire && parse_wire_state(*wire, other) == it->second.details.state;
    if (same && other == it->second.details.other_state) return it->second.details;
    return ask_details(id, Tries::one);
}

Result<std::vector<JobDetails>> IrisJobs::list(const JobFilter& filter) {
    Json query;
    query["scope"] = "JOB_QUERY_SCOPE_ROOTS";
    if (!filter.user.empty()) query["jobIdPrefix"] = "/" + filter.user + "/";
    if (!filter.name_part.empty()) query["nameFilter"] = filter.name_part;
    query["sortField"] = "JOB_SORT_FIELD_DATE";
    query["sortDirection"] = "SORT_DIRECTION_DESC";
    query["limit"] = filter.limit > 0 ? std::min(filter.limit, k_most_jobs) : k_most_jobs;
    GDNCTL_TRY_ASSIGN(const Json answer, m_client->ask("ListJobs", Json{{"query", query}}, Tries::patient));
    std::vector<JobDetails> jobs;
    for (JobRecord& item : parse_list(answer, config().user)) {
        // What a hold is about is in its request, which the list does not have.
        if (is_holder(item.name) && !is_terminal(item.details.state)) {
            auto whole = status(item.name, Tries::patient);
            if (!whole && whole.error().kind == ErrorKind::remote_missing) continue;
            if (!whole) return tl::unexpected(std::move(whole).error());
            item = std::move(*whole);
        } else {
            judge(item, {});
        }
        jobs.push_back(std::move(item.details));
    }
    sort_newest_first(jobs);
    return jobs;
}

Result<std::unique_ptr<JobLog>> IrisJobs::open_log(std::string_view id, const LogStart& start) {
    if (m_runs.knows(id)) return m_runs.open_log(id);
    const std::string name = full(id);
    if (!m_known.contains(name) || m_known[name].details.job_id.empty()) GDNCTL_TRY(ask_details(id, Tries::patient));
    return make_log(m_client, name, m_known[name].facts, start);
}

// ---- ends

// A holder is completed: that is the end it is meant to have.
Result<bool> IrisJobs::stop(std::string_view id) {
    if (m_runs.knows(id)) return m_runs.stop(id);
    GDNCTL_TRY_ASSIGN(const JobRecord job, status(id, Tries::patient));
    if (is_terminal(job.details.state)) return false;
    const char* method = is_holder(job.name) ? "CompleteJob" : "TerminateJob";
    GDNCTL_TRY(m_client->ask(method, Json{{"jobId", job.name}}, Tries::patient));
    known(job.name).stopped = m_client->clock().monotonic();
    return true;
}

Result<std::vector<StoredOutput>> IrisJobs::outputs(std::string_view id) {
    std::vector<StoredOutput> found;
    if (m_runs.knows(id)) return found;
    std::vector<std::string> names = {full(id)};
    const Json query{{"scope", "JOB_QUERY_SCOPE_CHILDREN"}, {"parentJobId", names.front()}};
    GDNCTL_TRY_ASSIGN(const Json children, m_client->ask("ListJobs", Json{{"query", query}}, Tries::patient));
    for (const JobRecord& child : parse_list(children, config().user)) names.push_back(child.name);
    for (const std::string& name : names) {
        GDNCTL_TRY_ASSIGN(std::vector<Task> tasks, tasks_of(name, Tries::patient));
        for (Task& task : tasks) {
            if (task.output) found.push_back(std::move(*task.output));
        }
    }
    return found;
}

}  // namespace

}  // namespace gdnctl::iris

namespace gdnctl {

Result<std::string> preview_launch(const JobRequest& request, const std::string& user) {
    GDNCTL_TRY(iris::check_servable(request));
    GDNCTL_TRY(iris::export_lines(request.env));
    JobRequest masked = request;
    for (JobEnv& item : masked.env) item.value = "***";
    const IrisJobsConfig usual;
    GDNCTL_TRY_ASSIGN(const Json launch,
                      iris::launch_json(masked, iris::name_of(user, request.submission_id), usual.start_timeout));
    return to_text(launch);
}

std::unique_ptr<JobBackend> make_iris_jobs(IrisJobsConfig config) {
    return std::make_unique<iris::IrisJobs>(std::move(config));
}

}  // namespace gdnctl
