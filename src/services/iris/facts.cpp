// What a controller reports about itself.
#include "core/json.h"
#include "services/iris/answers.h"
#include "services/iris/client.h"
#include "services/iris/iris_jobs.h"

namespace gdnctl {

namespace {

// "none", "iap"; empty: not reported.
std::string auth_mode(iris::Client& client) {
    HttpRequest request;
    request.url = "/auth/config";
    const auto headers = client.config().route->headers(false);
    if (!headers) return {};
    request.secret_headers = *headers;
    const auto answer = client.route().send(std::move(request));
    const auto config =
        answer && answer->status == 200 ? parse_json(answer->body, "/auth/config") : Result<Json>(Json());
    const auto enabled = config ? json::boolean(*config, "auth_enabled") : std::nullopt;
    if (!enabled) return {};
    const std::string provider = json::text(*config, "provider");
    return !*enabled ? "none" : provider.empty() ? "iap" : provider;
}

}  // namespace

Result<ControllerFacts> ask_controller(IrisJobsConfig config) {
    iris::Client client(std::move(config));
    ControllerFacts facts;
    const auto me = client.ask("GetCurrentUser", Json::object(), iris::Tries::patient);
    if (!me && me.error().kind == ErrorKind::usage) {  // it does not know the question
        return fail(ErrorKind::infrastructure, "not an Iris controller: " + me.error().message, me.error().hint);
    }
    if (!me) return tl::unexpected(me.error());
    facts.user = json::text(*me, "userId");
    facts.auth_mode = auth_mode(client);
    const auto state = client.ask("GetSchedulerState", Json::object(), iris::Tries::one);
    if (!state) return facts;
    facts.running = iris::number_of(*state, "totalRunning");
    facts.pending = iris::number_of(*state, "totalPending");
    for (const Json& item : json::field(*state, "userBudgets")) {
        if (json::text(item, "userId") != client.config().user) continue;
        facts.budget = UserBudget{iris::number_of(item, "budgetSpent"), iris::number_of(item, "budgetLimit"),
                                  json::text(item, "effectiveBand")};
    }
    return facts;
}

}  // namespace gdnctl
