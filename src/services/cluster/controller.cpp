// What an Iris controller reports about itself.
#include <fmt/format.h>

#include "core/json.h"
#include "core/text.h"
#include "platform/signals.h"
#include "services/cluster/cluster.h"

namespace gdnctl {

namespace {

constexpr std::string_view k_service = "/iris.cluster.ControllerService/";

// Numbers of 64 bits are texts.
std::optional<std::int64_t> count(const Json& value, std::string_view name) {
    const auto number = json::integer(value, name);
    return number ? number : text::parse_int(json::text(value, name));
}

class Question {
public:
    Question(Http& http, JobRoute& route, std::string hint, std::stop_token stop)
        : m_http(http), m_route(route), m_hint(std::move(hint)), m_stop(std::move(stop)) {}

    Result<Json> call(std::string_view method) { return ask(std::string(k_service).append(method), "{}"); }
    Result<Json> get(const std::string& path) { return ask(path, {}); }

private:
    Result<Json> ask(const std::string& path, const std::string& body) {
        GDNCTL_TRY_ASSIGN(const std::string base, m_route.url());
        HttpHeaders sent;
        for (bool refused : {false, true}) {
            GDNCTL_TRY_ASSIGN(HttpHeaders headers, m_route.headers(refused));
            const bool nothing_new = refused && headers == sent;
            if (!nothing_new) {
                sent = std::move(headers);
                GDNCTL_TRY_ASSIGN(m_answer, send(base + path, body, sent));
            }
            if (nothing_new || m_answer.status != 401) break;
        }
        return judge(base);
    }

    Result<HttpResponse> send(const std::string& url, const std::string& body, const HttpHeaders& headers) {
        using std::chrono::milliseconds;
        HttpRequest request;
        request.url = url;
        request.secret_headers = headers;
        request.connect_timeout = milliseconds(3000);
        request.first_byte_timeout = request.total_timeout = milliseconds(10'000);
        request.retry.attempts = 3;
        request.retry.first_delay = request.retry.max_delay = milliseconds(1000);
        request.stop = m_stop;
        if (!body.empty()) {
            request.method = "POST";
            request.headers.emplace_back("Content-Type", "application/json");
            request.body = body;
        }
        auto answer = m_http.send(request);
        if (!answer && answer.error().kind == ErrorKind::interrupted) return tl::unexpected(stopped_error());
        return answer;
    }

    Result<Json> judge(const std::string& base) const {
        const int status = m_answer.status;
        auto json = parse_json(m_answer.body, "the answer");
        if (status == 200 && json && json->is_object()) return std::move(*json);
        if (status >= 300 && status < 400) return fail(ErrorKind::authentication, base + " asks for a login", m_hint);
        std::string said = json ? json::text(*json, "message") : std::string();
        if (json && said.empty()) said = json::text(*json, "error");
        if (said.empty()) said = text::repair_utf8(text::trim(std::string_view(m_answer.body).substr(0, 200)));
        if (status == 401 || status == 403) {
            return fail(ErrorKind::authentication, fmt::format("{}: HTTP status {}: {}", base, status, said), m_hint);
        }
        return fail(ErrorKind::infrastructure,
                    fmt::format("not an Iris controller: {} returned status {}: {}", base, status, said));
    }

    Http& m_http;
    JobRoute& m_route;
    std::string m_hint;
    std::stop_token m_stop;
    HttpResponse m_answer;
};

}  // namespace

Result<ControllerFacts> ask_controller(Http& http, JobRoute& route, const std::string& user,
                                       const std::string& login_hint, std::stop_token stop) {
    Question question(http, route, login_hint, std::move(stop));
    ControllerFacts facts;
    GDNCTL_TRY_ASSIGN(const Json me, question.call("GetCurrentUser"));
    facts.user = json::text(me, "userId");
    if (const auto config = question.get("/auth/config")) {
        const std::string provider = json::text(*config, "provider");
        const bool enabled = json::boolean(*config, "auth_enabled").value_or(false);
        facts.auth_mode = !enabled ? "none" : provider.empty() ? "iap" : provider;
    }
    const auto state = question.call("GetSchedulerState");
    if (!state) return facts;
    facts.running = count(*state, "totalRunning").value_or(0);
    facts.pending = count(*state, "totalPending").value_or(0);
    for (const Json& item : json::field(*state, "userBudgets")) {
        if (json::text(item, "userId") != user) continue;
        facts.budget = UserBudget{count(item, "budgetSpent").value_or(0), count(item, "budgetLimit").value_or(0),
                                  json::text(item, "effectiveBand")};
    }
    return facts;
}

}  // namespace gdnctl
