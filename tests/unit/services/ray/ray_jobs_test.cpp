// The Ray backend's calls, against a dashboard by script.
#include "services/job/job.h"
#include "support/temp_dir.h"
#include "unit/services/ray/ray_fixture.h"

namespace gdnctl::ray {

TEST_CASE("ray: a refused token costs one request and names the places looked at") {
    RayFixture world;
    world.token = "s3cret-token";
    world.get("/api/version").reply(401, "Unauthorized: Missing authentication token");
    const auto failed = world.backend()->submit(RayFixture::request());
    REQUIRE_FALSE(failed);
    CHECK(failed.error().kind == ErrorKind::authentication);
    CHECK(failed.error().hint.find("RAY_AUTH_TOKEN") != std::string::npos);
    CHECK(failed.error().text().find("s3cret") == std::string::npos);
}

TEST_CASE("ray: the token goes as a secret header, exactly spelt, and only so") {
    RayFixture world;
    world.token = "s3cret-token";
    world.get("/api/jobs/job-1").reply(200, RayFixture::job("job-1", "RUNNING")).look([](const HttpRequest& r) {
        REQUIRE(r.secret_headers.size() == 1);
        CHECK(r.secret_headers[0] == std::pair<std::string, std::string>("Authorization", "Bearer s3cret-token"));
        CHECK(r.headers.empty());
        CHECK(r.url.find("s3cret") == std::string::npos);
    });
    CHECK(world.backend()->details("job-1"));
}

TEST_CASE("ray: a job that is not there, a ghost, a route that is not there") {
    RayFixture world;
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
    RayFixture world;
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
    RayFixture world;
    world.get("/api/jobs/j").reply(200, "{\"status\":\"FAILED\",\"message\":\"bad \xff byte\"}");
    CHECK(world.backend()->details("j")->message == "bad \xef\xbf\xbd byte");
    world.get("/api/jobs/j").reply(200, "<html><title>Sign in</title></html>");
    const auto page = world.backend()->details("j");
    REQUIRE_FALSE(page);
    CHECK(page.error().kind == ErrorKind::infrastructure);
    CHECK(page.error().text().find("Sign in") != std::string::npos);
}

TEST_CASE("ray: values of environment variables are never kept") {
    RayFixture world;
    world.get("/api/jobs/j")
        .reply(200,
               R"({"status":"RUNNING","runtime_env":{"env_vars":{"HF_TOKEN":"hunter2","RAY_AUTH_TOKEN":"hunter3"}}})");
    const auto job = world.backend()->details("j");
    REQUIRE(job);
    CHECK(job->env_names == std::vector<std::string>{"HF_TOKEN", "RAY_AUTH_TOKEN"});
    CHECK(to_text(job_details_json(*job)).find("hunter") == std::string::npos);
}

TEST_CASE("ray poll: one request, whatever comes") {
    RayFixture world;
    world.get("/api/jobs/j").fail(RayFixture::refused());
    CHECK(world.backend()->poll("j").error().kind == ErrorKind::infrastructure);
    world.get("/api/jobs/j").reply(502, "bad gateway");
    CHECK(world.backend()->poll("j").error().kind == ErrorKind::infrastructure);
    world.get("/api/jobs/j").fail({ErrorKind::timeout, "not finished within the time limit of 60 s", {}, {}});
    CHECK(world.backend()->poll("j").error().kind == ErrorKind::infrastructure);
    CHECK(world.clock.sleeps().empty());
}

TEST_CASE("ray details: the job server's crash and a restarting dashboard are borne") {
    RayFixture world;
    world.get("/api/jobs/j").reply(500, "500 Internal Server Error\n\nServer got itself in trouble");
    world.get("/api/jobs/j").fail(RayFixture::refused());
    world.get("/api/jobs/j").reply(200, RayFixture::job("j", "RUNNING"));
    CHECK(world.backend()->details("j"));
    CHECK(world.clock.sleeps() ==
          std::vector<std::chrono::milliseconds>{std::chrono::milliseconds(500), std::chrono::milliseconds(750)});
    CHECK(world.route->asked == 3);  // a dead tunnel gets its chance each time
}

TEST_CASE("ray details: a refused connection is given 3 s at first, 30 s once the server has answered") {
    struct Refusing final : Http {
        int answers = 0;
        Result<HttpResponse> send(const HttpRequest&) override {
            if (answers-- <= 0) return tl::unexpected(RayFixture::refused());
            HttpResponse answer;
            answer.status = 503;
            return answer;
        }
    };
    const auto waited = [](int answers, bool one_shot) {
        RayFixture world;
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
            return tl::unexpected(RayFixture::refused());
        }
    };
    using namespace std::chrono_literals;
    RayFixture world;
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
    RayFixture world;
    Json job = *parse_json(RayFixture::job("j", "FAILED"), "job");
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
    RayFixture world;
    world.clock.when_asleep([&] { world.stop.request_stop(); });
    world.get("/api/jobs/j").fail(RayFixture::refused());
    CHECK(world.backend()->details("j").error().kind == ErrorKind::interrupted);
}

