// The Iris backend's calls, against a controller by script.
#include "core/base64.h"
#include "platform/hash.h"
#include "services/job/job.h"
#include "support/temp_dir.h"
#include "unit/services/iris/iris_fixture.h"

namespace gdnctl::iris {

namespace {

std::string read_all(JobLog& log) {
    std::string text;
    const auto read = log.pump([&](std::string_view bytes) {
        text += bytes;
        return true;
    });
    CHECK(read);
    return text;
}

std::string page(std::initializer_list<const char*> lines, int cursor, int attempt = 0) {
    Json answer;
    answer["entries"] = Json::array();
    for (const char* line : lines) answer["entries"].push_back(Json{{"data", line}, {"attemptId", attempt}});
    answer["cursor"] = std::to_string(cursor);
    return answer.dump();
}

}  // namespace

TEST_CASE("iris submit: one request, whose name the controller may change") {
    IrisFixture world;
    const auto jobs = world.backend();
    world.post("LaunchJob").reply(200, R"({"jobId":"/me/job-1"})").look([](const HttpRequest& r) {
        const Json body = Json::parse(r.body);
        CHECK(body["name"].get<std::string>() == "/me/job-1");
        CHECK(!body.contains("bundleBlob"));
    });
    CHECK(jobs->submit(IrisFixture::request())->submission_id == "job-1");
    world.post("LaunchJob").reply(200, R"({"jobId":"/robot/job-2"})");
    CHECK(jobs->submit(IrisFixture::request("job-2"))->submission_id == "/robot/job-2");
    CHECK(jobs->job_url("/robot/job-2") == k_iris_base + "/#/job/%2Frobot%2Fjob-2");
}

TEST_CASE("iris submit: the tree is the last field of the request") {
    IrisFixture world;
    test::TempDir folder;
    test::write_text(folder / "a.txt", "hello");
    JobRequest job = IrisFixture::request();
    job.working_dir = WorkingTree{folder.path(), {"a.txt"}, {}};
    world.post("LaunchJob").reply(200, R"({"jobId":"/me/job-1"})").look([](const HttpRequest& r) {
        std::ifstream in(r.body_file, std::ios::binary);
        const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
        const Json body = Json::parse(text);
        const auto zip = from_base64(body["bundleBlob"].get<std::string>());
        REQUIRE(zip);
        CHECK(zip->starts_with("PK"));
        CHECK(body["existingJobPolicy"].get<std::string>() == "EXISTING_JOB_POLICY_ERROR");
    });
    CHECK(world.backend()->submit(job));
}

TEST_CASE("iris submit: an answer that is lost never makes two jobs") {
    IrisFixture world;
    world.post("LaunchJob").fail({ErrorKind::infrastructure, "the connection was cut", {}, {}});
    world.plays("launch_errors", "err_dup_error");
    world.post("GetJobStatus").reply(200, IrisFixture::status("job-1", "RUNNING"));
    CHECK(world.backend()->submit(IrisFixture::request())->submission_id == "job-1");
}

TEST_CASE("iris submit: a name of somebody else's job is taken") {
    IrisFixture world;
    world.plays("launch_errors", "err_dup_error");
    world.post("GetJobStatus").reply(200, IrisFixture::status("job-1", "SUCCEEDED", "ffffffffffffffff"));
    const auto taken = world.backend()->submit(IrisFixture::request());
    REQUIRE_FALSE(taken);
    CHECK(taken.error().kind == ErrorKind::usage);
    CHECK(taken.error().message == job_message::already_exists("job-1"));
}

TEST_CASE("iris submit: a request that can never succeed is sent once") {
    IrisFixture world;
    world.plays("launch_errors", "err_unknown_field");
    CHECK(world.backend()->submit(IrisFixture::request()).error().kind == ErrorKind::usage);
    world.plays("launch_errors", "err_unknown_tpu");
    const auto never = world.backend()->submit(IrisFixture::request());
    CHECK(never.error().message.find("no scaling group provides device tpu:v99-8") != std::string::npos);
}

TEST_CASE("iris submit: a spent budget is a warning, no answer about it is none") {
    IrisFixture world;
    JobRequest job = IrisFixture::request();
    job.resources = {{"TPU-v5p-8-head", 1}, {"TPU", 4}};
    world.plays("budget", "scheduler_state_running");
    world.post("LaunchJob").reply(200, "{}");
    const auto submitted = world.backend()->submit(job);
    REQUIRE(submitted);
    REQUIRE(submitted->warnings.size() == 1);
    CHECK(submitted->warnings[0] == "your budget on marin is spent: the job runs as BATCH and is preempted first");
    world.post("GetSchedulerState").reply(500, "no");
    world.post("LaunchJob").reply(200, "{}");
    CHECK(world.backend()->submit(job)->warnings.empty());
}

TEST_CASE("iris login: refused once, renewed once; then the error says where to log in") {
    IrisFixture world;
    world.route->minted = 1;
    world.route->tokens = 2;
    const auto jobs = world.backend();
    const auto token = [](const char* value) {
        return
            [value](const HttpRequest& r) { CHECK(r.secret_headers == HttpHeaders{{"Proxy-Authorization", value}}); };
    };
    world.post("GetJobStatus").reply(401, R"({"error":"authentication failed"})").look(token("Bearer token-1"));
    world.post("GetJobStatus").reply(200, IrisFixture::status("j", "PENDING")).look(token("Bearer token-2"));
    CHECK(jobs->details("j"));
    world.post("GetJobStatus").reply(401, R"({"error":"authentication failed"})");
    const auto refused = jobs->details("j");
    CHECK(refused.error().kind == ErrorKind::authentication);
    CHECK(refused.error().message == "authentication failed");
    CHECK(refused.error().hint == "iris --cluster marin login");
}

TEST_CASE("iris poll: the state alone while nothing changes") {
    IrisFixture world;
    const auto jobs = world.backend();
    world.post("GetJobStatus").reply(200, IrisFixture::status("j", "PENDING"));
    CHECK(jobs->poll("j")->state == JobState::pending);
    world.post("GetJobStatus").reply(200, IrisFixture::status("j", "RUNNING"));
    world.post("ListTasks").reply(200, IrisFixture::task("j", "RUNNING", false));
    CHECK(jobs->poll("j")->state == JobState::running);
    world.post("GetJobState").reply(200, R"({"states":{"/me/j":"JOB_STATE_RUNNING"}})");
    CHECK(jobs->poll("j")->state == JobState::running);
    world.post("GetJobState").reply(200, R"({"states":{"/me/j":"JOB_STATE_SUCCEEDED"}})");
    world.post("GetJobStatus").reply(200, IrisFixture::status("j", "SUCCEEDED"));
    world.post("ListTasks").reply(200, IrisFixture::task("j", "SUCCEEDED", true));
    CHECK(jobs->poll("j")->state == JobState::succeeded);
}

TEST_CASE("iris poll: a record that vanished gets a second look") {
    IrisFixture world;
    const auto jobs = world.backend();
    world.post("GetJobStatus").reply(404, R"({"code":"not_found","message":"Job /me/j not found"})");
    CHECK(jobs->poll("j").error().message == "Job j does not exist");
    CHECK(world.clock.sleeps().empty());
    world.post("GetJobStatus").reply(200, IrisFixture::status("j", "RUNNING"));
    world.post("ListTasks").reply(200, "{}");
    CHECK(jobs->poll("j"));
    world.post("GetJobState").reply(200, "{}");
    world.post("GetJobStatus").reply(404, R"({"code":"not_found","message":"Job /me/j not found"})");
    world.post("GetJobStatus").reply(200, IrisFixture::status("j", "RUNNING"));
    world.post("ListTasks").reply(200, "{}");
    CHECK(jobs->poll("j"));
    CHECK(world.clock.sleeps() == std::vector<std::chrono::milliseconds>{std::chrono::milliseconds(2000)});
}

TEST_CASE("iris details: the cause of a failure") {
    IrisFixture world;
    world.plays("status", "status_exit3");
    world.plays("tasks", "tasks_two");
    world.plays("outputs_and_cause", "task_root_cause");
    const auto job = world.backend()->details("exit3");
    REQUIRE(job);
    REQUIRE(job->root_cause.size() == 3);
    CHECK(job->root_cause.back() == "ValueError: shapes do not match");
}

TEST_CASE("iris stop: a job runs until its processes are gone, a holder is completed") {
    IrisFixture world;
    const auto jobs = world.backend();
    world.post("GetJobStatus").reply(200, IrisFixture::status("j", "RUNNING"));
    world.post("TerminateJob").reply(200, "{}");
    CHECK(*jobs->stop("j"));
    world.post("GetJobStatus").reply(200, IrisFixture::status("j", "KILLED"));
    world.post("ListTasks").reply(200, IrisFixture::task("j", "KILLED", false));
    CHECK(jobs->poll("j")->state == JobState::running);
    world.post("GetJobStatus").reply(200, IrisFixture::status("j", "KILLED"));
    world.post("ListTasks").reply(200, IrisFixture::task("j", "KILLED", true));
    CHECK(jobs->poll("j")->state == JobState::stopped);
    world.post("GetJobStatus").reply(200, IrisFixture::status("j", "KILLED"));
    CHECK_FALSE(*jobs->stop("j"));
    world.post("GetJobStatus").reply(200, IrisFixture::status("gdnctl-hold-me-a", "PENDING"));
    world.post("CompleteJob").reply(200, "{}");
    CHECK(*jobs->stop("gdnctl-hold-me-a"));
}

TEST_CASE("iris list: the query, and what holds are about") {
    IrisFixture world;
    Json item{{"jobId", "/me/gdnctl-hold-me-a"}, {"state", "JOB_STATE_RUNNING"}};
    Json done{{"jobId", "/me/gdnctl-test-me-1"}, {"state", "JOB_STATE_SUCCEEDED"}};
    world.post("ListJobs").reply(200, Json{{"jobs", Json::array({item, done})}}.dump()).look([](const HttpRequest& r) {
        CHECK(r.body == R"({"query":{"scope":"JOB_QUERY_SCOPE_ROOTS","jobIdPrefix":"/me/","nameFilter":"gdnctl-",)"
                        R"("sortField":"JOB_SORT_FIELD_DATE","sortDirection":"SORT_DIRECTION_DESC","limit":500}})");
    });
    world.post("GetJobStatus").reply(200, IrisFixture::status("gdnctl-hold-me-a", "RUNNING"));
    const auto jobs = world.backend()->list({"me", "gdnctl-"});
    REQUIRE(jobs);
    REQUIRE(jobs->size() == 2);
    CHECK((*jobs)[0].metadata.at("nonce") == "0123456789abcdef");
    CHECK((*jobs)[1].metadata.at("kind") == "test");
}

TEST_CASE("iris outputs: of the job and of its children") {
    IrisFixture world;
    world.plays("children", "list_children");
    world.plays("outputs_and_cause", "tasks_output_archive");
    world.post("ListTasks").reply(200, "{}").look([](const HttpRequest& r) {
        CHECK(r.body == R"({"jobId":"/me/par-1795837335/kid"})");
    });
    const auto outputs = world.backend()->outputs("out-1");
    REQUIRE(outputs);
    CHECK(outputs->size() == 1);
}

TEST_CASE("iris log: pages with a cursor, and the attempt that begins") {
    IrisFixture world;
    const auto jobs = world.backend();
    world.post("GetJobStatus").reply(200, IrisFixture::status("j", "RUNNING"));
    world.post("ListTasks").reply(200, "{}");
    const auto log = jobs->open_log("j", {.follow = true});
    REQUIRE(log);
    world.post("FetchLogs").reply(200, page({"a", "", "b\x1b"}, 7)).look([](const HttpRequest& r) {
        CHECK(r.body == R"({"source":"/me/j/","matchScope":"MATCH_SCOPE_PREFIX","maxLines":2000,"cursor":"0"})");
    });
    world.post("FetchLogs").reply(200, R"({"cursor":"7"})").look([](const HttpRequest& r) {
        CHECK(r.body.find(R"("cursor":"7")") != std::string::npos);
    });
    CHECK(read_all(**log) == "a\n\nb\x1b\n");
    world.post("FetchLogs").fail({ErrorKind::infrastructure, "away", {}, {}});
    CHECK_FALSE((*log)->pump([](std::string_view) { return true; }));
    world.post("FetchLogs").reply(200, page({"c"}, 9, 1));
    world.post("FetchLogs").reply(200, R"({"cursor":"9"})");
    CHECK(read_all(**log) == "c\n");
    CHECK(IrisFixture::said().find("attempt 2 began") != std::string::npos);
}

TEST_CASE("iris log: lines that are too long for a page come in smaller pages") {
    IrisFixture world;
    const auto jobs = world.backend();
    world.post("GetJobStatus").reply(200, IrisFixture::status("j", "RUNNING"));
    world.post("ListTasks").reply(200, "{}");
    const auto log = jobs->open_log("j", {});
    world.post("FetchLogs").fail({ErrorKind::bad_input, "larger", {}, {}});
    world.post("FetchLogs").reply(200, page({"x"}, 1)).look([](const HttpRequest& r) {
        CHECK(r.body.find(R"("maxLines":500)") != std::string::npos);
    });
    world.post("FetchLogs").reply(200, R"({"cursor":"1"})");
    CHECK(read_all(**log) == "x\n");
}

TEST_CASE("iris log: the last lines, and lines that come after the end") {
    IrisFixture world;
    const auto jobs = world.backend();
    world.post("GetJobStatus").reply(200, IrisFixture::status("j", "RUNNING"));
    world.post("ListTasks").reply(200, "{}");
    const auto log = jobs->open_log("j", {2, true});
    world.post("FetchLogs").reply(200, page({"y", "z"}, 8)).look([](const HttpRequest& r) {
        CHECK(r.body.find(R"("maxLines":2,"tail":true)") != std::string::npos);
    });
    world.post("FetchLogs").reply(200, R"({"cursor":"8"})");
    CHECK(read_all(**log) == "y\nz\n");
    world.post("GetJobState").reply(200, R"({"states":{"/me/j":"JOB_STATE_SUCCEEDED"}})");
    world.post("GetJobStatus").reply(200, IrisFixture::status("j", "SUCCEEDED"));
    world.post("ListTasks").reply(200, IrisFixture::task("j", "SUCCEEDED", true));
    CHECK(jobs->poll("j"));
    for (int look = 0; look < 3; ++look) world.post("FetchLogs").reply(200, R"({"cursor":"8"})");
    world.post("FetchLogs").reply(200, page({"late"}, 9));
    for (int look = 0; look < 9; ++look) world.post("FetchLogs").reply(200, R"({"cursor":"9"})");
    CHECK(read_all(**log) == "late\n");
}

TEST_CASE("iris log: a clock that is set neither cuts nor prolongs the wait for late lines") {
    for (const int hours : {-48, 0, 48}) {
        IrisFixture world;
        const auto jobs = world.backend();
        world.post("GetJobStatus").reply(200, IrisFixture::status("j", "RUNNING"));
        world.post("ListTasks").reply(200, "{}");
        const auto log = jobs->open_log("j", {.follow = true});
        REQUIRE(log);
        world.clock.jump_wall(std::chrono::hours(hours));
        world.post("GetJobStatus").reply(200, IrisFixture::status("j", "SUCCEEDED"));
        world.post("ListTasks").reply(200, IrisFixture::task("j", "SUCCEEDED", true));
        CHECK(jobs->details("j"));
        world.clock.jump_wall(std::chrono::hours(-2 * hours));
        for (int look = 0; look < 9; ++look) world.post("FetchLogs").reply(200, R"({"cursor":"0"})");
        CHECK(read_all(**log).empty());
        CHECK(world.clock.sleeps().size() == 8);
    }
}

TEST_CASE("iris beside: a command in the holder's container, byte for byte") {
    IrisFixture world;
    const auto jobs = world.backend();
    JobRequest job = IrisFixture::request("run-1");
    job.beside = "gdnctl-hold-me-a";
    job.env = {{"V", "it's"}};
    world.post("ExecInContainer")
        .reply(200, R"({"exitCode":0,"stdout":"","stderr":"","error":""})")
        .look([](const auto& r) {
            const Json body = Json::parse(r.body);
            CHECK(body["taskId"].template get<std::string>() == "/me/gdnctl-hold-me-a/0");
            const auto words = json::texts(body, "command");
            REQUIRE(words.size() == 9);
            CHECK(words[4] == "/tmp/gdnctl-run/gdnctl-hold-me-a");
            CHECK(words[5] == "run-1");
            CHECK(words[6].empty());
            const auto script = from_base64(words[8]);
            REQUIRE(script);
            CHECK(script->find("export V='it'\\''s'\n") != std::string::npos);
            CHECK(script->ends_with("true\n"));
        });
    REQUIRE(jobs->submit(job));
    const auto look = [&](const std::string& code, const std::string& bytes) {
        const Json answer{{"exitCode", 0}, {"stdout", code + "\n" + to_base64(bytes)}};
        world.post("ExecInContainer").reply(200, answer.dump());
    };
    const auto log = jobs->open_log("run-1", {.follow = true});
    look("", "a\xff");
    CHECK(jobs->poll("run-1")->state == JobState::running);
    CHECK(read_all(**log) == "a\xff");
    look("5", std::string("\0b", 2));
    const auto end = jobs->poll("run-1");
    REQUIRE(end);
    CHECK(end->state == JobState::failed);
    CHECK(end->driver_exit_code == 5);
    CHECK(classify(*end).exit == ExitCode::check_failed);
    CHECK(read_all(**log) == std::string("\0b", 2));
    CHECK(read_all(**log).empty());
    CHECK(jobs->outputs("run-1")->empty());
}

TEST_CASE("iris beside: a container that is gone, and one that never was") {
    IrisFixture world;
    const auto jobs = world.backend();
    JobRequest job = IrisFixture::request("run-1");
    job.beside = "gdnctl-hold-me-a";
    world.post("ExecInContainer").reply(200, R"({"exitCode":0,"stdout":"","stderr":"","error":""})");
    REQUIRE(jobs->submit(job));
    world.plays("exec", "exec_finished_error_field");
    const auto lost = jobs->poll("run-1");
    REQUIRE(lost);
    CHECK(lost->error_type == job_error::k_died);
    CHECK(classify(*lost).exit == ExitCode::infrastructure);
    job.submission_id = "run-2";
    world.plays("exec", "err_exec_unknown");
    CHECK(jobs->submit(job).error().kind == ErrorKind::infrastructure);
}

TEST_CASE("iris beside: a tree travels once, in pieces") {
    IrisFixture world;
    test::TempDir folder;
    test::write_text(folder / "a.txt", "hello");
    const auto jobs = world.backend();
    JobRequest job = IrisFixture::request("run-1");
    job.beside = "gdnctl-hold-me-a";
    job.working_dir = WorkingTree{folder.path(), {"a.txt"}, {}};
    REQUIRE(pack_tree(*job.working_dir, folder / "same.zip", {}));
    const std::string zip = test::read_text(folder / "same.zip");
    const std::string name = "tree-" + hash_hex(HashKind::sha256, zip)->substr(0, 12);
    world.post("ExecInContainer").reply(200, Json{{"exitCode", 98}, {"stdout", " " + name + "\n"}}.dump());
    world.post("ExecInContainer").reply(200, R"({"exitCode":0})").look([&](const HttpRequest& r) {
        const auto words = json::texts(Json::parse(r.body), "command");
        REQUIRE(words.size() == 7);
        CHECK(words[5] == "0");
        CHECK(from_base64(words[6]) == zip);
    });
    world.post("ExecInContainer").reply(200, R"({"exitCode":0})").look([&](const HttpRequest& r) {
        const auto words = json::texts(Json::parse(r.body), "command");
        CHECK(words.front() == "python3");
        CHECK(words.back() == "/tmp/gdnctl-run/gdnctl-hold-me-a/" + name);
    });
    world.post("ExecInContainer").reply(200, R"({"exitCode":0})").look([&](const HttpRequest& r) {
        CHECK(json::texts(Json::parse(r.body), "command")[6] == name);
    });
    CHECK(jobs->submit(job));
}

}  // namespace gdnctl::iris
