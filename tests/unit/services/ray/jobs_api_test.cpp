// What the Jobs API answers, against recorded exchanges.
#include "services/ray/jobs_api.h"

#include <doctest/doctest.h>

#include "core/json.h"
#include "core/text.h"
#include "platform/http_policy.h"
#include "services/job/job.h"
#include "services/job/route_client.h"
#include "support/scratch.h"

namespace gdnctl::ray {

namespace {

Json recorded(const std::string& name) {
    const auto json = parse_json(test::read_whole(std::string(GDNCTL_FIXTURES) + "/ray/" + name + ".json"), name);
    REQUIRE(json);
    return *json;
}

HttpResponse answer(int status, std::string body = {}) {
    HttpResponse a;
    a.status = status;
    a.body = std::move(body);
    return a;
}

Error refused(int status, std::string body) { return refusal("GET /x", answer(status, std::move(body)), "look there"); }

}  // namespace

TEST_CASE("answers: the recorded versions are understood") {
    const Json exchanges = recorded("version");
    const auto version = parse_version(exchanges[0]["response"]["body"].get<std::string>());
    REQUIRE(version);
    CHECK(version->ray_version == "2.60.0");
    CHECK(version->session.starts_with("session_2026-11-21"));
    CHECK(version->at_least(2, 54));
    CHECK_FALSE(version->at_least(2, 61));
    CHECK_FALSE(version->at_least(3, 0));
    CHECK(parse_version(R"({"version":"4","ray_version":"3.0.0.dev0"})")->at_least(2, 54));
    CHECK_FALSE(parse_version(R"({"version":"4","ray_version":null,"session_name":7})")->at_least(2, 1));
    for (const char* other : {"", "[]", "{}", "<html>login</html>", R"({"ok":true})"}) {
        CHECK(parse_version(other).error().kind == ErrorKind::infrastructure);
    }
}

TEST_CASE("answers: every recorded record of a job is read") {
    int jobs = 0;
    for (const char* name :
         {"submit_succeed", "outcomes", "pending", "stop", "supervisor_death", "bad_runtime_env_jobs", "driver_info",
          "delete", "v252", "packages", "holder", "bad_bytes"}) {
        for (const Json& exchange : recorded(name)) {
            const Json& body = exchange["response"]["body"];
            if (!body.is_string() || !body.get<std::string>().starts_with("{\"type\"")) continue;
            const auto job = parse_job_details(body.get<std::string>());
            REQUIRE(job);
            ++jobs;
            if (is_terminal(job->state)) classify(*job);
        }
    }
    CHECK(jobs > 30);
}

TEST_CASE("answers: a record that comes back after a DELETE is a ghost") {
    int ghosts = 0;
    for (const Json& exchange : recorded("delete")) {
        const auto job = parse_job_details(exchange["response"]["body"].get<std::string>());
        if (job && is_ghost(*job)) ++ghosts;
    }
    CHECK(ghosts == 1);
}

TEST_CASE("answers: a job that failed because of its request is a usage error") {
    int usage = 0;
    for (const Json& exchange : recorded("bad_runtime_env_jobs")) {
        const auto job = parse_job_details(exchange["response"]["body"].get<std::string>());
        if (job && job->error_type == "JOB_SUPERVISOR_ACTOR_START_FAILURE") {
            CHECK(classify(*job).exit == ExitCode::usage);
            ++usage;
        }
    }
    CHECK(usage >= 3);
}

TEST_CASE("ray retry policy: which answers are worth another try") {
    const auto is_passing = [](std::string_view method, int status, std::string_view body) {
        return http::is_worth_retrying(retry_policy(), method, status, body);
    };
    CHECK(is_passing("GET", 502, ""));
    CHECK(is_passing("POST", 503, ""));
    CHECK(is_passing("PUT", 504, ""));
    CHECK(is_passing("GET", 500, "500 Internal Server Error\n\nServer got itself in trouble"));
    CHECK_FALSE(is_passing("POST", 500, "500 Internal Server Error\n\nServer got itself in trouble"));
    for (const char* text : {"No available agent to submit job, please try again later.",
                             "Failed to get head node agent", "Cannot connect to host 10.0.0.7:52365",
                             "ray.exceptions.GetTimeoutError", "timeout in registering an actor"}) {
        CHECK(is_passing("POST", 500, text));
        CHECK_FALSE(is_passing("POST", 400, text));
    }
    for (const int status : {200, 302, 400, 401, 403, 404, 405, 413, 500}) CHECK_FALSE(is_passing("GET", status, "x"));
    CHECK_FALSE(is_passing("PUT", 500, "aiohttp HTTPRequestEntityTooLarge"));
}

TEST_CASE("answers: each refusal has its kind") {
    CHECK(refused(400, "TypeError: bad").kind == ErrorKind::usage);
    CHECK(refused(405, "'POST' method not allowed for browser traffic.").kind == ErrorKind::usage);
    CHECK(refused(413, "Maximum request body size 104857600 exceeded.").kind == ErrorKind::usage);
    CHECK(refused(401, "Unauthorized: Missing authentication token").kind == ErrorKind::authentication);
    CHECK(refused(403, "Forbidden: Invalid authentication token").hint == "look there");
    CHECK(refused(404, "Job nope does not exist").kind == ErrorKind::remote_missing);
    CHECK(refused(404, "Job nope does not exist").message == "Job nope does not exist");
    CHECK(refused(404, "404: Not Found").kind == ErrorKind::infrastructure);
    CHECK(refused(500, "boom").kind == ErrorKind::infrastructure);
    CHECK(refused(302, "").kind == ErrorKind::infrastructure);
    CHECK(refused(200, "<html><head><title>Log in</title></head></html>").message.find("an HTML page: Log in") !=
          std::string::npos);
}

TEST_CASE("answers: a taken id and a body too large are recognised in the recorded tracebacks") {
    const Json errors = recorded("submit_errors");
    CHECK(says_already_exists(answer(500, errors[0]["response"]["body"].get<std::string>())));
    CHECK_FALSE(says_already_exists(answer(500, "500 Internal Server Error\n\nServer got itself in trouble")));
    CHECK(says_too_large(answer(413)));
    CHECK(says_too_large(answer(500, "aiohttp.web_exceptions.HTTPRequestEntityTooLarge")));
    CHECK(gist(errors[0]["response"]["body"].get<std::string>()) ==
          "ValueError: Job with submission_id ok-1 already exists. Please use a different submission_id.");
}

TEST_CASE("answers: the gist of ten megabytes is one short line of valid text") {
    std::string traceback;
    for (int i = 0; i < 100'000; ++i)
        traceback += "  File \"x.py\", line 1, in f\n    \xff\xfe garbage that goes on and on\n";
    const std::string line = gist(traceback + "ValueError: \xff" + std::string(100'000, 'y'));
    CHECK(line.size() < 400);
    CHECK(line.starts_with("ValueError: "));
    CHECK(gist("") == "nothing");
}

TEST_CASE("answers: long strings of a record are shortened, and what is left is JSON, wherever the cut falls") {
    for (std::size_t shift = 0; shift < 13; ++shift) {
        std::string text = "{\"a\": \"" + std::string(shift, 'x');
        for (int i = 0; i < 120'000; ++i) text += i % 2 == 0 ? "\\ud83d\\ude00" : "\\\"";
        text += "\", \"b\": [\"\\\\\", 1], \"c\": \"" + std::string(3'000'000, 'y') + "\", \"d\": \"end\"}";
        StringCutter cutter;
        std::string left;
        for (std::size_t at = 0; at < text.size(); at += 65'521) {
            left += cutter.feed(std::string_view(text).substr(at, 65'521));
        }
        CHECK(left.size() < (std::size_t{2} << 20) + 200);
        const auto json = parse_json(left, "record");
        REQUIRE(json);
        CHECK(json->at("b").dump() == "[\"\\\\\",1]");
        CHECK(json->at("d") == "end");
        CHECK(json->at("c").get<std::string>().size() == std::size_t{1} << 20);
    }
    StringCutter cutter;
    CHECK(cutter.feed("{\"a\": \"\\u00e9 \\\\ \"}") == "{\"a\": \"\\u00e9 \\\\ \"}");
}

TEST_CASE("answers: ids are one segment of a path") {
    CHECK(text::percent_encode("a-b_C.9~") == "a-b_C.9~");
    CHECK(text::percent_encode("a/b?c#d e%\xff") == "a%2Fb%3Fc%23d%20e%25%FF");
}

TEST_CASE("answers: a list in pieces is the list") {
    const std::string list = R"( [ {"a": "}]{\"x\""}, {"b": [1, {"c": {}}]} ,{}] )";
    for (std::size_t size = 1; size <= list.size(); ++size) {
        std::vector<std::string> items;
        ArraySplitter splitter([&](std::string_view text) { items.emplace_back(text); });
        for (std::size_t at = 0; at < list.size(); at += size) splitter.feed(std::string_view(list).substr(at, size));
        CHECK(splitter.complete());
        REQUIRE(items.size() == 3);
        CHECK(items[0] == R"({"a": "}]{\"x\""})");
        CHECK(items[1] == R"({"b": [1, {"c": {}}]})");
        CHECK(items[2] == "{}");
    }
    ArraySplitter cut([](std::string_view) {});
    cut.feed("[{\"a\":1}");
    CHECK_FALSE(cut.complete());
}

// The body of a submission: what the server takes, and values that arrive byte for byte.

namespace {

JobRequest request() {
    JobRequest r;
    r.submission_id = "job-1";
    r.entrypoint = "true";
    return r;
}

ServerVersion server(int minor) { return {"2." + std::to_string(minor) + ".0", "session_1", 2, minor}; }

Json body_of(const JobRequest& r, const std::string& package = {}, int minor = 60) {
    const auto body = submission_body(r, package, server(minor));
    REQUIRE(body);
    const auto json = parse_json(*body, "body");
    REQUIRE(json);
    return *json;
}

std::string escaped(std::string value) {
    const auto env = escape_environment({{"SECRET", std::move(value)}});
    REQUIRE(env);
    return env->at("SECRET");
}

}  // namespace

TEST_CASE("request: nothing is sent that was not asked for") {
    CHECK(body_of(request()).dump() == R"({"entrypoint":"true","submission_id":"job-1"})");
}

TEST_CASE("request: resources become Ray's own fields, numbers stay numbers") {
    JobRequest r = request();
    r.resources = {
        {"CPU", 0.5}, {"GPU", 1}, {"memory", 2e9}, {"TPU", 4}, {"TPU-v5p-8-head", 1}, {"node:10.0.0.7", 0.001},
        {"none", 0}};
    const Json body = body_of(r);
    CHECK(body["entrypoint_num_cpus"] == 0.5);
    CHECK(body["entrypoint_num_gpus"] == 1);
    CHECK(body["entrypoint_memory"].is_number_integer());
    CHECK(body["entrypoint_memory"] == 2'000'000'000);
    CHECK(body["entrypoint_resources"].dump() == R"({"TPU":4,"TPU-v5p-8-head":1,"node:10.0.0.7":0.001})");
}

TEST_CASE("request: package, URI, pip and metadata") {
    JobRequest r = request();
    r.pip = {"a==1", "b"};
    r.metadata = {{"nonce", "n"}};
    Json body = body_of(r, "gcs://_ray_pkg_x.zip");
    CHECK(body["runtime_env"].dump() ==
          R"({"working_dir":"gcs://_ray_pkg_x.zip","pip":{"packages":["a==1","b"],"pip_check":false}})");
    CHECK(body["metadata"].dump() == R"({"nonce":"n"})");
    r.working_dir_uri = "s3://bucket/tree.zip";
    body = body_of(r);
    CHECK(body["runtime_env"]["working_dir"] == "s3://bucket/tree.zip");
}

TEST_CASE("request: node labels go to 2.54 and newer only") {
    JobRequest r = request();
    r.node_labels = {{"ray.io/node-id", "abc"}};
    CHECK(body_of(r, {}, 54)["entrypoint_label_selector"]["ray.io/node-id"] == "abc");
    const auto refused = submission_body(r, {}, server(52));
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind == ErrorKind::usage);
}

TEST_CASE("request: an entrypoint that no shell takes is refused before it is sent") {
    JobRequest r = request();
    r.entrypoint.assign(131'071, 'x');
    CHECK(submission_body(r, {}, server(60)));
    r.entrypoint += 'x';
    CHECK(submission_body(r, {}, server(60)).error().kind == ErrorKind::usage);
    r.entrypoint = "echo \xff";
    CHECK(submission_body(r, {}, server(60)).error().kind == ErrorKind::usage);
}

TEST_CASE("environment: every '$' is named, all other bytes stay") {
    CHECK(escaped("a$HOME") == "a${A0_DOLLAR}HOME");
    CHECK(escaped("$$b$") == "${A0_DOLLAR}${A0_DOLLAR}b${A0_DOLLAR}");
    CHECK(escaped("100% %HOME% \\ ' \" \n") == "100% %HOME% \\ ' \" \n");
    CHECK(escaped("${lower}") == "${A0_DOLLAR}{lower}");
    CHECK(escaped("").empty());
    CHECK(escape_environment({{"B", "$"}})->at("A0_DOLLAR") == "$");
    CHECK(escape_environment({{"B", "plain"}})->count("A0_DOLLAR") == 0);
}

TEST_CASE("environment: what cannot arrive whole is refused, and its value is not told") {
    const auto refuse = [](std::vector<JobEnv> env) {
        const auto result = escape_environment(env);
        REQUIRE_FALSE(result);
        CHECK(result.error().kind == ErrorKind::usage);
        CHECK(result.error().text().find("hunter2") == std::string::npos);
        CHECK(result.error().hint.find("hunter2") == std::string::npos);
    };
    refuse({{"SECRET", "hunter2${HOME}"}});
    refuse({{"SECRET", "hunter2${A0_DOLLAR}"}});
    refuse({{"SECRET", "hunter2\xff"}});
    refuse({{"SECRET", std::string("hunter2\0x", 9)}});
    refuse({{"A", "hunter2$"}});
    refuse({{"A0_DOLLAR", "hunter2"}, {"SECRET", "$"}});
    CHECK(escape_environment({{"A", "no sign"}}));
}

TEST_CASE("environment: later entries win") { CHECK(escape_environment({{"X", "1"}, {"X", "2"}})->at("X") == "2"); }

}  // namespace gdnctl::ray
