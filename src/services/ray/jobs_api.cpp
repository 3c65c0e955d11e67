#include "services/ray/jobs_api.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "core/json.h"
#include "core/redact.h"
#include "core/text.h"
#include "services/job/route_client.h"
#include "services/ray/ray_jobs.h"

namespace gdnctl::ray {

namespace {

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace

Result<ServerVersion> parse_version(std::string_view body) {
    const auto json = parse_json(body, "version");
    const auto wrong = [&] {
        return fail(ErrorKind::infrastructure,
                    "there is no Ray dashboard at this address: /api/version returns " + gist(body),
                    "check the address; a proxy or a login page may be in between");
    };
    if (!json || !json->is_object()) return wrong();
    ServerVersion version{json::text(*json, "ray_version"), json::text(*json, "session_name")};
    if (version.ray_version.empty() && json::text(*json, "version").empty()) return wrong();
    const auto parts = text::split(version.ray_version, '.');
    if (parts.size() >= 2) {
        const auto number = [](std::string_view s) {
            return static_cast<int>(std::clamp<std::int64_t>(text::parse_int(s).value_or(0), 0, 1'000'000));
        };
        version.major = number(parts[0]);
        version.minor = number(parts[1]);
    }
    return version;
}

Result<bool> parse_flag(std::string_view body, const char* key) {
    const auto json = parse_json(body, "answer");
    if (json && json->is_object()) {
        const auto it = json->find(key);
        if (it != json->end() && it->is_boolean()) return it->get<bool>();
    }
    return fail(ErrorKind::infrastructure, fmt::format("no '{}' in the dashboard's answer: {}", key, gist(body)));
}

const RetryPolicy& retry_policy() {
    static const RetryPolicy policy = [] {
        RetryPolicy ray;
        ray.attempts = 0;
        ray.statuses = {502, 503, 504};
        ray.words_of_500 = {"No available agent", "Failed to get head node agent", "Cannot connect to host",
                            "GetTimeout", "timeout in registering an actor"};
        ray.words_of_500_to_get = {"Server got itself in trouble"};
        return ray;
    }();
    return policy;
}

bool says_already_exists(const HttpResponse& answer) {
    return (answer.status == 500 || answer.status == 400) && contains(answer.body, "already exists");
}

bool says_too_large(const HttpResponse& answer) {
    return answer.status == 413 || (answer.status == 500 && contains(answer.body, "EntityTooLarge"));
}

Error refusal(std::string_view what, const HttpResponse& answer, const std::string& token_hint) {
    const std::string said = fmt::format("{} returned {}: {}", what, answer.status, gist(answer.body));
    const auto error = [&](ErrorKind kind, std::string hint) { return Error{kind, said, std::move(hint), {}}; };
    switch (answer.status) {
        case 400:
        case 413: return error(ErrorKind::usage, "the server does not accept this request: check the options");
        case 405: return error(ErrorKind::usage, "check the address: a proxy may be adding browser headers");
        case 401:
        case 403: return error(ErrorKind::authentication, token_hint);
        case 404:
            if (contains(answer.body, "does not exist")) {
                return {ErrorKind::remote_missing, gist(answer.body), "`gdnctl ray-list` shows the jobs", {}};
            }
            return error(ErrorKind::infrastructure, "check the address: there is no Ray Jobs API at it");
        default: break;
    }
    if (answer.status >= 300 && answer.status < 400) {
        const auto target = answer.header("location");
        return {ErrorKind::infrastructure,
                fmt::format("{} is redirected to {}", what, redact(target.value_or("nowhere"))),
                "use the final address if you trust it",
                {}};
    }
    return error(ErrorKind::infrastructure,
                 answer.status < 300 ? "a proxy or a login page may be in between" : "try again, or look at its log");
}

void ArraySplitter::end_item() {
    if (!m_dropped) m_item(m_text);
    m_text.clear();
    m_dropped = false;
}

void ArraySplitter::feed(std::string_view piece) {
    for (const char c : piece) {
        if (m_depth >= 2) {
            if (!m_dropped) m_text += c;
            if (m_text.size() > k_item_limit) {
                m_text.clear();
                m_dropped = true;
            }
        }
        if (m_in_string) {
            const bool quote = c == '"' && !m_escaped;
            m_escaped = c == '\\' && !m_escaped;
            if (quote) m_in_string = false;
            continue;
        }
        if (c == '"') m_in_string = true;
        if (c == '{' || c == '[') {
            ++m_depth;
            if (m_depth == 2) m_text = c;
        } else if ((c == '}' || c == ']') && m_depth > 0) {
            --m_depth;
            if (m_depth == 1) end_item();
            if (m_depth == 0) m_complete = true;
        }
    }
}

void StringCutter::in_string(char c) {
    constexpr std::size_t k_most = std::size_t{1} << 20;
    if (m_escape == 0) {
        // Never cuts inside an escape or a surrogate pair, so that the rest is still JSON.
        if (m_length >= k_most && !m_high) m_dropping = true;
        if (c == '"') {
            m_in_string = false;
            m_left += c;
            return;
        }
        m_escape = c == '\\' ? 1 : 0;
        if (m_escape == 0) m_high = false;
    } else if (m_escape == 1) {
        m_escape = c == 'u' ? 2 : 0;
        m_unit = 0;
        if (m_escape == 0) m_high = false;
    } else {
        const char lower = static_cast<char>(c | 0x20);
        const bool letter = lower >= 'a' && lower <= 'f';
        m_unit = m_unit << 4 | (static_cast<std::uint32_t>(letter ? lower - 'a' + 10 : c - '0') & 0xF);
        if (++m_escape == 6) {
            m_escape = 0;
            m_high = m_unit >= 0xD800 && m_unit <= 0xDBFF;
        }
    }
    ++m_length;
    if (!m_dropping) m_left += c;
}

const std::string& StringCutter::feed(std::string_view piece) {
    m_left.clear();
    for (const char c : piece) {
        if (m_in_string) {
            in_string(c);
            continue;
        }
        m_left += c;
        if (c != '"') continue;
        m_in_string = true;
        m_dropping = m_high = false;
        m_length = 0;
        m_escape = 0;
    }
    return m_left;
}

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
