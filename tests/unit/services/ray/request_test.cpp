// The body of a submission: what the server takes, and values that arrive byte for byte.
#include "services/ray/request.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

namespace gdnctl::ray {

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
