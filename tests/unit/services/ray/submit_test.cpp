// Submitting to a dashboard by script: one job, whatever becomes of the answers; packages.
#include "ray_world.h"
#include "services/job/package.h"
#include "support/temp_dir.h"

namespace gdnctl::ray {

TEST_CASE("ray submit: accepted, with the session it was accepted in") {
    RayWorld world;
    world.version();
    world.post("/api/jobs/").reply(200, R"({"job_id":"job-1","submission_id":"job-1"})").look([](const HttpRequest& r) {
        CHECK(parse_json(r.body, "body")->at("metadata").at("nonce") == "0123456789abcdef");
        CHECK(r.max_redirects == 0);
    });
    const auto submitted = world.backend()->submit(RayWorld::request());
    REQUIRE(submitted);
    CHECK(submitted->submission_id == "job-1");
    CHECK(submitted->session == "session_1");
}

TEST_CASE("ray submit: no available agent twice, then one job") {
    RayWorld world;
    world.version();
    for (int i = 0; i < 2; ++i) {
        world.post("/api/jobs/").reply(500, k_no_agent);
        world.get("/api/jobs/job-1").reply(404, "Job job-1 does not exist");
    }
    world.post("/api/jobs/").reply(200, R"({"submission_id":"job-1"})");
    CHECK(world.backend()->submit(RayWorld::request()));
}

TEST_CASE("ray submit: no available agent for ever is exit 4 after thirty seconds") {
    RayWorld world;
    world.version();
    for (int i = 0; i < 10; ++i) {
        world.post("/api/jobs/").reply(500, k_no_agent);
        world.get("/api/jobs/job-1").reply(404, "Job job-1 does not exist");
    }
    const auto submitted = world.backend()->submit(RayWorld::request());
    REQUIRE_FALSE(submitted);
    CHECK(submitted.error().kind == ErrorKind::infrastructure);
    std::chrono::milliseconds waited{0};
    for (const auto d : world.clock.sleeps()) waited += d;
    CHECK(waited <= std::chrono::seconds(30));
    CHECK(waited >= std::chrono::seconds(25));
}

TEST_CASE("ray submit: the answer is cut, the job is there: one job") {
    RayWorld world;
    world.version();
    world.post("/api/jobs/").fail(RayWorld::refused());
    world.get("/api/jobs/job-1").reply(200, RayWorld::job("job-1", "PENDING"));
    CHECK(world.backend()->submit(RayWorld::request()));
}

TEST_CASE("ray submit: the answer is cut, GET says 404 first, the second POST says taken: one job") {
    RayWorld world;
    world.version();
    world.post("/api/jobs/").fail(RayWorld::refused());
    world.get("/api/jobs/job-1").reply(404, "Job job-1 does not exist");
    world.post("/api/jobs/").reply(500, k_taken);
    world.get("/api/jobs/job-1").reply(200, RayWorld::job("job-1", "PENDING"));
    const auto submitted = world.backend()->submit(RayWorld::request());
    REQUIRE(submitted);
    CHECK(submitted->submission_id == "job-1");
}

TEST_CASE("ray submit: taken with a foreign nonce is exit 2") {
    RayWorld world;
    world.version();
    world.post("/api/jobs/").fail(RayWorld::refused());
    world.get("/api/jobs/job-1").fail(RayWorld::refused());
    world.post("/api/jobs/").reply(500, k_taken);
    world.get("/api/jobs/job-1").reply(200, RayWorld::job("job-1", "RUNNING", "another"));
    const auto submitted = world.backend()->submit(RayWorld::request());
    REQUIRE_FALSE(submitted);
    CHECK(submitted.error().kind == ErrorKind::usage);
    CHECK(submitted.error().message == job_message::already_exists("job-1"));
}

TEST_CASE("ray submit: an id that is there before us is exit 2 at once") {
    RayWorld world;
    world.version();
    world.post("/api/jobs/").reply(500, k_taken);
    world.get("/api/jobs/job-1").reply(200, RayWorld::job("job-1", "SUCCEEDED", "someone else's"));
    CHECK(world.backend()->submit(RayWorld::request()).error().kind == ErrorKind::usage);
    CHECK(world.clock.sleeps().empty());
}

TEST_CASE("ray submit: taken by ourselves on a connection that died below us is one job") {
    RayWorld world;
    world.version();
    world.post("/api/jobs/").reply(500, k_taken);
    world.get("/api/jobs/job-1").reply(200, RayWorld::job("job-1", "PENDING"));
    CHECK(world.backend()->submit(RayWorld::request()));
}

TEST_CASE("ray submit: a crash of the job server may have taken the job: asked once, never sent again") {
    RayWorld world;
    const char* trouble = "500 Internal Server Error\n\nServer got itself in trouble";
    world.version();
    world.post("/api/jobs/").reply(500, trouble);
    world.get("/api/jobs/job-1").reply(200, RayWorld::job("job-1", "PENDING"));
    CHECK(world.backend()->submit(RayWorld::request()));
    world.version();
    world.post("/api/jobs/").reply(500, trouble);
    world.get("/api/jobs/job-1").reply(404, "Job job-1 does not exist");
    const auto failed = world.backend()->submit(RayWorld::request());
    REQUIRE_FALSE(failed);
    CHECK(failed.error().kind == ErrorKind::infrastructure);
    CHECK(failed.error().hint.find("ray-wait job-1") != std::string::npos);
}

TEST_CASE("ray submit: 400, 405 are exit 2 and 401, 403 exit 5, each after one POST") {
    for (const auto& [status, kind] :
         {std::pair(400, ErrorKind::usage), std::pair(405, ErrorKind::usage), std::pair(401, ErrorKind::authentication),
          std::pair(403, ErrorKind::authentication)}) {
        RayWorld world;
        world.version();
        world.post("/api/jobs/").reply(status, "no");
        CHECK(world.backend()->submit(RayWorld::request()).error().kind == kind);
    }
}

TEST_CASE("ray submit: what only the local backend does is refused") {
    RayWorld world;
    world.version();
    JobRequest r = RayWorld::request();
    r.keep_workdir = true;
    CHECK(world.backend()->submit(r).error().kind == ErrorKind::usage);
}

namespace {

// A tree of two files, and the names under which it was asked for and sent.
struct Upload {
    RayWorld world;
    test::TempDir dir;
    JobRequest request = RayWorld::request();
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
