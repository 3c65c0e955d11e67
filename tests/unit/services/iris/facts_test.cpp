// What an Iris controller reports about itself.
#include <doctest/doctest.h>

#include "services/iris/iris_jobs.h"
#include "support/fake_clock.h"
#include "support/fake_http.h"

using namespace gdnctl;
using gdnctl::test::FakeClock;
using gdnctl::test::FakeHttp;

namespace {

// A route whose headers change each time they are refused.
struct Renewing final : JobRoute {
    Result<std::string> url() override { return std::string("http://h"); }
    Result<HttpHeaders> headers(bool refused) override {
        if (refused && renews) ++number;
        return HttpHeaders{{"Proxy-Authorization", "Bearer " + std::to_string(number)}};
    }
    bool renews = true;
    int number = 1;
};

const std::string k_me = "http://h/iris.cluster.ControllerService/GetCurrentUser";

Result<ControllerFacts> ask(FakeHttp& http, std::shared_ptr<Renewing> route = std::make_shared<Renewing>()) {
    FakeClock clock;
    IrisJobsConfig config;
    config.address = "http://h";
    config.route = std::move(route);
    config.login_hint = "log in";
    config.user = "me";
    config.http = &http;
    config.clock = &clock;
    return ask_controller(std::move(config));
}

}  // namespace

TEST_CASE("controller: user, tasks and budget") {
    FakeHttp http;
    http.expect("POST", k_me).reply(200, R"({"userId": "anonymous", "role": "admin"})").look([](const HttpRequest& r) {
        CHECK(r.body == "{}");
        CHECK(r.secret_headers == HttpHeaders{{"Proxy-Authorization", "Bearer 1"}});
    });
    http.expect("GET", "http://h/auth/config").reply(200, R"({"auth_enabled": true, "provider": "iap"})");
    http.expect("POST", "http://h/iris.cluster.ControllerService/GetSchedulerState")
        .reply(200,
               R"({"userBudgets": [{"userId": "you"}, {"userId": "me", "budgetLimit": "1000", "budgetSpent": "4279",
                        "effectiveBand": "PRIORITY_BAND_BATCH"}], "totalPending": 1, "totalRunning": "2", "new": []})");
    const auto facts = ask(http);
    REQUIRE(facts);
    CHECK(facts->user == "anonymous");
    CHECK(facts->auth_mode == "iap");
    CHECK(facts->running == 2);
    CHECK(facts->pending == 1);
    REQUIRE(facts->budget);
    CHECK(facts->budget->spent == 4279);
    CHECK(facts->budget->limit == 1000);
    CHECK(facts->budget->is_spent());
}

TEST_CASE("controller: what it does not say is left out") {
    FakeHttp http;
    http.expect("POST", k_me).reply(200, "{}");
    http.expect("GET", "http://h/auth/config").reply(404, "Not Found");
    http.expect("POST", "http://h/iris.cluster.ControllerService/GetSchedulerState").reply(500, "{}");
    const auto facts = ask(http);
    REQUIRE(facts);
    CHECK(facts->auth_mode.empty());
    CHECK(!facts->running);
    CHECK(!facts->budget);
}

TEST_CASE("controller: a refused login is renewed once") {
    const std::string said = R"({"error": "authentication required"})";
    for (const bool renews : {true, false}) {
        FakeHttp http;
        const auto route = std::make_shared<Renewing>();
        route->renews = renews;
        http.expect("POST", k_me).reply(401, said);
        if (renews) http.expect("POST", k_me).reply(401, said);
        const auto facts = ask(http, route);
        REQUIRE(!facts);
        CHECK(facts.error().kind == ErrorKind::authentication);
        CHECK(facts.error().message.find("authentication required") != std::string::npos);
        CHECK(facts.error().hint == "log in");
    }
}

TEST_CASE("controller: others that answer at its address") {
    const auto fault = [](int status, const std::string& body) {
        FakeHttp http;
        http.expect("POST", k_me).reply(status, body);
        return ask(http).error();
    };
    CHECK(fault(302, "").message == "http://h asks for a login");
    CHECK(fault(302, "").kind == ErrorKind::authentication);
    CHECK(fault(403, "<html>").kind == ErrorKind::authentication);
    CHECK(fault(200, "<html>hello").message.starts_with("not an Iris controller: http://h returned "));
    CHECK(fault(404, "404: Not Found").kind == ErrorKind::infrastructure);
    CHECK(fault(404, "404: Not Found").message.starts_with("not an Iris controller: "));
}
