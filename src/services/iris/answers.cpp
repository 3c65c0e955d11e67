#include "services/iris/answers.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "core/redact.h"
#include "core/text.h"
#include "platform/http_policy.h"
#include "services/iris/request.h"
#include "services/job/route_client.h"

namespace gdnctl::iris {

std::int64_t number_of(const Json& object, std::string_view name) {
    if (const auto number = json::integer(object, name)) return *number;
    return text::parse_int(json::text(object, name)).value_or(0);
}

namespace {

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

std::optional<WallTime> time_of(const Json& object, std::string_view name) {
    const Json* time = json::object(object, name);
    const std::int64_t ms = time == nullptr ? 0 : number_of(*time, "epochMs");
    return ms > 0 ? std::optional(WallTime(std::chrono::milliseconds(ms))) : std::nullopt;
}

std::string without_prefix(std::string_view word, std::string_view prefix) {
    if (word.starts_with(prefix)) word.remove_prefix(prefix.size());
    return std::string(word);
}

}  // namespace

std::string name_of(std::string_view user, std::string_view id) {
    return id.starts_with('/') ? std::string(id) : fmt::format("/{}/{}", user, id);
}

std::string id_of(std::string_view user, std::string_view name) {
    const std::string own = fmt::format("/{}/", user);
    return std::string(name.starts_with(own) && name.size() > own.size() ? name.substr(own.size()) : name);
}

// ---- errors

Complaint complaint_of(const HttpResponse& answer) {
    const auto body = parse_json(answer.body, "answer");
    if (!body || !body->is_object()) return {{}, gist(answer.body)};
    std::string message = json::text(*body, "message");
    if (message.empty()) message = json::text(*body, "error");
    if (message.empty()) message = gist(answer.body);
    std::replace(message.begin(), message.end(), '\n', ' ');
    constexpr std::size_t k_longest = 2000;
    if (message.size() > k_longest) message = text::repair_utf8(message.substr(0, k_longest)) + "...";
    return {json::text(*body, "code"), redact(message)};
}

bool is_passing(const HttpResponse& answer) {
    if (answer.status == 429 || (answer.status >= 502 && answer.status <= 504)) return true;
    if (answer.status != 500) return false;
    const Complaint said = complaint_of(answer);
    return said.code != "unknown" && !has(said.message, "Job name");
}

Error refusal(std::string_view what, const HttpResponse& answer, std::string_view base, const std::string& login_hint) {
    const Complaint said = complaint_of(answer);
    const std::string status = fmt::format("{} returned {}: {}", what, answer.status, said.message);
    if (http::is_redirect(answer.status)) {
        return {ErrorKind::authentication, fmt::format("{} asks for a login", base), login_hint, {}};
    }
    const bool of_request = answer.status == 400 || answer.status == 409 || answer.status == 500;
    switch (answer.status) {
        case 200:
            return {ErrorKind::infrastructure,
                    fmt::format("not an Iris controller: {} returned {}", base, said.message),
                    "check the address; a proxy or a login page may be in between",
                    {}};
        case 401:
        case 403:
            if (answer.body.starts_with('{')) return {ErrorKind::authentication, said.message, login_hint, {}};
            return {ErrorKind::authentication,
                    fmt::format("{} refused the login (status {}): {}", base, answer.status, said.message),
                    login_hint,
                    {}};
        case 404:
            if (said.code == "not_found") return {ErrorKind::remote_missing, said.message, {}, {}};
            [[fallthrough]];
        case 405:
        case 415:
            return {
                ErrorKind::usage, status, "check the address: there is no Iris controller of this version at it", {}};
        default: break;
    }
    if (of_request && !is_passing(answer)) return {ErrorKind::usage, said.message, {}, {}};
    return {ErrorKind::infrastructure, status, "try again, or look at the controller's log", {}};
}

// ---- jobs and tasks

namespace {

std::optional<StoredOutput> output_of(const Json& attempt, const std::string& task) {
    const Json* archive = json::object(attempt, "outputArchive");
    if (archive == nullptr) return std::nullopt;
    const std::string state = without_prefix(json::text(*archive, "state"), "TASK_OUTPUT_ARCHIVE_STATE_");
    StoredOutput out;
    if (state == "UPLOADED") {
        out.state = StoredOutput::State::uploaded;
    } else if (state == "FAILED") {
        out.state = StoredOutput::State::failed;
    } else if (state == "UNAVAILABLE") {
        out.state = StoredOutput::State::unavailable;
    } else {
        return std::nullopt;
    }
    out.task = task;
    out.uri = json::text(*archive, "uri");
    out.bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(number_of(*archive, "sizeBytes"), 0));
    out.sha256 = json::text(*archive, "sha256");
    out.error = json::text(*archive, "error");
    return out;
}

Task task_of(const Json& item) {
    Task task;
    task.id = json::text(item, "taskId");
    task.state = without_prefix(json::text(item, "state"), "TASK_STATE_");
    task.error = json::text(item, "error");
    task.worker = json::text(item, "workerId");
    task.exit_code = number_of(item, "exitCode");
    const auto current = json::integer(item, "currentAttemptId");
    task.attempts = current ? *current + 1 : 0;
    // A task without a machine has no processes.
    task.finished = time_of(item, "finishedAt").has_value() || task.attempts <= 0;
    const Json* attempts = json::array(item, "attempts");
    if (attempts == nullptr || attempts->empty() || task.attempts <= 0) return task;
    const Json& last = attempts->back();
    task.worker_failure = json::boolean(last, "isWorkerFailure").value_or(false);
    if (const std::string reason = json::text(last, "terminalReason"); !reason.empty()) task.error = reason;
    task.output = output_of(last, task.id);
    return task;
}

void read_request(const Json& request, JobRecord& job) {
    if (!request.is_object()) return;
    const auto argv = json::texts_at(request, "/entrypoint/runCommand/argv");
    JobDetails& details = job.details;
    details.entrypoint = argv.size() == 3 ? argv[2] : text::shell_join(argv);
    if (details.entrypoint.starts_with(k_prologue)) details.entrypoint.erase(0, k_prologue.size());
    job.memory_bytes = json::text(json::field(request, "resources"), "memoryBytes");
    const Json* env = json::object_at(request, "/environment/envVars");
    if (env == nullptr) return;
    for (const auto& [name, value] : env->items()) {
        if (!name.starts_with(k_metadata_prefix)) {
            details.env_names.push_back(name);
            continue;
        }
        // The controller hides long values of mixed characters, such as hashes.
        if (!value.is_string() || value.get<std::string>() == "[REDACTED]") continue;
        details.metadata[text::to_lower(name.substr(k_metadata_prefix.size()))] = value.get<std::string>();
    }
}

// "gdnctl-test-alice-20261125T031358-48b1f032": the kind, if the name is one of ours.
std::string kind_of(std::string_view name) {
    const std::string_view id = name.substr(name.rfind('/') + 1);
    constexpr std::string_view k_ours = "gdnctl-";
    if (!id.starts_with(k_ours)) return {};
    const std::string_view rest = id.substr(k_ours.size());
    const std::size_t end = rest.find('-');
    return end == std::string_view::npos ? std::string() : std::string(rest.substr(0, end));
}

// "Job has not started yet." with ": reason" in place of the period.
std::string with_reason(std::string_view message, const std::string& reason) {
    if (reason.empty()) return std::string(message);
    if (message.ends_with('.')) message.remove_suffix(1);
    return fmt::format("{}: {}", message, reason);
}

std::string message_of(const JobRecord& job) {
    switch (job.details.state) {
        case JobState::pending: return with_reason("Job has not started yet.", job.error);
        case JobState::running: return std::string(job_message::k_running);
        case JobState::stopped: return with_reason(job_message::k_stopped, job.error);
        case JobState::succeeded: return std::string(job_message::k_succeeded);
        default: return with_reason("Job failed", job.error);
    }
}

}  // namespace