TEST_CASE("ray list: newest first, without ghosts and nonsense, whatever the pieces") {
    RayFixture world;
    world.get("/api/jobs/")
        .reply(200, R"([{"submission_id":"a","status":"RUNNING","start_time":5},{"status":"FAILED","entrypoint":
        "Entrypoint not found.","start_time":null},{"x":1},{"submission_id":"b","status":"PENDING","start_time":9},
        {"job_id":"02000000","submission_id":null,"type":"DRIVER","status":"SUCCEEDED","start_time":7}])");
    const auto jobs = world.backend()->list({});
    REQUIRE(jobs);
    REQUIRE(jobs->size() == 3);
    CHECK((*jobs)[0].submission_id == "b");
    CHECK((*jobs)[1].submission_id == "02000000");
    world.get("/api/jobs/").reply(200, "[]");
    CHECK(world.backend()->list({})->empty());
    world.get("/api/jobs/").reply(200, "<html><title>Sign in</title>");
    CHECK(world.backend()->list({}).error().kind == ErrorKind::infrastructure);
    world.get("/api/jobs/").reply(200, R"([{"submission_id":"a","status":"RUNNING"})");
    CHECK(world.backend()->list({}).error().kind == ErrorKind::infrastructure);
}

TEST_CASE("ray stop: true, false, unknown") {
    RayFixture world;
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
    RayFixture world;
    const auto jobs = world.backend();
    world.get("/api/jobs/j").reply(200, RayFixture::job("j", "SUCCEEDED"));
    world.http.expect("DELETE", k_base + "/api/jobs/j").reply(200, R"({"deleted": true})");
    CHECK(jobs->remove("j"));
    CHECK(world.clock.sleeps() == std::vector<std::chrono::milliseconds>{std::chrono::seconds(5)});
    world.get("/api/jobs/j").reply(200, RayFixture::job("j", "RUNNING"));
    CHECK(jobs->remove("j").error().kind == ErrorKind::conflict);
    world.get("/api/jobs/j").reply(200, RayFixture::job("j", "FAILED"));
    world.http.expect("DELETE", k_base + "/api/jobs/j")
        .reply(500, "RuntimeError: Attempted to delete job 'j', but it is in a non-terminal state RUNNING.");
    CHECK(jobs->remove("j").error().kind == ErrorKind::conflict);
}

TEST_CASE("ray: the date may jump, waiting does not care") {
    RayFixture world;
    world.clock.when_asleep([&] { world.clock.jump_wall(std::chrono::hours(-24)); });
    world.get("/api/jobs/j").fail(RayFixture::refused());
    world.get("/api/jobs/j").reply(200, RayFixture::job("j", "RUNNING"));
    CHECK(world.backend()->details("j"));
}

// Submitting to a dashboard by script: one job, whatever becomes of the answers; packages.

TEST_CASE("ray submit: accepted, with the session it was accepted in") {
    RayFixture world;
    world.version();
    world.post("/api/jobs/").reply(200, R"({"job_id":"job-1","submission_id":"job-1"})").look([](const HttpRequest& r) {
        CHECK(parse_json(r.body, "body")->at("metadata").at("nonce") == "0123456789abcdef");
    });
    const auto submitted = world.backend()->submit(RayFixture::request());
    REQUIRE(submitted);
    CHECK(submitted->submission_id == "job-1");
    CHECK(submitted->session == "session_1");
}

