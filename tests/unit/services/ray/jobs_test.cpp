// The Ray backend's calls, against a dashboard by script.
#include "ray_world.h"

namespace gdnctl::ray {

TEST_CASE("ray: a refused token costs one request and names the places looked at") {
    RayWorld world;
    world.token = "s3cret-token";
    world.get("/api/version").reply(401, "Unauthorized: Missing authentication token");
    const auto failed = world.backend()->submit(RayWorld::request());
    REQUIRE_FALSE(failed);
    CHECK(failed.error().kind == ErrorKind::authentication);
    CHECK(failed.error().hint.find("RAY_AUTH_TOKEN") != std::string::npos);
    CHECK(failed.error().text().find("s3cret") == std::string::npos);
}

TEST_CASE("ray: the token goes as a secret header, exactly spelt, and only so") {
    RayWorld world;
    world.token = "s3cret-token";
    world.get("/api/jobs/job-1").reply(200, RayWorld::job("job-1", "RUNNING")).look([](const HttpRequest& r) {
        REQUIRE(r.secret_headers.size() == 1);
        CHECK(r.secret_headers[0] == std::pair<std::string, std::string>("Authorization", "Bearer s3cret-token"));
        CHECK(r.headers.empty());
        CHECK(r.url.find("s3cret") == std::string::npos);
    });
    CHECK(world.backend()->details("job-1"));
}

TEST_CASE("ray: a job that is not there, a ghost, a route that is not there") {
    RayWorld world;
    const auto jobs = world.backend();
    world.get("/api/jobs/nope").reply(404, "Job nope does not exist");
    CHECK(jobs->details("nope").error().message == "Job nope does not exist");
    world.get("/api/jobs/g")
        .reply(200, R"({"status":"FAILED","entrypoint":"Entrypoint not found.","start_time":null})");
    CHECK(jobs->details("g").error().kind == ErrorKind::remote_missing);
    world.get("/api/jobs/x").reply(404, "404: Not Found");
    CHECK(jobs->details("x").error().kind == ErrorKind::infrastructure);
    world.get("/api/jobs/a%2Fb").reply(404, "Job a/b does not exist");
    CHECK(jobs->details("a/b").error().kind == ErrorKind::remote_missing);
}

TEST_CASE("ray: a record with nulls, absent, unknown and mistyped fields is read") {
    RayWorld world;
    world.get("/api/jobs/j")
        .reply(200,
               R"({"type":"SUBMISSION","status":"RUNNING","entrypoint":5,"message":null,"metadata":[1],"runtime_env":7,
                 "driver_exit_code":"x","start_time":"soon","end_time":1e300,"failure_info":{"deep":[{}]},"attempt_number":2})");
    const auto job = world.backend()->details("j");
    REQUIRE(job);
    CHECK(job->submission_id == "j");
    CHECK_FALSE(job->start_time);
    CHECK_FALSE(job->driver_exit_code);
}

TEST_CASE("ray: bytes that are not UTF-8 in a record are repaired, HTML is no record") {
    RayWorld world;
    world.get("/api/jobs/j").reply(200, "{\"status\":\"FAILED\",\"message\":\"bad \xff byte\"}");
    CHECK(world.backend()->details("j")->message == "bad \xef\xbf\xbd byte");
    world.get("/api/jobs/j").reply(200, "<html><title>Sign in</title></html>");
    const auto page = world.backend()->details("j");
    REQUIRE_FALSE(page);
    CHECK(page.error().kind == ErrorKind::infrastructure);
    CHECK(page.error().text().find("Sign in") != std::string::npos);
}

TEST_CASE("ray: values of environment variables are never kept") {
    RayWorld world;
    world.get("/api/jobs/j")
        .reply(200,
               R"({"status":"RUNNING","runtime_env":{"env_vars":{"HF_TOKEN":"hunter2","RAY_AUTH_TOKEN":"hunter3"}}})");
    const auto job = world.backend()->details("j");
    REQUIRE(job);
    CHECK(job->env_names == std::vector<std::string>{"HF_TOKEN", "RAY_AUTH_TOKEN"});
    CHECK(to_text(job_details_json(*job)).find("hunter") == std::string::npos);
}

