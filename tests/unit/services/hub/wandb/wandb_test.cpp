// Weights & Biases: where it is, with which key, what is asked, what is made of the answers.
#include "services/hub/wandb/wandb.h"

#include <doctest/doctest.h>

#include "core/json.h"
#include "core/redact.h"
#include "support/fake_env.h"
#include "support/fake_http.h"
#include "support/scratch.h"

using namespace gdnctl;
using gdnctl::test::FakeEnv;
using gdnctl::test::FakeHttp;
using gdnctl::test::Scratch;

namespace {

constexpr const char* k_wandb_key = "0123456789abcdef0123456789abcdef01234567";
constexpr const char* k_wandb_url = "https://api.wandb.ai/graphql";

WandbAccess usual_access() { return {"https://api.wandb.ai", k_wandb_key, "WANDB_API_KEY"}; }

std::string header_of(const HttpRequest& request, const std::string& name) {
    for (const auto& [key, value] : request.secret_headers) {
        if (key == name) return value;
    }
    return {};
}

Json variables_of(const std::string& body) { return (*parse_json(body, "body"))["variables"]; }

// Quoted as a JSON string inside of JSON, as the service does it.
std::string run_answer(const std::string& summary, const std::string& history, const std::string& state = "finished") {
    Json run;
    run["name"] = "gdn_x-1f9dea";
    run["displayName"] = "gdn_x";
    run["state"] = state;
    run["createdAt"] = "2026-03-10T16:53:08Z";
    run["summaryMetrics"] = summary;
    run["sampledHistory"] = *parse_json(history, "history");
    Json answer;
    answer["data"]["project"]["run"] = run;
    return to_text(answer);
}

}  // namespace

TEST_CASE("wandb: the server and the key, and which of several sources is meant") {
    const Scratch home;
    FakeEnv env{{"HOME", home.path().string()}};
    CHECK(find_wandb(env).error().kind == ErrorKind::authentication);
    CHECK(find_wandb(env).error().hint.find("https://wandb.ai/authorize") != std::string::npos);
    home.file(".netrc", "machine api.wandb.ai login user password from-the-netrc-file\n");
    auto access = find_wandb(env);
    REQUIRE(access);
    CHECK(access->url == "https://api.wandb.ai");
    CHECK(access->key == "from-the-netrc-file");
    CHECK(access->key_source == (home.path() / ".netrc").string());
    CHECK(redact("x from-the-netrc-file y") == "x from*** y");
    env.values["WANDB_API_KEY"] = std::string(" ") + k_wandb_key + "\n";
    access = find_wandb(env);
    REQUIRE(access);
    CHECK(access->key == k_wandb_key);
    CHECK(access->key_source == "WANDB_API_KEY");
    env.values["WANDB_API_KEY"] = "";
    env.values["NETRC"] = home.file("other", "machine wandb.corp\n  login api\n  password corp-key\n").string();
    CHECK_FALSE(find_wandb(env));  // that file has nothing for this host
    env.values["WANDB_BASE_URL"] = "https://Wandb.corp:8443/wb/";
    access = find_wandb(env);
    REQUIRE(access);
    CHECK(access->url == "https://Wandb.corp:8443/wb");
    CHECK(access->key == "corp-key");
    // A folder cannot be read as one.
    env.values["NETRC"] = home.path().string();
    CHECK(find_wandb(env).error().kind == ErrorKind::authentication);
}

TEST_CASE("wandb: no key goes where others can read it, or to an address that is none") {
    FakeEnv env{{"WANDB_API_KEY", k_wandb_key}};
    for (const char* bad : {"http://wandb.corp", "http://127.0.0.1.evil.example", "wandb.corp", "ftp://x", "https://",
                            "https://me:pw@wandb.corp", "http://localhost.evil.example", "file:///etc"}) {
        CAPTURE(bad);
        env.values["WANDB_BASE_URL"] = bad;
        const auto access = find_wandb(env);
        REQUIRE_FALSE(access);
        CHECK(access.error().kind == ErrorKind::config);
        CHECK(access.error().text().find("pw") == std::string::npos);
    }
    for (const char* good : {"http://127.0.0.1:8080", "http://localhost/", "http://[::1]:1", "https://wandb.corp"}) {
        CAPTURE(good);
        env.values["WANDB_BASE_URL"] = good;
        CHECK(find_wandb(env));
    }
    env.values["WANDB_API_KEY"] = "two words";
    CHECK(find_wandb(env).error().text() == "the key for W&B of WANDB_API_KEY contains a blank");
}