TEST_CASE("ray submit: no available agent twice, then one job") {
    RayFixture world;
    world.version();
    for (int i = 0; i < 2; ++i) {
        world.post("/api/jobs/").reply(500, k_no_agent);
        world.get("/api/jobs/job-1").reply(404, "Job job-1 does not exist");
    }
    world.post("/api/jobs/").reply(200, R"({"submission_id":"job-1"})");
    CHECK(world.backend()->submit(RayFixture::request()));
}

TEST_CASE("ray submit: no available agent for ever is exit 4 after thirty seconds") {
    RayFixture world;
    world.version();
    for (int i = 0; i < 10; ++i) {
        world.post("/api/jobs/").reply(500, k_no_agent);
        world.get("/api/jobs/job-1").reply(404, "Job job-1 does not exist");
    }
    const auto submitted = world.backend()->submit(RayFixture::request());
    REQUIRE_FALSE(submitted);
    CHECK(submitted.error().kind == ErrorKind::infrastructure);
    std::chrono::milliseconds waited{0};
    for (const auto d : world.clock.sleeps()) waited += d;
    CHECK(waited <= std::chrono::seconds(30));
    CHECK(waited >= std::chrono::seconds(25));
}

TEST_CASE("ray submit: the answer is cut, the job is there: one job") {
    RayFixture world;
    world.version();
    world.post("/api/jobs/").fail(RayFixture::refused());
    world.get("/api/jobs/job-1").reply(200, RayFixture::job("job-1", "PENDING"));
    CHECK(world.backend()->submit(RayFixture::request()));
}

TEST_CASE("ray submit: the answer is cut, GET says 404 first, the second POST says taken: one job") {
    RayFixture world;
    world.version();
    world.post("/api/jobs/").fail(RayFixture::refused());
    world.get("/api/jobs/job-1").reply(404, "Job job-1 does not exist");
    world.post("/api/jobs/").reply(500, k_taken);
    world.get("/api/jobs/job-1").reply(200, RayFixture::job("job-1", "PENDING"));
    const auto submitted = world.backend()->submit(RayFixture::request());
    REQUIRE(submitted);
    CHECK(submitted->submission_id == "job-1");
}

TEST_CASE("ray submit: taken with a foreign nonce is exit 2") {
    RayFixture world;
    world.version();
    world.post("/api/jobs/").fail(RayFixture::refused());
    world.get("/api/jobs/job-1").fail(RayFixture::refused());
    world.post("/api/jobs/").reply(500, k_taken);
    world.get("/api/jobs/job-1").reply(200, RayFixture::job("job-1", "RUNNING", "another"));
    const auto submitted = world.backend()->submit(RayFixture::request());
    REQUIRE_FALSE(submitted);
    CHECK(submitted.error().kind == ErrorKind::usage);
    CHECK(submitted.error().message == job_message::already_exists("job-1"));
}

TEST_CASE("ray submit: an id that is there before us is exit 2 at once") {
    RayFixture world;
    world.version();
    world.post("/api/jobs/").reply(500, k_taken);
    world.get("/api/jobs/job-1").reply(200, RayFixture::job("job-1", "SUCCEEDED", "someone else's"));
    CHECK(world.backend()->submit(RayFixture::request()).error().kind == ErrorKind::usage);
    CHECK(world.clock.sleeps().empty());
}

TEST_CASE("ray submit: taken by ourselves on a connection that died below us is one job") {
    RayFixture world;
    world.version();
    world.post("/api/jobs/").reply(500, k_taken);
    world.get("/api/jobs/job-1").reply(200, RayFixture::job("job-1", "PENDING"));
    CHECK(world.backend()->submit(RayFixture::request()));
}

TEST_CASE("ray submit: a crash of the job server may have taken the job: asked once, never sent again") {
    RayFixture world;
    const char* trouble = "500 Internal Server Error\n\nServer got itself in trouble";
    world.version();
    world.post("/api/jobs/").reply(500, trouble);
    world.get("/api/jobs/job-1").reply(200, RayFixture::job("job-1", "PENDING"));
    CHECK(world.backend()->submit(RayFixture::request()));
    world.version();
    world.post("/api/jobs/").reply(500, trouble);
    world.get("/api/jobs/job-1").reply(404, "Job job-1 does not exist");
    const auto failed = world.backend()->submit(RayFixture::request());
    REQUIRE_FALSE(failed);
    CHECK(failed.error().kind == ErrorKind::infrastructure);
    CHECK(failed.error().hint.find("ray-wait job-1") != std::string::npos);
}