std::vector<Task> parse_tasks(const Json& answer) {
    std::vector<Task> tasks;
    const Json* list = json::array(answer, "tasks");
    if (list == nullptr) return tasks;
    for (const Json& item : *list) {
        if (item.is_object()) tasks.push_back(task_of(item));
    }
    return tasks;
}

JobState parse_wire_state(std::string_view wire, std::string& other) {
    using Known = std::pair<std::string_view, JobState>;
    constexpr std::array<Known, 8> k_known = {{{"PENDING", JobState::pending},
                                               {"BUILDING", JobState::running},
                                               {"RUNNING", JobState::running},
                                               {"SUCCEEDED", JobState::succeeded},
                                               {"FAILED", JobState::failed},
                                               {"KILLED", JobState::stopped},
                                               {"WORKER_FAILED", JobState::failed},
                                               {"UNSCHEDULABLE", JobState::failed}}};
    const std::string word = without_prefix(wire, "JOB_STATE_");
    for (const auto& [name, state] : k_known) {
        if (name == word) return state;
    }
    other = word;
    return JobState::running;
}

std::optional<JobRecord> parse_job(const Json& job, const Json& request, std::string_view user) {
    JobRecord record;
    record.name = json::text(job, "jobId");
    const std::string wire = json::text(job, "state");
    if (record.name.empty() || wire.empty()) return std::nullopt;
    JobDetails& details = record.details;
    details.state = parse_wire_state(wire, details.other_state);
    details.submission_id = id_of(user, record.name);
    details.job_id = record.name;
    details.start_time = time_of(job, "submittedAt");
    details.end_time = time_of(job, "finishedAt");
    const std::string cluster = json::text(job, "cluster");
    record.cluster = cluster == "local" ? std::string() : cluster;
    record.error = json::text(job, details.state == JobState::pending ? "pendingReason" : "error");
    if (wire.ends_with("WORKER_FAILED")) details.error_type = job_error::k_died;
    if (wire.ends_with("UNSCHEDULABLE")) details.error_type = job_error::k_start_timeout;
    record.rejected = json::text(job, "peerStatus") == "PEER_STATUS_REJECTED";
    if (record.rejected) {
        details.state = JobState::failed;
        details.error_type = job_error::k_unschedulable;
    }
    if (const std::string kind = kind_of(record.name); !kind.empty()) details.metadata["kind"] = kind;
    read_request(request, record);
    const std::size_t end = record.name.find('/', 1);
    if (end != std::string::npos) details.metadata["user"] = record.name.substr(1, end - 1);
    details.message = message_of(record);
    return record;
}

