// Answers of the controller, as recorded, and requests.
#include "services/iris/answers.h"

#include "core/base64.h"
#include "services/iris/request.h"
#include "unit/services/iris/iris_fixture.h"

namespace gdnctl::iris {

namespace {

// The job and its tasks, judged.
JobDetails end_of(const std::string& status, const char* tasks_file, const std::string& tasks) {
    auto job = parse_status(answer_of("status", status), "me");
    REQUIRE(job);
    Json answer = answer_of(tasks_file, tasks);
    if (const Json* one = json::find(answer, "task")) answer["tasks"] = Json::array({*one});
    judge(*job, parse_tasks(answer));
    return job->details;
}

HttpResponse answer_with(const std::string& file, const std::string& name) {
    const Json exchange = recorded(file, name);
    HttpResponse answer;
    answer.status = exchange["response"]["status"].get<int>();
    const Json* body = json::find(exchange["response"], "json");
    answer.body = body != nullptr ? body->dump() : json::text(exchange["response"], "text");
    return answer;
}

ErrorKind kind_of_refusal(const std::string& file, const std::string& name) {
    return refusal("X", answer_with(file, name), "http://h", "log in").kind;
}

}  // namespace

TEST_CASE("iris answers: names and ids") {
    CHECK(name_of("me", "x") == "/me/x");
    CHECK(name_of("me", "/you/x") == "/you/x");
    CHECK(id_of("me", "/me/x") == "x");
    CHECK(id_of("me", "/me2/x") == "/me2/x");
    CHECK(id_of("me", "/me/x/child") == "x/child");
    CHECK(id_of("me", "/me/") == "/me/");
}

TEST_CASE("iris answers: how jobs end") {
    const JobDetails ok = end_of("status_ok", "tasks", "tasks_ok");
    CHECK(ok.state == JobState::succeeded);
    CHECK(ok.submission_id == "ok");
    CHECK(ok.job_id == "/me/ok");
    CHECK(ok.message == "Job finished successfully.");
    CHECK_FALSE(ok.driver_exit_code);
    CHECK(ok.attempts == 1);
    CHECK(ok.driver_node_id);
    REQUIRE(ok.end_time);
    CHECK(ok.end_time->time_since_epoch().count() == 1795577030491);

    const JobDetails three = end_of("status_exit3", "tasks", "task_exit3");
    CHECK(three.state == JobState::failed);
    CHECK(three.driver_exit_code == 3);
    CHECK(three.error_type == job_error::k_command_error);
    CHECK(three.message == "Job entrypoint command failed with exit code 3: Exit code: 3");
    CHECK(classify(three).exit == ExitCode::check_failed);

    CHECK(end_of("status_sig", "tasks", "task_sig").driver_exit_code == -11);

    const JobDetails killed = end_of("status_killed", "tasks", "task_killed");
    CHECK(killed.state == JobState::stopped);
    CHECK(killed.message == "Job was intentionally stopped: Terminated by user");

    const JobDetails busy = end_of("status_unschedulable", "tasks", "task_unschedulable");
    CHECK(busy.error_type == job_error::k_start_timeout);
    CHECK(classify(busy).exit == ExitCode::infrastructure);
    CHECK(busy.message.find("Scheduling timeout exceeded") != std::string::npos);

    CHECK(classify(end_of("status_timeout", "tasks", "task_timeout")).exit == ExitCode::timeout);

    const JobDetails node = end_of("status_worker_failed", "tasks", "task_worker_failed");
    CHECK(node.error_type == job_error::k_died);
    CHECK(node.driver_exit_code == 1);
    CHECK(classify(node).exit == ExitCode::infrastructure);

    const JobDetails taken = end_of("status_preempted_by_priority", "tasks", "task_preempted_by_priority");
    CHECK(taken.error_type == job_error::k_died);
    CHECK(taken.message == "Job failed: Preempted by /me/pi/0");
    CHECK(end_of("status_preempted_out", "tasks", "task_preempted_out").attempts == 2);

    const JobDetails two = end_of("status_two_tasks", "tasks", "tasks_two");
    CHECK(two.driver_exit_code == 4);
    CHECK(two.error_type == job_error::k_command_error);
}

TEST_CASE("iris answers: kinds of failure by the task's text") {
    const auto failed = [](const std::string& error, int code) {
        auto job = parse_status(answer_of("status", "status_exit3"), "me");
        Json task{{"taskId", "/me/x/0"}, {"state", "TASK_STATE_FAILED"}, {"exitCode", code}, {"error", error}};
        task["currentAttemptId"] = 0;
        judge(*job, parse_tasks(Json{{"tasks", Json::array({task})}}));
        return job->details;
    };
    const auto verdict = [&](const std::string& error, int code) { return classify(failed(error, code)); };
    CHECK(failed("Exit code: 1. stderr: FileNotFoundError: [Errno 2] No such file", 1).error_type ==
          job_error::k_command_start_error);
    CHECK(failed("Build failed with exit_code=7", 0).error_type == job_error::k_runtime_env);
    CHECK(failed("BadZipFile: File is not a zip file", 0).error_type == job_error::k_runtime_env);
    CHECK(verdict("RuntimeError: Failed to fetch 00: HTTP Error 404", 0).exit == ExitCode::infrastructure);
    CHECK(verdict("'utf-8' codec can't decode byte 0xff in position 1", 1).exit == ExitCode::check_failed);
    CHECK_FALSE(failed("'utf-8' codec can't decode byte 0xff in position 1", 1).driver_exit_code);
    const JobDetails oom = failed("Exit code 137: OOM killed by the kernel", 137);
    CHECK(oom.driver_exit_code == 137);
    CHECK(oom.message.find("the job asked for 100000000 bytes of memory") != std::string::npos);
    CHECK(verdict("Something that no version has said before", 0).exit == ExitCode::check_failed);
}

TEST_CASE("iris answers: a waiting job says why") {
    const auto job = parse_status(answer_of("status", "status_pending_queued"), "me");
    REQUIRE(job);
    CHECK(job->details.state == JobState::pending);
    CHECK(job->details.message.starts_with("Job has not started yet: Insufficient TPUs (need 4, available 0)"));
}

TEST_CASE("iris answers: what only a newer controller says") {
    std::string other;
    CHECK(parse_wire_state("JOB_STATE_HIBERNATING", other) == JobState::running);
    CHECK(other == "HIBERNATING");
    const auto job =
        parse_status(Json::parse(R"({"job":{"jobId":"/me/x","state":"JOB_STATE_NEW","more":[{}]}})"), "me");
    REQUIRE(job);
    CHECK(status_of(job->details) == "RUNNING");
    CHECK(job->details.other_state == "NEW");
    CHECK_FALSE(parse_status(Json::parse(R"({"job":7})"), "me"));
    const auto rejected = parse_status(
        Json::parse(R"({"job":{"jobId":"/me/x","state":"JOB_STATE_PENDING","peerStatus":"PEER_STATUS_REJECTED"}})"),
        "me");
    CHECK(classify(rejected->details).exit == ExitCode::infrastructure);
}

TEST_CASE("iris answers: metadata comes back from the environment, without hidden values") {
    const Json answer = Json::parse(R"({"job":{"jobId":"/me/gdnctl-hold-me-a-1","state":"JOB_STATE_RUNNING"},
        "request":{"entrypoint":{"runCommand":{"argv":["bash","-c",
          "exec 2>&1; cd \"${IRIS_WORKDIR:-.}\" || exit 1; export GDNCTL_OUTPUT_DIR=\"${IRIS_OUTPUT_DIR:-}\"; echo hi"]}},
        "environment":{"envVars":{"GDNCTL_META_NONCE":"00ff","GDNCTL_META_GIT_SHA":"[REDACTED]","HF_TOKEN":"[REDACTED]",
          "GDNCTL_META_USER":"someone"}}}})");
    const auto job = parse_status(answer, "me");
    REQUIRE(job);
    const auto& metadata = job->details.metadata;
    CHECK(metadata.at("nonce") == "00ff");
    CHECK(!metadata.contains("git_sha"));
    CHECK(metadata.at("user") == "me");
    CHECK(metadata.at("kind") == "hold");
    CHECK(job->details.entrypoint == "echo hi");
    CHECK(job->details.env_names == std::vector<std::string>{"HF_TOKEN"});
}

