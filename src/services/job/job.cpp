#include "services/job/job.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "core/json.h"
#include "core/redact.h"
#include "core/text.h"

namespace gdnctl {

namespace {

struct StateName {
    JobState state;
    std::string_view name;
};
constexpr std::array<StateName, 5> k_states = {{{JobState::pending, "PENDING"},
                                                {JobState::running, "RUNNING"},
                                                {JobState::stopped, "STOPPED"},
                                                {JobState::succeeded, "SUCCEEDED"},
                                                {JobState::failed, "FAILED"}}};

// The supervisor failed to start because of the request, not because of the cluster.
constexpr std::array<std::string_view, 4> k_request_faults = {"not a supported chip configuration", "runtime_env['",
                                                              "is not a valid path",
                                                              "files are supported for working_dir"};

constexpr std::array<std::string_view, 1> k_stop_met_the_end = {"psutil.NoSuchProcess"};

// Output of a broken accelerator node.
constexpr std::array<std::string_view, 4> k_bad_node = {"No accelerator found", "Device or resource busy",
                                                        "FAILED_PRECONDITION",
                                                        "The TPU is already in use by another process"};

constexpr JobVerdict k_user = {FailureClass::user, ExitCode::check_failed};
constexpr JobVerdict k_infra = {FailureClass::infra, ExitCode::infrastructure};

bool contains_any(std::string_view text, std::span<const std::string_view> needles) {
    return std::any_of(needles.begin(), needles.end(),
                       [&](std::string_view n) { return text.find(n) != std::string_view::npos; });
}

JobVerdict classify_failed(const JobDetails& job) {
    const std::string_view type = job.error_type ? std::string_view(*job.error_type) : std::string_view();
    using namespace job_error;
    // If a stop arrives just after the command has ended, Ray's supervisor looks for a process that no longer exists.
    // It only does so when asked to stop.
    if (type == k_command_start_error && contains_any(job.message, k_stop_met_the_end)) {
        return {FailureClass::stopped, ExitCode::nothing_done};
    }
    if (type == k_command_error || type == k_command_start_error || type == k_runtime_env) return k_user;
    if (type == k_time_limit) return {FailureClass::timeout, ExitCode::timeout};
    if (type == k_start_failure && contains_any(job.message, k_request_faults)) {
        return {FailureClass::user, ExitCode::usage};
    }
    constexpr std::array<std::string_view, 6> infra = {k_start_timeout, k_start_failure, k_unschedulable,
                                                       k_died,          k_unknown,       k_driver_infra};
    if (std::find(infra.begin(), infra.end(), type) != infra.end()) return k_infra;
    if (job.driver_exit_code) return k_user;
    return job.message.starts_with("Job supervisor actor ") ? k_infra : k_user;
}

// A float in Python's notation: 900.0, 0.5.
std::string python_float(double value) {
    std::string s = fmt::format("{}", value);
    if (s.find_first_of(".en") == std::string::npos) s += ".0";
    return s;
}

}  // namespace

std::string_view to_text(JobState state) {
    for (const StateName& s : k_states) {
        if (s.state == state) return s.name;
    }
    return "UNKNOWN";
}

std::string_view status_of(const JobDetails& details) {
    return is_known(details.state) ? to_text(details.state) : std::string_view(details.other_state);
}

std::optional<JobState> parse_job_state(std::string_view text) {
    for (const StateName& s : k_states) {
        if (s.name == text) return s.state;
    }
    return std::nullopt;
}

std::string_view to_text(FailureClass c) {
    switch (c) {
        case FailureClass::none: return "none";
        case FailureClass::user: return "user";
        case FailureClass::infra: return "infra";
        case FailureClass::infra_suspect: return "infra-suspect";
        case FailureClass::auth: return "auth";
        case FailureClass::timeout: return "timeout";
        case FailureClass::stopped: return "stopped";
    }
    return "none";
}

namespace job_message {

std::string pending(bool asked_for_resources, bool has_runtime_env) {
    std::string s = "Job has not started yet.";
    if (asked_for_resources) {
        s += " It may be waiting for resources (CPUs, GPUs, memory, custom resources) to become available.";
    }
    if (has_runtime_env) s += " It may be waiting for the runtime environment to be set up.";
    return s;
}

std::string start_timeout(double seconds) {
    return "Job supervisor actor failed to start within " + python_float(seconds) +
           " seconds. This timeout can be configured by setting the environment variable "
           "RAY_JOB_START_TIMEOUT_SECONDS. This may be because the job entrypoint's specified resources "
           "(entrypoint_num_cpus, entrypoint_num_gpus, entrypoint_resources, entrypoint_memory)aren't available on the "
           "cluster. Try checking the cluster's available resources with `ray status` and specifying fewer resources "
           "for the job entrypoint.";
}

std::string exit_code(int code, std::string_view log) {
    const std::string head = "Job entrypoint command failed with exit code " + std::to_string(code);
    if (log.empty()) return head + ". No logs available.";
    constexpr std::size_t k_limit = 20'000;
    std::string_view tail = text::last_lines(log, 10);
    if (tail.size() > k_limit) tail.remove_prefix(tail.size() - k_limit);
    // The message is stored in the job's record, and the job may have printed a token.
    return head + ", last available logs (truncated to 20,000 chars):\n" + redact(tail);
}

std::string already_exists(std::string_view id) {
    return "Job with submission_id " + std::string(id) + " already exists. Please use a different submission_id.";
}

std::string does_not_exist(std::string_view id) { return "Job " + std::string(id) + " does not exist"; }

}  // namespace job_message

JobVerdict classify(const JobDetails& details, std::string_view last_logs) {
    switch (details.state) {
        case JobState::pending:
        case JobState::running:
        case JobState::unknown:
        case JobState::succeeded: return {};
        case JobState::unknown_end: return {FailureClass::infra, ExitCode::infrastructure};
        case JobState::stopped: return {FailureClass::stopped, ExitCode::nothing_done};
        case JobState::failed: break;
    }
    JobVerdict verdict = classify_failed(details);
    if (verdict.exit == ExitCode::check_failed && contains_any(last_logs, k_bad_node)) {
        verdict.failure = FailureClass::infra_suspect;
    }
    return verdict;
}

std::string make_submission_id(std::string_view kind, std::string_view user, WallTime now, std::uint32_t random) {
    std::string name = "gdnctl-" + std::string(kind) + "-" + std::string(user.substr(0, 32));
    for (char& c : name) {
        const bool safe = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
        if (!safe) c = '_';
    }
    return name + "-" + format_compact_utc(now) + fmt::format("-{:08x}", random);
}

Status check_job_id(std::string_view id) {
    if (!id.empty() && id != "latest") return {};
    return fail(
        ErrorKind::usage, fmt::format("`{}` is not a submission id", id),
        "`last` is the newest job that this machine submitted; `gdnctl ray-list` shows the ids; `ray-wait --match "
        "REGEX` waits for the newest job that matches");
}

Status check_submission_id(std::string_view id) {
    GDNCTL_TRY(check_job_id(id));
    const bool safe = std::all_of(id.begin(), id.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    });
    if (id.size() <= 100 && safe && id.front() != '-') return {};
    return fail(ErrorKind::usage, "not a submission id: '" + std::string(id) + "'",
                "1 to 100 letters, digits, '_' and '-', not starting with '-'");
}

