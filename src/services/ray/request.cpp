#include "services/ray/request.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "services/ray/ray_jobs.h"

namespace gdnctl::ray {

namespace {

constexpr std::string_view k_dollar = "A0_DOLLAR";
constexpr std::size_t k_entrypoint_limit = 131'071;  // of one argument of /bin/sh -c; 128 KiB with its final NUL

// After expansion, the nodes drop every ${UPPER} that is left.
bool has_dropped_form(std::string_view value) {
    for (std::size_t at = value.find("${"); at != std::string_view::npos; at = value.find("${", at + 1)) {
        std::size_t end = at + 2;
        const auto upper = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; };
        while (end < value.size() && upper(value[end])) ++end;
        if (end > at + 2 && end < value.size() && value[end] == '}') return true;
    }
    return false;
}

std::string with_dollars_named(std::string_view value) {
    std::string out;
    for (const char c : value) {
        if (c == '$') {
            out += fmt::format("${{{}}}", k_dollar);
        } else {
            out += c;
        }
    }
    return out;
}

Json runtime_env_json(const JobRequest& request, const std::string& package_uri,
                      const std::map<std::string, std::string>& env) {
    Json runtime_env = Json::object();
    if (!env.empty()) runtime_env["env_vars"] = env;
    if (!package_uri.empty()) {
        runtime_env["working_dir"] = package_uri;
    } else if (!request.working_dir_uri.empty()) {
        runtime_env["working_dir"] = request.working_dir_uri;
    }
    if (!request.pip.empty()) runtime_env["pip"] = Json{{"packages", request.pip}, {"pip_check", false}};
    return runtime_env;
}

// Ray's own resource names have separate fields; all others go into one field.
void put_resources(Json& body, const std::map<std::string, double>& resources) {
    Json others = Json::object();
    const auto number = [](double amount) {
        return amount == std::floor(amount) && amount < 1e15 ? Json(static_cast<std::int64_t>(amount)) : Json(amount);
    };
    for (const auto& [name, amount] : resources) {
        if (!(amount > 0)) continue;
        if (name == "CPU") {
            body["entrypoint_num_cpus"] = number(amount);
        } else if (name == "GPU") {
            body["entrypoint_num_gpus"] = number(amount);
        } else if (name == "memory") {
            body["entrypoint_memory"] = static_cast<std::int64_t>(std::min(amount, 9e18));
        } else {
            others[name] = number(amount);
        }
    }
    if (!others.empty()) body["entrypoint_resources"] = std::move(others);
}

}  // namespace

Result<std::map<std::string, std::string>> escape_environment(const std::vector<JobEnv>& env) {
    std::map<std::string, std::string> out;
    for (const JobEnv& item : env) out[item.name] = item.value;
    bool needed = false;
    for (auto& [name, value] : out) {
        if (!text::is_valid_utf8(value) || value.find('\0') != std::string::npos) {
            return fail(ErrorKind::usage, "the value of " + name + " is not UTF-8 text and cannot be sent to a job",
                        "put it into a file in the working directory");
        }
        if (value.find('$') == std::string::npos) continue;
        if (has_dropped_form(value)) {
            return fail(ErrorKind::usage, "the value of " + name + " contains ${NAME}, which the nodes would remove",
                        "put it into a file in the working directory");
        }
        if (name <= k_dollar) {
            return fail(ErrorKind::usage,
                        fmt::format("the value of {} contains a '$', and its name sorts before {}", name, k_dollar),
                        "rename the variable, or put the value into a file");
        }
        value = with_dollars_named(value);
        needed = true;
    }
    if (needed && !out.emplace(k_dollar, "$").second) {
        return fail(ErrorKind::usage,
                    fmt::format("{} cannot be set: gdnctl uses it for '$' in other values", k_dollar));
    }
    return out;
}

Result<std::string> submission_body(const JobRequest& request, const std::string& package_uri,
                                    const ServerVersion& server) {
    if (request.entrypoint.size() > k_entrypoint_limit) {
        return fail(ErrorKind::usage,
                    fmt::format("the job's command has {} bytes; a node's shell accepts at most {}",
                                request.entrypoint.size(), k_entrypoint_limit),
                    "put it into a script in the working directory");
    }
    if (!text::is_valid_utf8(request.entrypoint)) {
        return fail(ErrorKind::usage, "the job's command is not UTF-8 text",
                    "put it into a script in the working directory");
    }
    GDNCTL_TRY_ASSIGN(const auto env, escape_environment(request.env));
    Json body;
    body["entrypoint"] = request.entrypoint;
    body["submission_id"] = request.submission_id;
    Json runtime_env = runtime_env_json(request, package_uri, env);
    if (!runtime_env.empty()) body["runtime_env"] = std::move(runtime_env);
    if (!request.metadata.empty()) body["metadata"] = request.metadata;
    put_resources(body, request.resources);
    if (!request.node_labels.empty()) {
        if (!server.at_least(2, 54)) {
            return fail(ErrorKind::usage, fmt::format("Ray {} cannot select nodes by label", server.ray_version),
                        "node labels need Ray 2.54 or newer");
        }
        body["entrypoint_label_selector"] = request.node_labels;
    }
    return to_text(body);
}

}  // namespace gdnctl::ray

namespace gdnctl {

Result<std::string> preview_submission(const JobRequest& request, const std::string& package_uri) {
    GDNCTL_TRY(ray::escape_environment(request.env));
    JobRequest masked = request;
    for (JobEnv& item : masked.env) item.value = "***";
    ray::ServerVersion newest;
    newest.major = 1'000'000;
    return ray::submission_body(masked, package_uri, newest);
}

}  // namespace gdnctl