TEST_CASE("ray poll: one request, whatever comes") {
    RayWorld world;
    world.get("/api/jobs/j").fail(RayWorld::refused());
    CHECK(world.backend()->poll("j").error().kind == ErrorKind::infrastructure);
    world.get("/api/jobs/j").reply(502, "bad gateway");
    CHECK(world.backend()->poll("j").error().kind == ErrorKind::infrastructure);
    world.get("/api/jobs/j").fail({ErrorKind::timeout, "not finished within the time limit of 60 s", {}, {}});
    CHECK(world.backend()->poll("j").error().kind == ErrorKind::infrastructure);
    CHECK(world.clock.sleeps().empty());
}

TEST_CASE("ray details: the job server's crash and a restarting dashboard are borne") {
    RayWorld world;
    world.get("/api/jobs/j").reply(500, "500 Internal Server Error\n\nServer got itself in trouble");
    world.get("/api/jobs/j").fail(RayWorld::refused());
    world.get("/api/jobs/j").reply(200, RayWorld::job("j", "RUNNING"));
    CHECK(world.backend()->details("j"));
    CHECK(world.clock.sleeps() ==
          std::vector<std::chrono::milliseconds>{std::chrono::milliseconds(500), std::chrono::milliseconds(750)});
    CHECK(world.route->asked == 3);  // a dead tunnel gets its chance each time
}