std::optional<JobRecord> parse_status(const Json& answer, std::string_view user) {
    return parse_job(json::field(answer, "job"), json::field(answer, "request"), user);
}

std::vector<JobRecord> parse_list(const Json& answer, std::string_view user) {
    std::vector<JobRecord> jobs;
    const Json* list = json::array(answer, "jobs");
    if (list == nullptr) return jobs;
    for (const Json& item : *list) {
        if (auto job = parse_job(item, Json(), user)) jobs.push_back(std::move(*job));
    }
    return jobs;
}

namespace {

// What a job failed of that has no error type of its own, from the texts of its task.
std::optional<std::string_view> failure_type(std::string_view error) {
    using Cause = std::pair<std::string_view, std::string_view>;
    constexpr std::array<Cause, 7> k_causes = {{{"FileNotFoundError", job_error::k_command_start_error},
                                                {"Exit code", job_error::k_command_error},
                                                {"Build failed with exit_code", job_error::k_runtime_env},
                                                {"BadZipFile", job_error::k_runtime_env},
                                                {"Failed to fetch ", job_error::k_start_failure},
                                                {"Execution timeout exceeded", job_error::k_time_limit},
                                                {"TPU init failure", job_error::k_died}}};
    for (const auto& [words, type] : k_causes) {
        if (has(error, words)) return type;
    }
    return std::nullopt;
}

// The one that decided: the first that failed by itself, else the first that did not succeed.
const Task* decisive(const std::vector<Task>& tasks) {
    const auto in = [&](auto wanted) {
        const auto it = std::find_if(tasks.begin(), tasks.end(), wanted);
        return it == tasks.end() ? nullptr : &*it;
    };
    if (const Task* failed = in([](const Task& t) { return t.state == "FAILED"; })) return failed;
    if (const Task* lost = in([](const Task& t) { return t.state == "WORKER_FAILED"; })) return lost;
    return in([](const Task& t) { return t.state != "SUCCEEDED"; });
}

}  // namespace

void judge(JobRecord& job, const std::vector<Task>& tasks) {
    JobDetails& details = job.details;
    for (const Task& task : tasks) details.attempts = std::max(details.attempts, task.attempts);
    if (!tasks.empty() && !tasks.front().worker.empty()) details.driver_node_id = tasks.front().worker;
    if (details.state != JobState::failed || job.rejected) return;
    const Task* task = decisive(tasks);
    const std::string_view error = task != nullptr && !task->error.empty() ? task->error : job.error;
    const bool ran = task != nullptr && (task->state == "FAILED" || task->state == "WORKER_FAILED");
    if (ran && has(error, "Exit code")) {
        details.driver_exit_code = static_cast<int>(std::clamp<std::int64_t>(task->exit_code, -255, 255));
    }
    if (details.error_type) return;
    if (task != nullptr && task->worker_failure) {
        details.error_type = job_error::k_died;
    } else if (const auto type = failure_type(error)) {
        details.error_type = *type;
    }
    if (details.error_type == job_error::k_command_error && details.driver_exit_code) {
        details.message =
            fmt::format("Job entrypoint command failed with exit code {}: {}", *details.driver_exit_code, error);
        if (has(error, "OOM"))
            details.message += fmt::format(" (the job asked for {} bytes of memory)", job.memory_bytes);
    }
}

std::optional<std::string> parse_state(const Json& answer, std::string_view name) {
    const Json* states = json::object(answer, "states");
    return states == nullptr ? std::nullopt : json::maybe_text(*states, name);
}

// ---- others

ExecAnswer parse_exec(const Json& answer) {
    return {number_of(answer, "exitCode"), json::text(answer, "stdout"), json::text(answer, "stderr"),
            json::text(answer, "error")};
}

LogPage parse_log_page(Json&& answer) {
    LogPage page;
    const std::int64_t cursor = number_of(answer, "cursor");
    if (cursor > 0) page.cursor = std::to_string(cursor);
    const Json* entries = json::array(answer, "entries");
    if (entries == nullptr) return page;
    page.lines.reserve(entries->size());
    for (const Json& entry : *entries) {
        if (!entry.is_object()) continue;
        page.lines.push_back({json::text(entry, "data"), number_of(entry, "attemptId")});
    }
    return page;
}

bool runs_as_batch(const Json& answer, std::string_view user) {
    const Json* budgets = json::array(answer, "userBudgets");
    if (budgets == nullptr) return false;
    return std::any_of(budgets->begin(), budgets->end(), [&](const Json& one) {
        return json::text(one, "userId") == user && json::text(one, "effectiveBand") == "PRIORITY_BAND_BATCH";
    });
}

}  // namespace gdnctl::iris