Result<std::map<std::string, double>> tpu_resources(std::string_view type) {
    std::size_t start = type.size();
    while (start > 0 && type[start - 1] >= '0' && type[start - 1] <= '9') --start;
    const auto number = text::parse_int(type.substr(start));
    if (!number || start < 2 || type[start - 1] != '-' || *number < 1) {
        return fail(ErrorKind::usage, "Cannot parse TPU type: " + std::string(type), "such as v5p-8 or v6e-4");
    }
    const std::int64_t chips = type == "v4-8" || type == "v5p-8" ? 4 : *number;
    if (chips > 8)
        return fail(ErrorKind::usage, "Only single tpu nodes are supported with the CLI", "such as v5p-8 or v6e-8");
    return std::map<std::string, double>{{"TPU-" + std::string(type) + "-head", 1.0},
                                         {"TPU", static_cast<double>(chips)}};
}

Result<std::vector<JobEnv>> parse_env_items(const std::vector<std::string>& items, std::string_view option) {
    std::vector<JobEnv> out;
    for (const std::string& item : items) {
        if (text::trim(item).empty()) continue;
        const std::size_t equals = item.find('=');
        const std::string key = item.substr(0, equals);
        const auto word = [](char c) {
            return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        };
        const bool valid = equals != std::string::npos && !key.empty() && !(key[0] >= '0' && key[0] <= '9') &&
                           std::all_of(key.begin(), key.end(), word);
        if (!valid) {
            // The value may be a secret, so only repeat the part before '='.
            return fail(
                ErrorKind::usage,
                std::string(option) + ": expected KEY=VALUE, not '" + key + (equals == std::string::npos ? "'" : "=…'"),
                "KEY is letters, digits and '_', not starting with a digit");
        }
        out.push_back({key, item.substr(equals + 1)});
    }
    return out;
}