TEST_CASE("iris answers: archives") {
    const auto tasks = parse_tasks(answer_of("outputs_and_cause", "tasks_output_archive"));
    REQUIRE(tasks.size() == 1);
    REQUIRE(tasks[0].output);
    CHECK(tasks[0].output->state == StoredOutput::State::uploaded);
    CHECK(tasks[0].output->task == "/me/out-1/0");
    CHECK(tasks[0].output->bytes == 129);
    CHECK(tasks[0].output->sha256.starts_with("c977ece4"));
    CHECK(tasks[0].finished);
    Json empty = answer_of("outputs_and_cause", "task_root_cause");
    CHECK_FALSE(parse_tasks(Json{{"tasks", Json::array({empty["task"]})}})[0].output);
}

TEST_CASE("iris answers: a task without a machine has no processes") {
    const auto waiting = parse_tasks(answer_of("tasks", "tasks_pending_queued"));
    REQUIRE(waiting.size() == 1);
    CHECK(waiting[0].finished);
    CHECK_FALSE(parse_tasks(Json{{"tasks", Json::array({answer_of("tasks", "task_killed")["task"]})}})[0].finished);
    CHECK(parse_tasks(answer_of("tasks", "tasks_unknown_job")).empty());
}

TEST_CASE("iris answers: refusals by what the user can do") {
    for (const char* usage : {"err_unknown_field", "err_bad_enum", "err_wrong_type", "err_malformed_json",
                              "err_no_content_type", "err_get_method", "err_unknown_method", "err_unknown_path",
                              "err_old_client", "err_tpu_count", "err_unknown_tpu", "err_too_much_cpu"}) {
        CHECK_MESSAGE(kind_of_refusal("launch_errors", usage) == ErrorKind::usage, usage);
        CHECK_MESSAGE(!is_passing(answer_with("launch_errors", usage)), usage);
    }
    CHECK(kind_of_refusal("launch_errors", "err_priority_band") == ErrorKind::authentication);
    CHECK(kind_of_refusal("stop", "err_terminate_unknown") == ErrorKind::remote_missing);
    CHECK(kind_of_refusal("auth", "err_auth_launch") == ErrorKind::authentication);
    CHECK(refusal("X", answer_with("auth", "err_auth_launch"), "http://h", "log in").message ==
          "authentication required");
    HttpResponse other;
    other.status = 302;
    CHECK(refusal("X", other, "http://h", "log in").message == "http://h asks for a login");
    other.status = 200;
    other.body = "<html><title>Sign in</title></html>";
    CHECK(refusal("X", other, "http://h", "").message ==
          "not an Iris controller: http://h returned an HTML page: Sign in");
    for (const int status : {429, 500, 502, 503, 504}) {
        other.status = status;
        CHECK_MESSAGE(is_passing(other), status);
        CHECK_MESSAGE(refusal("X", other, "http://h", "").kind == ErrorKind::infrastructure, status);
    }
    // A traceback in the details is never shown.
    const Error exec = refusal("ExecInContainer", answer_with("exec", "err_exec_not_utf8"), "http://h", "");
    CHECK(exec.text().find("Traceback") == std::string::npos);
    CHECK(exec.message.find("codec can't decode byte") != std::string::npos);
}