TEST_CASE("wandb: a key goes to the server that it is for, and to no other") {
    const Scratch home;
    FakeEnv env{{"HOME", home.path().string()}, {"WANDB_API_KEY", k_wandb_key}};
    const auto url = [&](const char* address = "") {
        const auto access = find_wandb(env, address);
        return access ? access->url : std::string("(") + access.error().message + ")";
    };
    const auto settings = [&](const std::string& text) { home.file(".config/wandb/settings", text); };
    settings("[default]\nbase_url = https://wandb.corp:8443/\n");
    CHECK(url() == "https://wandb.corp:8443");
    CHECK(private_wandb_server(env) == "https://wandb.corp:8443/");
    // A web address on wandb.ai only names a run, and one on the configured server is that server's.
    CHECK(url("https://wandb.ai") == "https://wandb.corp:8443");
    CHECK(url("https://Wandb.corp:8443") == "https://wandb.corp:8443");
    env.values["WANDB_BASE_URL"] = "https://api.corp";
    CHECK(url("https://app.corp") == "https://api.corp");
    env.values["WANDB_APP_URL"] = "https://pages.corp/";
    CHECK(url("https://pages.corp:443") == "https://api.corp");
    // WANDB_API_KEY is not for another host. Its own key in the netrc file is.
    CHECK(url("https://other.corp").starts_with("(no key for W&B at other.corp"));
    home.file(".netrc",
              "machine other.corp:1 password no\nmachine other.corp password old-style\n"
              "machine other.corp:8443 password with-port\n");
    CHECK(find_wandb(env, "https://other.corp")->key == "old-style");
    CHECK(find_wandb(env, "https://other.corp:8443")->key == "with-port");
    CHECK(find_wandb(env, "http://other.corp").error().kind == ErrorKind::config);
    // The key in the settings file is for the server in the settings file.
    env.values.erase("WANDB_API_KEY");
    settings("[default]\nbase_url = https://wandb.corp\napi_key = of-the-settings\n");
    CHECK(url().starts_with("(no key for W&B at api.corp"));
    env.values["WANDB_BASE_URL"] = "https://wandb.corp/";
    CHECK(find_wandb(env)->key == "of-the-settings");
    // A private server's key is never sent to wandb.ai, nor to whichever host an address names.
    env.values.erase("WANDB_BASE_URL");
    settings("[default]\n");
    env.values["WANDB_API_KEY"] = std::string("local-") + k_wandb_key;
    CHECK(find_wandb(env).error().kind == ErrorKind::config);
    CHECK(find_wandb(env).error().hint.find("base_url") != std::string::npos);
    CHECK(
        url("https://wandb.corp") ==
        "(no key for W&B at wandb.corp, the server in the run's address; WANDB_API_KEY is a private server's key, and "
        "nothing says which server's)");
    CHECK(find_wandb(env, "https://wandb.corp").error().hint.find("WANDB_BASE_URL=https://wandb.corp") !=
          std::string::npos);
    CHECK(find_wandb_server(env) == "https://api.wandb.ai");
    CHECK(private_wandb_server(env) == "");
    // Whoever gets a key must know its server.
    CHECK(server_for_key(env, k_wandb_key) == "");
    CHECK(server_for_key(env, env.values["WANDB_API_KEY"]).error().kind == ErrorKind::config);
    env.values["WANDB_CONFIG_DIR"] = home.path().string();
    std::filesystem::create_directory(home.path() / "settings");
    CHECK(private_wandb_server(env).error().kind == ErrorKind::authentication);
    CHECK_FALSE(server_for_key(env, k_wandb_key));
    env.values["WANDB_BASE_URL"] = "https://wandb.corp";
    CHECK(server_for_key(env, env.values["WANDB_API_KEY"]) == "https://wandb.corp");
}

TEST_CASE("wandb: netrc files as people write them") {
    const auto password = [](const char* text) { return netrc_password(text, "api.wandb.ai").value_or("(none)"); };
    CHECK(password("machine api.wandb.ai login user password k1") == "k1");
    CHECK(password("machine other password no\nmachine api.wandb.ai\n\tlogin user\n\tpassword k2\n") == "k2");
    CHECK(password("machine API.wandb.ai password \"k 3\" login x") == "k 3");
    CHECK(password("# machine api.wandb.ai password no\nmachine api.wandb.ai password k4") == "k4");
    CHECK(password("macdef init\nmachine api.wandb.ai password no\n\nmachine api.wandb.ai password k5") == "k5");
    CHECK(password("machine api.wandb.ai login password password k6") == "k6");
    // What is for nobody in particular is not for us; a name that ends alike is another host.
    CHECK(password("default login user password no") == "(none)");
    CHECK(password("machine my.api.wandb.ai password no") == "(none)");
    CHECK(password("machine api.wandb.ai login user") == "(none)");
    CHECK(password("machine api.wandb.ai password \"") == "(none)");
    CHECK(password("machine") == "(none)");
    CHECK(password("") == "(none)");
}