TEST_CASE("ray details: a refused connection is given 3 s at first, 30 s once the server has answered") {
    struct Refusing final : Http {
        int answers = 0;
        Result<HttpResponse> send(const HttpRequest&) override {
            if (answers-- <= 0) return tl::unexpected(RayWorld::refused());
            HttpResponse answer;
            answer.status = 503;
            return answer;
        }
    };
    const auto waited = [](int answers, bool one_shot) {
        RayWorld world;
        Refusing http;
        http.answers = answers;
        const auto backend = world.backend(&http, one_shot);
        CHECK(backend->details("j").error().kind == ErrorKind::infrastructure);
        std::chrono::milliseconds all{0};
        for (const auto sleep : world.clock.sleeps()) all += sleep;
        return all.count();
    };
    CHECK(waited(0, false) == 500 + 750 + 1125);
    CHECK(waited(0, true) == 500 + 750 + 1125);
    CHECK(waited(1, false) > 25'000);
    CHECK(waited(1, false) <= 30'000);
    CHECK(waited(1, true) == 500 + 750 + 1125);
    CHECK(waited(100, true) > 25'000);  // a server that answers is there, even to a one-shot command
}

TEST_CASE("ray: no request and no waiting lasts beyond the deadline, but for a second") {
    struct Recorder final : Http {
        std::vector<HttpRequest> seen;
        Result<HttpResponse> send(const HttpRequest& request) override {
            seen.push_back(request);
            return tl::unexpected(RayWorld::refused());
        }
    };
    using namespace std::chrono_literals;
    RayWorld world;
    Recorder http;
    const auto backend = world.backend(&http);
    CHECK_FALSE(backend->poll("j"));
    backend->set_deadline(world.clock.monotonic() + 4s);
    CHECK_FALSE(backend->poll("j"));
    backend->set_deadline(world.clock.monotonic() - 4s);
    CHECK_FALSE(backend->poll("j"));
    CHECK_FALSE(backend->details("j"));
    backend->set_deadline(std::nullopt);
    CHECK_FALSE(backend->poll("j"));
    REQUIRE(http.seen.size() == 5);
    for (const std::size_t plain : {0u, 4u}) {
        CHECK(http.seen[plain].first_byte_timeout == 15s);
        CHECK(http.seen[plain].total_timeout == 60s);
    }
    CHECK(http.seen[1].total_timeout == 4s);
    CHECK(http.seen[1].first_byte_timeout == 4s);
    CHECK(http.seen[1].connect_timeout == 4s);
    CHECK(http.seen[2].total_timeout == 1s);
    CHECK(world.clock.sleeps().empty());
}

TEST_CASE("ray: a record of ten megabytes is read, one that is too large in all is refused") {
    RayWorld world;
    Json job = *parse_json(RayWorld::job("j", "FAILED"), "job");
    job["message"] = std::string(10'000'000, 'x');
    world.get("/api/jobs/j").reply(200, job.dump());
    const auto read = world.backend()->details("j");
    REQUIRE(read);
    CHECK(read->message.size() == std::size_t{1} << 20);
    for (int i = 0; i < 10; ++i) job["metadata"]["k" + std::to_string(i)] = std::string(1'000'000, 'y');
    world.get("/api/jobs/j").reply(200, job.dump());
    CHECK(world.backend()->poll("j").error().kind == ErrorKind::infrastructure);
}

TEST_CASE("ray: a stop request ends the waiting between two tries") {
    RayWorld world;
    world.clock.when_asleep([&] { world.stop.request_stop(); });
    world.get("/api/jobs/j").fail(RayWorld::refused());
    CHECK(world.backend()->details("j").error().kind == ErrorKind::interrupted);
}

TEST_CASE("ray list: newest first, without ghosts and nonsense, whatever the pieces") {
    RayWorld world;
    world.get("/api/jobs/")
        .reply(200, R"([{"submission_id":"a","status":"RUNNING","start_time":5},{"status":"FAILED","entrypoint":
        "Entrypoint not found.","start_time":null},{"x":1},{"submission_id":"b","status":"PENDING","start_time":9},
        {"job_id":"02000000","submission_id":null,"type":"DRIVER","status":"SUCCEEDED","start_time":7}])");
    const auto jobs = world.backend()->list();
    REQUIRE(jobs);
    REQUIRE(jobs->size() == 3);
    CHECK((*jobs)[0].submission_id == "b");
    CHECK((*jobs)[1].submission_id == "02000000");
    world.get("/api/jobs/").reply(200, "[]");
    CHECK(world.backend()->list()->empty());
    world.get("/api/jobs/").reply(200, "<html><title>Sign in</title>");
    CHECK(world.backend()->list().error().kind == ErrorKind::infrastructure);
    world.get("/api/jobs/").reply(200, R"([{"submission_id":"a","status":"RUNNING"})");
    CHECK(world.backend()->list().error().kind == ErrorKind::infrastructure);
}

TEST_CASE("ray stop: true, false, unknown") {
    RayWorld world;
    const auto jobs = world.backend();
    world.post("/api/jobs/j/stop").reply(200, R"({"stopped": true})");
    CHECK(*jobs->stop("j"));
    world.post("/api/jobs/j/stop").reply(200, R"({"stopped": false})");
    CHECK_FALSE(*jobs->stop("j"));
    world.post("/api/jobs/j/stop").reply(404, "Job j does not exist");
    CHECK(jobs->stop("j").error().kind == ErrorKind::remote_missing);
    world.post("/api/jobs/j/stop").reply(400, "Can only stop submission type jobs");
    CHECK(jobs->stop("j").error().kind == ErrorKind::usage);
    world.post("/api/jobs/j/stop").reply(200, "<html>");
    CHECK(jobs->stop("j").error().kind == ErrorKind::infrastructure);
}

TEST_CASE("ray remove: not before the server has done with the job, never while it runs") {
    RayWorld world;
    const auto jobs = world.backend();
    world.get("/api/jobs/j").reply(200, RayWorld::job("j", "SUCCEEDED"));
    world.http.expect("DELETE", k_base + "/api/jobs/j").reply(200, R"({"deleted": true})");
    CHECK(jobs->remove("j"));
    CHECK(world.clock.sleeps() == std::vector<std::chrono::milliseconds>{std::chrono::seconds(5)});
    world.get("/api/jobs/j").reply(200, RayWorld::job("j", "RUNNING"));
    CHECK(jobs->remove("j").error().kind == ErrorKind::conflict);
    world.get("/api/jobs/j").reply(200, RayWorld::job("j", "FAILED"));
    world.http.expect("DELETE", k_base + "/api/jobs/j")
        .reply(500, "RuntimeError: Attempted to delete job 'j', but it is in a non-terminal state RUNNING.");
    CHECK(jobs->remove("j").error().kind == ErrorKind::conflict);
}

TEST_CASE("ray: the date may jump, waiting does not care") {
    RayWorld world;
    world.clock.when_asleep([&] { world.clock.jump_wall(std::chrono::hours(-24)); });
    world.get("/api/jobs/j").fail(RayWorld::refused());
    world.get("/api/jobs/j").reply(200, RayWorld::job("j", "RUNNING"));
    CHECK(world.backend()->details("j"));
}

}  // namespace gdnctl::ray