TEST_CASE("iris answers: pages of a log, execs, budgets") {
    const LogPage page = parse_log_page(answer_of("logs", "logs_two_attempts"));
    REQUIRE(page.lines.size() == 2);
    CHECK(page.lines[1].text == "attempt /me/kick/0:1");
    CHECK(page.lines[1].attempt == 1);
    CHECK(page.cursor == "1901");
    CHECK(parse_log_page(answer_of("logs", "logs_nothing_new")).lines.empty());
    CHECK(parse_log_page(answer_of("logs", "logs_unknown_job")).cursor.empty());
    const ExecAnswer ran = parse_exec(answer_of("exec", "exec_running"));
    CHECK(ran.exit_code == 7);
    CHECK(ran.out == "out\n");
    CHECK(parse_exec(answer_of("exec", "exec_signal")).exit_code == -9);
    CHECK(runs_as_batch(answer_of("budget", "scheduler_state_running"), "me"));
    CHECK_FALSE(runs_as_batch(answer_of("budget", "scheduler_state_running"), "you"));
    CHECK_FALSE(runs_as_batch(answer_of("budget", "scheduler_state"), "me"));
}

TEST_CASE("iris request: exactly the fields that the controller knows") {
    JobRequest job = IrisFixture::request();
    job.entrypoint = "echo $HOME";
    job.env = {{"V", "a$b\n'\""}, {"V", "last"}};
    job.resources = {{"TPU-v5p-8-head", 1}, {"TPU", 4}};
    const auto launch = launch_json(job, "/me/job-1", std::chrono::seconds(900));
    REQUIRE(launch);
    std::string keys;
    for (const auto& [key, value] : launch->items()) keys += key + " ";
    CHECK(keys ==
          "name entrypoint resources environment replicas maxRetriesPreemption schedulingTimeout existingJobPolicy ");
    CHECK((*launch)["resources"].dump() ==
          R"({"cpuMillicores":32000,"memoryBytes":"128000000000",)"
          R"("diskBytes":"50000000000","device":{"tpu":{"variant":"v5p-8","count":4}}})");
    CHECK((*launch)["environment"]["envVars"]["V"].get<std::string>() == "last");
    CHECK((*launch)["environment"]["envVars"]["GDNCTL_META_NONCE"].get<std::string>() == "0123456789abcdef");
    CHECK((*launch)["entrypoint"]["runCommand"]["argv"][2].get<std::string>() ==
          std::string(k_prologue) + "echo $HOME");
    CHECK((*launch)["schedulingTimeout"].dump() == R"({"milliseconds":"900000"})");
    job.resources = {};
    CHECK((*launch_json(job, "/me/j", std::chrono::seconds(1)))["resources"].dump() ==
          R"({"cpuMillicores":1000,"memoryBytes":"4000000000","diskBytes":"20000000000"})");
    job.resources = {{"CPU", 0.5}, {"memory", 1e9}, {"disk", 2e9}};
    CHECK((*launch_json(job, "/me/j", std::chrono::seconds(1)))["resources"].dump() ==
          R"({"cpuMillicores":500,"memoryBytes":"1000000000","diskBytes":"2000000000"})");
    job.resources = {{"GPU", 1}};
    CHECK(launch_json(job, "/me/j", std::chrono::seconds(1)).error().message ==
          "the resource GPU is not supported on iris");
    job.resources = {{"TPU", 4}};
    CHECK(launch_json(job, "/me/j", std::chrono::seconds(1)).error().kind == ErrorKind::usage);
}