TEST_CASE("wandb: the address of a run") {
    const auto path = parse_wandb_url("https://wandb.ai/marin-community/my%20project/runs/x-1?nw=y");
    REQUIRE(path);
    CHECK(path->entity == "marin-community");
    CHECK(path->project == "my project");
    CHECK(path->run == "x-1");
    CHECK(path->server == "https://wandb.ai");
    for (const char* bad : {"", "x", "https://wandb.ai/a/b", "https://wandb.ai/a/b/sweeps/c",
                            "https://wandb.ai/a//runs/c", "https://wandb.ai/a/b/runs/"}) {
        CAPTURE(bad);
        CHECK_FALSE(parse_wandb_url(bad));
    }
}

TEST_CASE("wandb: a run with its summary and its window, in one request with the key in the header alone") {
    FakeHttp http;
    Wandb wandb(usual_access(), http);
    CHECK_FALSE(wandb.clock_difference(WallTime()));
    http.expect("POST", k_wandb_url)
        .look([](const HttpRequest& request) {
            // base64 of "api:" and the key
            CHECK(header_of(request, "Authorization") ==
                  "Basic YXBpOjAxMjM0NTY3ODlhYmNkZWYwMTIzNDU2Nzg5YWJjZGVmMDEyMzQ1Njc=");
            CHECK(request.body.find("0123456789abcdef") == std::string::npos);
            const Json variables = variables_of(request.body);
            CHECK(variables["entity"] == "e");
            CHECK(variables["project"] == "p");
            CHECK(variables["run"] == "gdn_x-1f9dea");
            REQUIRE(variables["specs"].size() == 2);
            const Json spec = *parse_json(variables["specs"][0].get<std::string>(), "spec");
            CHECK(to_text(spec) == R"({"keys":["_step","throughput/mfu"],"minStep":10,"maxStep":13,"samples":102})");
        })
        .reply(200,
               run_answer(R"({"throughput/mfu": 5.1, "loss": "NaN", "n": {"x": 1}, "_step": 19})",
                          R"([[{"_step": 12, "throughput/mfu": 5.2}, {"_step": 10, "throughput/mfu": 5}, null,
                               {"_step": 11, "throughput/mfu": "NaN"}, {"_step": 13, "throughput/mfu": 0.939},
                               {"_step": 9, "throughput/mfu": 1}, {"throughput/mfu": 2}, {"_step": 12}],
                              [{"_step": 10, "throughput/duration": null}]])"),
               {{"date", "Tue, 10 Mar 2026 16:54:07 GMT"}});
    const auto run = wandb.run({"e", "p", "gdn_x-1f9dea"}, {{"throughput/mfu", "throughput/duration"}, 10, 12});
    REQUIRE(run);
    CHECK(run->id == "gdn_x-1f9dea");
    CHECK(run->name == "gdn_x");
    CHECK(run->ended());
    CHECK(run->created == parse_iso8601("2026-03-10T16:53:08Z"));
    CHECK(run->summary == std::map<std::string, double>{{"throughput/mfu", 5.1}, {"_step", 19}});
    CHECK(run->window.at("throughput/mfu") == std::vector<double>{5, 5.2});
    CHECK_FALSE(run->window.contains("throughput/duration"));
    CHECK(wandb.clock_difference(*parse_iso8601("2026-03-10T16:53:07Z")) == std::chrono::seconds(60));
    // Without a window the question has none; a state that is no end.
    http.expect("POST", k_wandb_url)
        .look([](const HttpRequest& request) { CHECK(request.body.find("sampledHistory") == std::string::npos); })
        .reply(200, R"({"data":{"project":{"run":{"name":"r","state":"crashed","summaryMetrics":null}}}})");
    const auto crashed = wandb.run({"e", "p", "r"}, {});
    REQUIRE(crashed);
    CHECK_FALSE(crashed->ended());
    CHECK(crashed->summary.empty());
    CHECK_FALSE(crashed->created);
}

