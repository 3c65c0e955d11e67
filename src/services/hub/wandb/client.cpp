#include <fmt/format.h>

#include "core/redact.h"
#include "core/text.h"
#include "services/hub/wandb/query.h"
#include "services/hub/wandb/wandb.h"

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
    const std::string credentials = wandb::base64("api:" + m_access.key);
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
