#include "services/hub/wandb/wandb.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "core/base64.h"
#include "core/json.h"
#include "core/redact.h"
#include "core/text.h"

namespace gdnctl::wandb {

namespace {

// Only fields that servers of any age know, since an old self-hosted one may reject newer ones.
constexpr std::string_view k_run =
    "query GdnctlRun($entity: String!, $project: String!, $run: String!) { "
    "project(name: $project, entityName: $entity) { run(name: $run) { "
    "name displayName state createdAt summaryMetrics } } }";
constexpr std::string_view k_run_with_window =
    "query GdnctlRun($entity: String!, $project: String!, $run: String!, $specs: [JSONString!]!) { "
    "project(name: $project, entityName: $entity) { run(name: $run) { "
    "name displayName state createdAt summaryMetrics sampledHistory(specs: $specs) } } }";
constexpr std::string_view k_runs =
    "query GdnctlRuns($entity: String!, $project: String!, $filters: JSONString, $order: String, $count: Int) { "
    "project(name: $project, entityName: $entity) { runs(filters: $filters, order: $order, first: $count) { "
    "edges { node { name displayName state createdAt } } } } }";

constexpr std::size_t k_longest_complaint = 300;

// Escapes metacharacters such that every database's regular expressions take them literally.
std::string escaped(std::string_view literal) {
    std::string out;
    for (const char c : literal) {
        if (std::string_view("\\.^$|()[]{}*+?").find(c) != std::string_view::npos) out += '\\';
        out += c;
    }
    return out;
}

bool is_about_access(const std::string& text) {
    const std::string lower = text::to_lower(text);
    for (const std::string_view word : {"permission", "unauthorized", "not authorized", "forbidden", "access denied"}) {
        if (lower.find(word) != std::string::npos) return true;
    }
    return false;
}

// W&B returns null both for missing objects and for those that this key cannot see.
tl::unexpected<Error> no_such(const std::string& what) {
    return fail(ErrorKind::remote_missing, "W&B has no " + what + ", or this key cannot access it",
                "check --perf-wandb-entity and --perf-wandb-project, and that your key can access them");
}

WandbRun named_run(const Json& node) {
    WandbRun run;
    run.id = json::text(node, "name");
    run.name = json::text(node, "displayName");
    run.state = json::text(node, "state");
    run.created = parse_created(json::text(node, "createdAt"));
    return run;
}

std::optional<double> finite_number(const Json& value) {
    if (!value.is_number()) return std::nullopt;  // W&B writes "NaN" and "Infinity" as strings
    const double number = value.get<double>();
    return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

// One list of rows per key; a row is {"_step": n, "<key>": value}.
void read_window(const Json& rows, const std::string& key, const WandbWindow& window, WandbRun& into) {
    std::map<std::int64_t, double> by_step;
    for (const Json& row : rows) {
        if (!row.is_object()) continue;
        const auto step = json::number(row, "_step");
        const Json* value = json::find(row, key);
        if (!step || value == nullptr) continue;
        const auto at = static_cast<std::int64_t>(*step);
        const auto number = finite_number(*value);
        // The service has changed which bound is inclusive, so drop what is outside.
        if (number && at >= window.first && at <= window.last) by_step[at] = *number;
    }
    for (const auto& [step, number] : by_step) into.window[key].push_back(number);
}

}  // namespace

std::string question(std::string_view query, const Json& variables) {
    Json body;
    body["query"] = query;
    body["variables"] = variables;
    return to_text(body);
}

Result<Json> data_in(std::string_view body) {
    const auto answer = parse_json(body, "answer");
    if (!answer || !answer->is_object()) {
        return fail(ErrorKind::infrastructure, "not an answer from a W&B server: " + complaint(body),
                    "check WANDB_BASE_URL; a proxy or a login page may be in between");
    }
    const auto errors = answer->find("errors");
    if (errors != answer->end() && errors->is_array() && !errors->empty()) {
        const std::string text = complaint(body);
        const bool access = is_about_access(text);
        return fail(access ? ErrorKind::authentication : ErrorKind::infrastructure, "W&B answers: " + text,
                    access ? "use a key that can access the project" : "");
    }
    const auto data = answer->find("data");
    if (data == answer->end() || !data->is_object()) {
        return fail(ErrorKind::infrastructure, "not an answer from a W&B server: " + complaint(body),
                    "check WANDB_BASE_URL");
    }
    return *data;
}

std::string run_question(const WandbPath& path, const WandbWindow& window) {
    // The server thins out rows if there are more than `samples`, so ask for more than can exist.
    constexpr std::int64_t k_room = 100;
    Json specs = Json::array();
    for (const std::string& key : window.keys) {
        // A row is only returned if it has all keys of its list, so use one list per key.
        Json spec;
        spec["keys"] = std::vector<std::string>{"_step", key};
        spec["minStep"] = window.first;
        spec["maxStep"] = window.last + 1;
        spec["samples"] = window.last - window.first + k_room;
        specs.push_back(to_text(spec));
    }
    Json variables;
    variables["entity"] = path.entity;
    variables["project"] = path.project;
    variables["run"] = path.run;
    if (specs.empty()) return question(k_run, variables);
    variables["specs"] = std::move(specs);
    return question(k_run_with_window, variables);
}

std::string runs_question(const std::string& entity, const std::string& project, std::string_view in_name, int count) {
    Json variables;
    variables["entity"] = entity;
    variables["project"] = project;
    variables["order"] = "-created_at";
    variables["count"] = count;
    if (!in_name.empty()) {
        Json filters;
        filters["display_name"]["$regex"] = escaped(in_name);
        variables["filters"] = to_text(filters);
    }
    return question(k_runs, variables);
}

Result<WandbRun> parse_run(std::string_view body, const WandbPath& path, const WandbWindow& window) {
    GDNCTL_TRY_ASSIGN(const Json data, data_in(body));
    const std::string project = path.entity + "/" + path.project;
    if (json::object(data, "project") == nullptr) return no_such("project " + project);
    const Json* node = json::object_at(data, "/project/run");
    if (node == nullptr) return no_such("run " + project + "/" + path.run);
    WandbRun run = named_run(*node);
    if (const std::string text = json::text(*node, "summaryMetrics"); !text.empty()) {
        GDNCTL_TRY_ASSIGN(const Json summary, parse_json(text, "the summary of run " + run.id));
        for (const auto& [key, value] : summary.items()) {
            if (const auto number = finite_number(value)) run.summary[key] = *number;
        }
    }
    const auto history = node->find("sampledHistory");
    if (history == node->end() || !history->is_array()) return run;
    for (std::size_t i = 0; i < window.keys.size() && i < history->size(); ++i) {
        read_window((*history)[i], window.keys[i], window, run);
    }
    return run;
}

Result<std::vector<WandbRun>> parse_runs(std::string_view body, const std::string& entity, const std::string& project) {
    GDNCTL_TRY_ASSIGN(const Json data, data_in(body));
    const Json* list = json::object_at(data, "/project/runs");
    if (list == nullptr) return no_such("project " + entity + "/" + project);
    std::vector<WandbRun> runs;
    const auto edges = list->find("edges");
    if (edges == list->end() || !edges->is_array()) return runs;
    for (const Json& edge : *edges) {
        if (!edge.is_object()) continue;
        if (const Json* node = json::object(edge, "node")) runs.push_back(named_run(*node));
    }
    return runs;
}

std::optional<WallTime> parse_created(std::string_view text) {
    constexpr std::size_t k_seconds = std::string_view("2026-03-10T16:53:07").size();
    std::string plain(text.substr(0, k_seconds));
    std::string_view rest = text.substr(plain.size());
    if (rest.starts_with('.')) rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of("0123456789", 1)));
    plain += rest.empty() ? "Z" : rest;
    return parse_iso8601(plain);
}