void put_job(Json& object, const JobPlace& place, const JobDetails& details, const JobVerdict& verdict) {
    const auto time = [](const std::optional<WallTime>& t) {
        return t ? Json(t->time_since_epoch().count()) : Json(nullptr);
    };
    object["backend"] = place.backend;
    object["cluster"] = place.cluster;
    object["address"] = place.address;
    object["submission_id"] = details.submission_id;
    object["status"] = std::string(status_of(details));
    object["error_type"] = details.error_type ? Json(*details.error_type) : Json(nullptr);
    object["message"] = details.message;
    object["failure_class"] = std::string(to_text(verdict.failure));
    object["driver_exit_code"] = details.driver_exit_code ? Json(*details.driver_exit_code) : Json(nullptr);
    object["start_time"] = time(details.start_time);
    object["end_time"] = time(details.end_time);
    object["url"] = place.url;
}

void put_end(Json& object, const JobDetails& details, const std::vector<StoredOutput>& outputs) {
    object["job_id"] = json::or_null(details.job_id);
    object["attempts"] = details.attempts;
    object["root_cause"] = details.root_cause;
    object["outputs"] = Json::array();
    for (const StoredOutput& one : outputs) {
        Json out;
        out["task"] = json::or_null(one.task);
        out["state"] = to_text(one.state);
        out["uri"] = json::or_null(one.uri);
        out["bytes"] = one.bytes;
        out["sha256"] = json::or_null(one.sha256);
        out["error"] = json::or_null(one.error);
        object["outputs"].push_back(std::move(out));
    }
}

namespace {

void read_environment(const Json& job, JobDetails& into) {
    const Json* runtime_env = json::object(job, "runtime_env");
    if (runtime_env == nullptr) return;
    const Json* env = json::object(*runtime_env, "env_vars");
    if (env == nullptr) return;
    for (const auto& [name, value] : env->items()) into.env_names.push_back(name);
}

Result<JobDetails> read_details(const Json& job) {
    if (!job.is_object()) return fail(ErrorKind::bad_input, "job details: not a JSON object");
    JobDetails d;
    const auto id = json::maybe_text(job, "submission_id");
    const auto status = json::maybe_text(job, "status");
    if (!status) return fail(ErrorKind::bad_input, "job details: no status");
    const auto state = parse_job_state(*status);
    d.submission_id = id ? *id : json::text(job, "job_id");
    d.entrypoint = json::text(job, "entrypoint");
    d.message = json::text(job, "message");
    d.error_type = json::maybe_text(job, "error_type");
    d.start_time = json::time_ms(job, "start_time");
    d.end_time = json::time_ms(job, "end_time");
    d.state = state.value_or(d.end_time ? JobState::unknown_end : JobState::unknown);
    if (!state) d.other_state = *status;
    if (const Json* metadata = json::object(job, "metadata")) {
        for (const auto& [key, value] : metadata->items()) {
            if (value.is_string()) d.metadata.emplace(key, value.get<std::string>());
        }
    }
    read_environment(job, d);
    d.driver_node_id = json::maybe_text(job, "driver_node_id");
    d.driver_agent_http_address = json::maybe_text(job, "driver_agent_http_address");
    if (const Json* info = json::object(job, "driver_info")) {
        if (const auto pid = json::maybe_text(*info, "pid")) d.driver_pid = text::parse_int(*pid);
    }
    if (const auto code = json::integer(job, "driver_exit_code"); code && *code >= -255 && *code <= 255) {
        d.driver_exit_code = static_cast<int>(*code);
    }
    return d;
}

Json time_json(const std::optional<WallTime>& t) { return t ? Json(t->time_since_epoch().count()) : Json(nullptr); }

}  // namespace