TEST_CASE("ray submit: 400, 405 are exit 2 and 401, 403 exit 5, each after one POST") {
    for (const auto& [status, kind] :
         {std::pair(400, ErrorKind::usage), std::pair(405, ErrorKind::usage), std::pair(401, ErrorKind::authentication),
          std::pair(403, ErrorKind::authentication)}) {
        RayFixture world;
        world.version();
        world.post("/api/jobs/").reply(status, "no");
        CHECK(world.backend()->submit(RayFixture::request()).error().kind == kind);
    }
}

TEST_CASE("ray submit: what only the local backend does is refused") {
    RayFixture world;
    world.version();
    JobRequest r = RayFixture::request();
    r.keep_workdir = true;
    CHECK(world.backend()->submit(r).error().kind == ErrorKind::usage);
}

namespace {

// A tree of two files, and the names under which it was asked for and sent.
struct Upload {
    RayFixture world;
    test::TempDir dir;
    JobRequest request = RayFixture::request();
    std::string asked, sent, uri, bytes;

    Upload() {
        test::write_text(dir / "a.txt", "hello\n");
        test::write_text(dir / "run.sh", "echo\n");
        request.working_dir = WorkingTree{dir.path(), {"a.txt", "run.sh", "gone.txt"}};
    }
};

// As much of a server as packages need; says 404 to the first `absent` questions.
class PackageHttp final : public Http {
public:
    PackageHttp(test::FakeClock& clock, Upload& upload) : m_clock(clock), m_upload(upload) {}
    int absent = 1, puts = 0, gets = 0;
    int put_status = 200;
    std::chrono::milliseconds put_takes{0};
    std::vector<std::string> order;

    Result<HttpResponse> send(const HttpRequest& request) override {
        HttpResponse answer;
        answer.status = 200;
        const std::string path = request.url.substr(k_base.size());
        order.push_back(request.method + " " + path.substr(0, path.find("_ray_pkg")));
        if (path == "/api/version") answer.body = R"({"version":"4","ray_version":"2.60.0","session_name":"s"})";
        if (path.starts_with("/api/packages/gcs/") && request.method == "GET") {
            m_upload.asked = path.substr(18);
            if (gets++ < absent) {
                answer.status = 404;
                answer.body = "Package gcs://" + m_upload.asked + " does not exist";
            }
        }
        if (request.method == "PUT") {
            m_upload.sent = path.substr(18);
            m_upload.bytes = test::read_text(request.body_file);
            ++puts;
            m_clock.advance(put_takes);
            answer.status = put_status;
            if (put_status == 413) answer.body = "Maximum request body size 104857600 exceeded.";
        }
        if (request.method == "POST") {
            m_upload.uri = parse_json(request.body, "body")->at("runtime_env").at("working_dir").get<std::string>();
            answer.body = R"({"submission_id":"job-1"})";
        }
        return answer;
    }

private:
    test::FakeClock& m_clock;
    Upload& m_upload;
};

}  // namespace

TEST_CASE("ray package: asked for, sent when absent, named by content and job, deleted files are skipped") {
    Upload upload;
    PackageHttp http(upload.world.clock, upload);
    REQUIRE(upload.world.backend(&http)->submit(upload.request));
    CHECK(http.order == std::vector<std::string>{"GET /api/version", "GET /api/packages/gcs/", "PUT /api/packages/gcs/",
                                                 "POST /api/jobs/"});
    CHECK(upload.asked == upload.sent);
    CHECK(upload.uri == "gcs://" + upload.sent);
    REQUIRE(upload.sent.size() == 9 + 40 + 1 + 8 + 4);
    const std::string first = upload.sent;
    const std::string bytes = upload.bytes;
    CHECK(bytes.starts_with("PK"));

    upload.request.metadata["nonce"] = "another";
    http.absent = 99;
    REQUIRE(upload.world.backend(&http)->submit(upload.request));
    CHECK(upload.bytes == bytes);
    CHECK(upload.sent != first);
    CHECK(upload.sent.substr(0, 49) == first.substr(0, 49));
    CHECK(test::list_names(std::filesystem::temp_directory_path()).find("gdnctl-package-") == std::string::npos);
}

