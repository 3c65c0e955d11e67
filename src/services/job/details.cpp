#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "core/text.h"
#include "services/job/job.h"

namespace gdnctl {

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