Json job_details_json(const JobDetails& d) {
    Json job;
    job["type"] = "SUBMISSION";
    job["job_id"] = nullptr;
    job["submission_id"] = d.submission_id;
    job["driver_info"] = nullptr;
    if (d.driver_pid) {
        job["driver_info"] =
            Json{{"id", d.submission_id}, {"node_ip_address", "127.0.0.1"}, {"pid", std::to_string(*d.driver_pid)}};
    }
    job["status"] = std::string(status_of(d));
    job["entrypoint"] = d.entrypoint;
    job["message"] = d.message;
    job["error_type"] = json::or_null(d.error_type);
    job["start_time"] = time_json(d.start_time);
    job["end_time"] = time_json(d.end_time);
    job["metadata"] = d.metadata;
    job["runtime_env"] = nullptr;
    if (!d.env_names.empty()) {
        Json env = Json::object();
        for (const std::string& name : d.env_names) env[name] = "***";
        job["runtime_env"] = Json{{"env_vars", std::move(env)}};
    }
    job["driver_agent_http_address"] = json::or_null(d.driver_agent_http_address);
    job["driver_node_id"] = json::or_null(d.driver_node_id);
    job["driver_exit_code"] = json::or_null(d.driver_exit_code);
    return job;
}

Result<JobDetails> parse_job_details(std::string_view text) {
    GDNCTL_TRY_ASSIGN(const Json job, parse_json(text, "job details"));
    return read_details(job);
}

bool is_ghost(const JobDetails& job) { return !job.start_time && job.entrypoint == "Entrypoint not found."; }

void sort_newest_first(std::vector<JobDetails>& jobs) {
    std::sort(jobs.begin(), jobs.end(), [](const JobDetails& a, const JobDetails& b) {
        const auto key = [](const JobDetails& d) {
            return std::pair(d.start_time.value_or(WallTime{}), std::string_view(d.submission_id));
        };
        return key(a) > key(b);
    });
}

std::string_view to_text(StoredOutput::State state) {
    switch (state) {
        case StoredOutput::State::uploaded: return "uploaded";
        case StoredOutput::State::failed: return "failed";
        case StoredOutput::State::unavailable: break;
    }
    return "unavailable";
}

void keep_filtered(std::vector<JobDetails>& jobs, const JobFilter& filter) {
    const std::string part = text::to_lower(filter.name_part);
    std::erase_if(jobs, [&](const JobDetails& job) {
        const auto user = job.metadata.find("user");
        const bool other = !filter.user.empty() && (user == job.metadata.end() || user->second != filter.user);
        return other || text::to_lower(job.submission_id).find(part) == std::string::npos;
    });
    if (filter.limit > 0 && jobs.size() > filter.limit) jobs.resize(filter.limit);
}

bool is_packaged(std::string_view path) {
    constexpr std::array<std::string_view, 3> suffixes = {".mov", ".pyc", ".pack"};
    constexpr std::array<std::string_view, 8> folders = {"__pycache__", ".git",  ".mypy_cache",  ".pytest_cache",
                                                         ".ruff_cache", ".venv", "node_modules", "venv"};
    constexpr std::array<std::string_view, 5> within = {"docs/figures", "docs/images", "docs/reports", "docs/static",
                                                        "tests/snapshot"};
    const auto is_below = [&](std::string_view folder) {
        return path == folder || (path.starts_with(folder) && path[folder.size()] == '/');
    };
    if (is_below("docs") || is_below("lib/levanter/docs")) return false;
    for (const std::string_view s : suffixes) {
        if (path.ends_with(s)) return false;
    }
    for (const std::string_view w : within) {
        if (path.find(w) != std::string_view::npos) return false;
    }
    for (const std::string_view part : text::split(path, '/')) {
        if (part.ends_with(".egg-info")) return false;
        if (std::find(folders.begin(), folders.end(), part) != folders.end()) return false;
    }
    return true;
}

}  // namespace gdnctl
