// What the tests of the Iris backend share: a controller by script, recorded exchanges, and a clock that moves when
// someone sleeps.
#pragma once

#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include <doctest/doctest.h>

#include "core/json.h"
#include "core/log.h"
#include "services/iris/iris_jobs.h"
#include "support/fake_clock.h"
#include "support/fake_http.h"

namespace gdnctl::iris {

inline const std::string k_iris_base = "http://127.0.0.1:10979";

// The exchange with this name of a recording in tests/fixtures/iris.
inline Json recorded(const std::string& file, const std::string& name) {
    std::ifstream in(std::string(GDNCTL_FIXTURES "/iris/") + file + ".json");
    const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    const Json all = Json::parse(text);
    for (const Json& one : all) {
        if (one["name"].get<std::string>() == name) return one;
    }
    FAIL("no exchange " << name << " in " << file);
    return {};
}
inline Json answer_of(const std::string& file, const std::string& name) {
    return recorded(file, name)["response"]["json"];
}

struct IrisRoute final : JobRoute {
    Result<std::string> url() override { return k_iris_base; }
    Result<HttpHeaders> headers(bool refused) override {
        if (refused && minted < tokens) ++minted;
        if (minted == 0) return HttpHeaders();
        return HttpHeaders{{"Proxy-Authorization", "Bearer token-" + std::to_string(minted)}};
    }
    int minted = 0, tokens = 0;
};

struct IrisFixture {
    test::FakeClock clock;
    test::FakeHttp http;
    std::shared_ptr<IrisRoute> route = std::make_shared<IrisRoute>();
    std::stop_source stop;

    IrisFixture() {
        said().clear();
        log::set_sink([](log::Level, std::string_view line) { said().append(line).append("\n"); });
    }
    ~IrisFixture() { log::set_sink(nullptr); }
    IrisFixture(const IrisFixture&) = delete;
    IrisFixture& operator=(const IrisFixture&) = delete;

    static std::string& said() {
        static std::string lines;
        return lines;
    }
    std::unique_ptr<JobBackend> backend() {
        IrisJobsConfig config;
        config.cluster = "marin";
        config.address = k_iris_base;
        config.route = route;
        config.login_hint = "iris --cluster marin login";
        config.user = "me";
        config.http = &http;
        config.clock = &clock;
        config.stop = stop.get_token();
        return make_iris_jobs(std::move(config));
    }

    test::FakeHttp::Expected& post(const std::string& method) {
        const std::string service = method == "FetchLogs" ? "/proxy/system.log-server/finelog.logging.LogService/"
                                                          : "/iris.cluster.ControllerService/";
        return http.expect("POST", k_iris_base + service + method);
    }
    // The method is called, and answers as recorded.
    test::FakeHttp::Expected& plays(const std::string& file, const std::string& name) {
        const Json exchange = recorded(file, name);
        const std::string path = exchange["request"]["path"].get<std::string>();
        const Json& response = exchange["response"];
        const Json* body = json::find(response, "json");
        return http.expect("POST", k_iris_base + path)
            .reply(response["status"].get<int>(), body != nullptr ? body->dump() : json::text(response, "text"));
    }

    static JobRequest request(const std::string& id = "job-1") {
        JobRequest r;
        r.submission_id = id;
        r.entrypoint = "true";
        r.metadata = {{"nonce", "0123456789abcdef"}, {"kind", "test"}};
        return r;
    }
    static std::string status(const std::string& id, const std::string& state,
                              const std::string& nonce = "0123456789abcdef") {
        Json answer;
        answer["job"] = Json{{"jobId", "/me/" + id}, {"state", "JOB_STATE_" + state}};
        answer["job"]["submittedAt"] = Json{{"epochMs", "1773161587000"}};
        answer["request"]["environment"]["envVars"] = Json{{"GDNCTL_META_NONCE", nonce}, {"A", "1"}};
        return answer.dump();
    }
    static std::string task(const std::string& id, const std::string& state, bool finished) {
        Json one{{"taskId", "/me/" + id + "/0"}, {"state", "TASK_STATE_" + state}, {"currentAttemptId", 0}};
        if (finished) one["finishedAt"] = Json{{"epochMs", "1773161588000"}};
        return Json{{"tasks", Json::array({one})}}.dump();
    }
};

}  // namespace gdnctl::iris