TEST_CASE("iris request: what cannot be sent") {
    JobRequest job = IrisFixture::request();
    job.env = {{"V", "a\xff"}};
    CHECK(launch_json(job, "/me/j", std::chrono::seconds(1)).error().kind == ErrorKind::usage);
    job.env = {};
    job.entrypoint = std::string(131'072, 'x');
    CHECK(launch_json(job, "/me/j", std::chrono::seconds(1)).error().kind == ErrorKind::usage);
    job.submission_id = "123";
    CHECK(check_servable(job).error().kind == ErrorKind::usage);
    job.submission_id = "1a";
    CHECK(check_servable(job));
    job.pip = {"numpy"};
    CHECK(check_servable(job).error().message == "--pip-requirements is not supported on iris");
}

TEST_CASE("base64: both ways") {
    for (const auto& [bytes, text] : {std::pair<std::string, std::string>{"", ""},
                                      {"f", "Zg=="},
                                      {"fo", "Zm8="},
                                      {"foo", "Zm9v"},
                                      {std::string("\0\xff", 2), "AP8="}}) {
        CHECK(to_base64(bytes) == text);
        CHECK(from_base64(text) == bytes);
    }
    CHECK_FALSE(from_base64("Zg="));
    CHECK_FALSE(from_base64("Z g="));
}

}  // namespace gdnctl::iris
