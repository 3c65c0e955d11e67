#include "services/iris/client.h"

#include <fmt/format.h>

#include "core/text.h"
#include "platform/http_policy.h"
#include "platform/signals.h"
#include "services/iris/answers.h"

namespace gdnctl::iris {

const RetryPolicy& retry_policy() {
    static const RetryPolicy policy = [] {
        RetryPolicy iris;
        iris.attempts = 0;
        return iris;
    }();
    return policy;
}

namespace {

std::string path_of(std::string_view method) {
    const std::string_view service = method == "FetchLogs" ? "/proxy/system.log-server/finelog.logging.LogService/"
                                                           : "/iris.cluster.ControllerService/";
    return std::string(service) + std::string(method);
}

}  // namespace

Client::Client(IrisJobsConfig config)
    : m_config(std::move(config)),
      m_route({m_config.route, m_config.http, m_config.clock, m_config.stop, m_config.one_shot}) {}

Result<HttpResponse> Client::send_once(const Call& call, bool& login) {
    HttpRequest request;
    request.method = "POST";
    request.url = path_of(call.method);
    request.headers.emplace_back("Content-Type", "application/json");
    request.body = call.body;
    request.body_file = call.body_file;
    request.body_limit = call.body_limit;
    request.first_byte_timeout = call.first_byte;
    request.total_timeout = call.total;
    login = true;
    GDNCTL_TRY_ASSIGN(request.secret_headers, m_config.route->headers(false));
    login = false;
    GDNCTL_TRY_ASSIGN(HttpResponse answer, m_route.send(request));
    if (answer.status != 401) return answer;
    login = true;
    GDNCTL_TRY_ASSIGN(HttpHeaders renewed, m_config.route->headers(true));
    login = false;
    if (renewed == request.secret_headers) return answer;
    request.secret_headers = std::move(renewed);
    return m_route.send(std::move(request));
}

Result<HttpResponse> Client::send(const Call& call, Tries tries) {
    Patience patience = m_route.patience(retry_policy());
    for (;;) {
        bool login = false;
        auto answer = send_once(call, login);
        const bool passing = answer ? is_passing(*answer) : !login && is_out_of_reach(answer.error());
        if (!passing || tries == Tries::one) return answer;
        const bool again =
            answer ? patience.wait(refuse(call, *answer).message) : m_route.wait(patience, answer.error());
        if (again) continue;
        if (patience.stopped()) return tl::unexpected(stopped_error());
        return answer;
    }
}

Result<Json> Client::read(const Call& call, const HttpResponse& answer) const {
    if (answer.status != 200) return tl::unexpected(refuse(call, answer));
    auto json = parse_json(text::is_valid_utf8(answer.body) ? answer.body : text::repair_utf8(answer.body), "answer");
    if (!json || !json->is_object()) return tl::unexpected(refuse(call, answer));
    return json;
}

Result<Json> Client::ask(const Call& call, Tries tries) {
    GDNCTL_TRY_ASSIGN(const HttpResponse answer, send(call, tries));
    return read(call, answer);
}

Result<Json> Client::ask(std::string method, const Json& request, Tries tries) {
    Call call;
    call.method = std::move(method);
    call.body = to_text(request);
    auto answer = ask(call, tries);
    if (answer || answer.error().kind != ErrorKind::bad_input) return answer;
    return fail(ErrorKind::infrastructure, fmt::format("{}: {}", call.method, answer.error().message),
                fmt::format("check the address: {} may be no Iris controller", m_config.address));
}

Error Client::refuse(const Call& call, const HttpResponse& answer) const {
    return refusal(call.method, answer, m_config.address, m_config.login_hint);
}

}  // namespace gdnctl::iris