TEST_CASE("ray package: after an upload of more than ten minutes it is asked for again") {
    Upload upload;
    PackageHttp http(upload.world.clock, upload);
    http.put_takes = std::chrono::seconds(601);
    REQUIRE(upload.world.backend(&http)->submit(upload.request));
    CHECK(http.puts == 1);
    CHECK(http.gets == 2);

    PackageHttp forgetful(upload.world.clock, upload);
    forgetful.put_takes = std::chrono::seconds(601);
    forgetful.absent = 99;
    CHECK(upload.world.backend(&forgetful)->submit(upload.request).error().kind == ErrorKind::infrastructure);
    CHECK(forgetful.puts == 3);
}

TEST_CASE("ray package: 413 is exit 2 with the size and the largest files") {
    Upload upload;
    PackageHttp http(upload.world.clock, upload);
    http.put_status = 413;
    const auto refused = upload.world.backend(&http)->submit(upload.request);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind == ErrorKind::usage);
    CHECK(refused.error().hint.find("a.txt") != std::string::npos);
    CHECK(http.order.back() == "PUT /api/packages/gcs/");
}

TEST_CASE("ray package: the limit is noticed while packing, and a stop request is, too") {
    test::TempDir dir;
    WorkingTree tree{dir.path(), {}};
    std::string noise(std::size_t{1} << 20, '\0');
    std::uint32_t state = 1;
    for (char& c : noise)
        c = static_cast<char>(static_cast<unsigned char>((state = state * 1664525 + 1013904223) >> 24));
    for (int i = 0; i < 8; ++i) {
        tree.files.push_back("f" + std::to_string(i));
        test::write_text(dir / tree.files.back(), noise);
    }
    const auto refused = pack_tree(tree, dir / "p.zip", {}, 2'000'000);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind == ErrorKind::usage);
    CHECK(refused.error().message.find("8 files of 8.4 MB") != std::string::npos);
    CHECK(std::filesystem::file_size(dir / "p.zip") < 2'600'000);  // it did not go on to the end
    std::stop_source stop;
    stop.request_stop();
    const auto stopped = pack_tree(tree, dir / "q.zip", stop.get_token());
    REQUIRE_FALSE(stopped);
    CHECK(stopped.error().kind == ErrorKind::interrupted);
}

TEST_CASE("ray package: links to folders are seen through, whichever of their files come first") {
    test::TempDir dir;
    std::filesystem::create_directories(dir / "real/sub");
    test::write_text(dir / "real/sub/a", "a");
    test::write_text(dir / "real/b", "b");
    std::filesystem::create_directory_symlink("real", dir / "link");
    test::TempDir other;
    test::write_text(other / "c", "c");
    WorkingTree tree{dir.path(), {"link/b", "link/sub/a", "real/b", "real/sub/a"}};
    CHECK(pack_tree(tree, dir.path() / "p.zip", {}));
    std::filesystem::create_directory_symlink(other.path(), dir / "real/out");
    tree.files = {"real/b", "real/out/c"};
    const auto refused = pack_tree(tree, dir.path() / "p.zip", {});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message.find("unsafe path: real/out/c") != std::string::npos);
}

TEST_CASE("ray package: more than the limit is exit 2 and names ten files, largest first") {
    test::TempDir dir;
    WorkingTree tree{dir.path(), {}};
    for (int i = 10; i < 24; ++i) {
        tree.files.push_back("f" + std::to_string(i));
        test::write_text(dir / tree.files.back(), std::string(static_cast<std::size_t>(i), 'x'));
    }
    const auto refused = pack_tree(tree, dir / "p.zip", {}, 100);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind == ErrorKind::usage);
    const std::string& hint = refused.error().hint;
    CHECK(hint.find("f23") < hint.find("f14"));
    CHECK(hint.find("f14") != std::string::npos);
    CHECK(hint.find("f13") == std::string::npos);
}

}  // namespace gdnctl::ray