TEST_CASE("wandb: the newest runs, by name or all") {
    FakeHttp http;
    Wandb wandb(usual_access(), http);
    const std::string answer = R"({"data":{"project":{"runs":{"edges":[{"node":{"name":"a-1","displayName":"a b",
        "state":"running","createdAt":"2026-03-10T16:53:08"}},{"node":null},null,{"node":{"name":"c"}}]}}}})";
    http.expect("POST", k_wandb_url)
        .look([](const HttpRequest& request) {
            const Json variables = variables_of(request.body);
            CHECK(variables["filters"] == R"({"display_name":{"$regex":"x\\.y\\+_"}})");
            CHECK(variables["order"] == "-created_at");
            CHECK(variables["count"] == 80);
        })
        .reply(200, answer);
    const auto runs = wandb.newest_runs("e", "p", "x.y+_", 80);
    REQUIRE(runs);
    REQUIRE(runs->size() == 2);
    CHECK(runs->front().name == "a b");
    CHECK(runs->front().created == parse_iso8601("2026-03-10T16:53:08Z"));
    CHECK(runs->back().id == "c");
    http.expect("POST", k_wandb_url)
        .look([](const HttpRequest& request) { CHECK_FALSE(variables_of(request.body).contains("filters")); })
        .reply(200, R"({"data":{"project":{"runs":{}}}})");
    CHECK(wandb.newest_runs("e", "p", "", 120)->empty());
}

TEST_CASE("wandb: refusals and nonsense, each with what to do") {
    struct Case {
        int status;
        std::string body;
        ErrorKind kind;
        std::string text;
    };
    const std::vector<Case> cases = {
        {401, "{}", ErrorKind::authentication, "W&B rejects the key of WANDB_API_KEY"},
        {403, R"({"errors":[{"message":"no"}]})", ErrorKind::authentication, "W&B denies the request with the key"},
        {404, "not here", ErrorKind::infrastructure, "answered 404: not here"},
        {302, "", ErrorKind::infrastructure, "answered 302: nothing"},
        {200, "<html>log in</html>", ErrorKind::infrastructure, "not an answer from a W&B server"},
        {200, "[]", ErrorKind::infrastructure, "not an answer from a W&B server"},
        {200, R"({"data":null})", ErrorKind::infrastructure, "not an answer from a W&B server"},
        {200, R"({"errors":[{"message":"one"},{"message":"two"}],"data":null})", ErrorKind::infrastructure, "one; two"},
        {200, R"({"errors":[{"message":"permission denied"}]})", ErrorKind::authentication, "permission denied"},
        {200, R"({"data":{"project":null}})", ErrorKind::remote_missing, "W&B has no project e/p"},
        {200, R"({"data":{"project":{"run":null}}})", ErrorKind::remote_missing, "W&B has no run e/p/r"},
        {200, run_answer("{not json", "[]"), ErrorKind::bad_input, "the summary of run"},
    };
    for (const Case& one : cases) {
        CAPTURE(one.body);
        FakeHttp http;
        http.expect("POST", k_wandb_url).reply(one.status, one.body);
        const auto run = Wandb(usual_access(), http).run({"e", "p", "r"}, {});
        REQUIRE_FALSE(run);
        CHECK(run.error().kind == one.kind);
        CHECK_MESSAGE(run.error().text().find(one.text) != std::string::npos, run.error().text());
    }
    FakeHttp http;
    http.expect("POST", k_wandb_url).fail(Error{ErrorKind::timeout, "no answer in time", "", ""});
    CHECK(Wandb(usual_access(), http).run({"e", "p", "r"}, {}).error().kind == ErrorKind::infrastructure);
    http.expect("POST", k_wandb_url).fail(Error{ErrorKind::interrupted, "stopped", "", ""});
    CHECK(Wandb(usual_access(), http).run({"e", "p", "r"}, {}).error().kind == ErrorKind::interrupted);
}

TEST_CASE("wandb: times and complaints in the forms that servers use") {
    const auto at = [](const char* text) { return wandb::parse_created(text); };
    const auto expected = parse_iso8601("2026-03-10T16:53:08Z");
    CHECK(at("2026-03-10T16:53:08") == expected);
    CHECK(at("2026-03-10T16:53:08Z") == expected);
    CHECK(at("2026-03-10T16:53:08.123456Z") == expected);
    CHECK(at("2026-03-10T16:53:08.5") == expected);
    CHECK(at("2026-03-10T18:53:08+02:00") == expected);
    CHECK_FALSE(at(""));
    CHECK_FALSE(at("yesterday"));
    CHECK(wandb::complaint(std::string("a\x01\xff") + std::string(500, 'b')).size() < 310);
    CHECK(wandb::complaint(R"({"error":"e1"})") == "e1");
}