std::string complaint(std::string_view body) {
    std::string out;
    const auto json = parse_json(body, "answer");
    if (json && json->is_object()) {
        const auto errors = json->find("errors");
        if (errors != json->end() && errors->is_array()) {
            for (const Json& error : *errors) {
                const std::string text = error.is_object()   ? json::text(error, "message")
                                         : error.is_string() ? error.get<std::string>()
                                                             : std::string();
                if (!text.empty()) out += (out.empty() ? "" : "; ") + text;
            }
        }
        if (out.empty()) out = json::text(*json, "error");
        if (out.empty()) out = json::text(*json, "message");
    }
    if (out.empty()) out = text::trim(body.substr(0, k_longest_complaint));
    if (out.empty()) return "nothing";
    for (char& c : out) {
        if (static_cast<unsigned char>(c) < ' ') c = ' ';
    }
    return redact(text::repair_utf8(std::string_view(out).substr(0, k_longest_complaint)));
}

}  // namespace gdnctl::wandb

namespace gdnctl {

namespace {

// "https://wandb.ai/a%20b" -> "a b"; anything that is not an escape stays.
std::string unescaped(std::string_view segment) {
    const auto digit = [](char c) {
        return c >= '0' && c <= '9'   ? c - '0'
               : c >= 'a' && c <= 'f' ? c - 'a' + 10
               : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                      : -1;
    };
    std::string out;
    for (std::size_t i = 0; i < segment.size(); ++i) {
        const bool escape = segment[i] == '%' && i + 2 < segment.size();
        const int high = escape ? digit(segment[i + 1]) : -1, low = escape ? digit(segment[i + 2]) : -1;
        if (high < 0 || low < 0) {
            out += segment[i];
            continue;
        }
        out += static_cast<char>(high * 16 + low);
        i += 2;
    }
    return out;
}

Error refused(const HttpResponse& answer, const WandbAccess& access) {
    const std::string text = wandb::complaint(answer.body);
    if (answer.status == 401) {
        return {ErrorKind::authentication,
                "W&B rejects the key of " + access.key_source,
                "get a new one at " + access.authorize_page(),
                {}};
    }
    if (answer.status == 403) {
        return {ErrorKind::authentication,
                fmt::format("W&B denies the request with the key from {}: {}", access.key_source, text),
                "use a key that can access the project",
                {}};
    }
    return {ErrorKind::infrastructure,
            fmt::format("W&B at {} answered {}: {}", access.url, answer.status, text),
            answer.status >= 500 || answer.status == 429 ? "it may be temporary" : "check WANDB_BASE_URL",
            {}};
}

}  // namespace

std::optional<WandbPath> parse_wandb_url(std::string_view url) {
    const std::size_t scheme = url.find("://");
    if (scheme == std::string_view::npos) return std::nullopt;
    const auto parts = text::split(url.substr(scheme + 3), '/');
    if (parts.size() < 5 || parts[3] != "runs") return std::nullopt;
    WandbPath path{unescaped(parts[1]), unescaped(parts[2]),
                   unescaped(parts[4].substr(0, parts[4].find_first_of("?#"))),
                   fmt::format("{}://{}", text::to_lower(url.substr(0, scheme)), parts[0])};
    if (path.entity.empty() || path.project.empty() || path.run.empty()) return std::nullopt;
    return path;
}

Result<std::string> Wandb::ask(const std::string& body) {
    HttpRequest request;
    request.method = "POST";
    request.url = m_access.url + "/graphql";
    request.headers = {{"Content-Type", "application/json"}, {"Accept", "application/json"}};
    const std::string credentials = to_base64("api:" + m_access.key);
    register_secret(credentials);
    request.secret_headers = {{"Authorization", "Basic " + credentials}};
    request.body = body;
    request.total_timeout = std::chrono::seconds(120);
    // A query changes nothing, so it may be repeated.
    request.retry.attempts = 5;
    request.retry.total = std::chrono::seconds(60);
    request.retry.statuses = {408, 409, 429, 500, 502, 503, 504};
    request.stop = m_stop;
    auto answer = m_http.send(request);
    if (!answer) {
        Error error = std::move(answer).error();
        if (error.kind == ErrorKind::timeout || error.kind == ErrorKind::bad_input)
            error.kind = ErrorKind::infrastructure;
        return tl::unexpected(std::move(error));
    }
    m_date = answer->header("date");
    if (answer->status != 200) return tl::unexpected(refused(*answer, m_access));
    return std::move(answer->body);
}

Result<WandbRun> Wandb::run(const WandbPath& path, const WandbWindow& window) {
    GDNCTL_TRY_ASSIGN(const std::string body, ask(wandb::run_question(path, window)));
    return wandb::parse_run(body, path, window);
}

Result<std::vector<WandbRun>> Wandb::newest_runs(const std::string& entity, const std::string& project,
                                                 std::string_view in_name, int count) {
    GDNCTL_TRY_ASSIGN(const std::string body, ask(wandb::runs_question(entity, project, in_name, count)));
    return wandb::parse_runs(body, entity, project);
}

std::optional<std::chrono::milliseconds> Wandb::clock_difference(WallTime now) const {
    const auto theirs = m_date ? http::parse_http_date(*m_date, now) : std::nullopt;
    return theirs ? std::optional(*theirs - now) : std::nullopt;
}

}  // namespace gdnctl
