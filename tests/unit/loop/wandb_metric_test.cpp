// The metric as the run recorded it: what replaces the output's, and what must never.
#include "loop/measure/wandb_metric.h"

#include <doctest/doctest.h>

#include "core/json.h"
#include "support/fake_clock.h"
#include "validation_world.h"

namespace gdnctl::loop {

namespace {

constexpr const char* k_graphql = "https://api.wandb.ai/graphql";
constexpr const char* k_run_url = "https://wandb.ai/marin-community/marin/runs/gdn_x-1f9dea";
const std::string k_rows_of_nine =  // iteration 47: the last step of the run is an outlier
    R"([{"_step":10,"throughput/mfu":5.1},{"_step":11,"throughput/mfu":5.185},{"_step":12,"throughput/mfu":5.3},
        {"_step":13,"throughput/mfu":5.18},{"_step":14,"throughput/mfu":5.2},{"_step":15,"throughput/mfu":5.15},
        {"_step":16,"throughput/mfu":5.4},{"_step":17,"throughput/mfu":5.19},{"_step":18,"throughput/mfu":0.939}])";
const std::string k_durations =
    R"([{"_step":10,"throughput/duration":0.17},{"_step":11,"throughput/duration":0.16},{"_step":12,"throughput/duration":0.15},
        {"_step":13,"throughput/duration":0.18},{"_step":14,"throughput/duration":0.19}])";

Json run_node(const std::string& id, const std::string& created, const std::string& state = "finished") {
    Json node;
    node["name"] = id;
    node["displayName"] = id.substr(0, id.find('-'));
    node["state"] = state;
    node["createdAt"] = created;
    return node;
}

std::string one_run(Json node, const std::string& summary, const std::string& lists) {
    node["summaryMetrics"] = summary;
    node["sampledHistory"] = *parse_json("[" + lists + "]", "lists");
    Json answer;
    answer["data"]["project"]["run"] = std::move(node);
    return gdnctl::to_text(answer);
}

std::string run_list(const std::vector<Json>& nodes) {
    Json edges = Json::array();
    for (const Json& node : nodes) {
        Json edge;
        edge["node"] = node;
        edges.push_back(std::move(edge));
    }
    Json answer;
    answer["data"]["project"]["runs"]["edges"] = std::move(edges);
    return gdnctl::to_text(answer);
}

struct WandbWorld {
    FakeHttp http;
    FakeEnv env{{"WANDB_API_KEY", "0123456789abcdef0123456789abcdef01234567"}};
    FakeClock clock{*parse_iso8601("2026-03-10T17:00:00Z")};
    RecordedOptions options;
    Measurement m;

    WandbWorld() {
        m.metric = "throughput/mfu";
        m.metrics = {
            {"throughput/mfu", 0.939}, {"throughput/duration", 0.9}, {"step_duration_ms", 900}, {"while_ms", 3}};
        m.value = 0.939;
        m.points = {0.939};
        m.source = "cli-output";
    }
    FakeHttp::Expected& answers(const std::string& body) { return http.expect("POST", k_graphql).reply(200, body); }
    Status take(const std::string& url = k_run_url) {
        RecordedMetrics recorded(options, http, env, clock);
        return recorded.take(m, {url, "gdn_x", *parse_iso8601("2026-03-10T16:50:00Z")});
    }
    bool kept(const std::string& why) {  // the output's number, with a warning
        CHECK(m.value == 0.939);
        CHECK(m.source == "cli-output");
        CHECK(m.metrics.at("step_duration_ms") == 900);
        REQUIRE(m.warnings.size() == 1);
        return m.warnings.front().find(why) != std::string::npos;
    }
};

}  // namespace

TEST_CASE("recorded metric: the median of the window stands for the run, not its last step (iteration 47)") {
    WandbWorld world;
    world.answers(one_run(run_node("gdn_x-1f9dea", "2026-03-10T16:51:00Z", "failed"), R"({"throughput/mfu": 0.939})",
                          k_rows_of_nine + ",[]," + k_durations));
    REQUIRE(world.take());
    CHECK(world.m.value == 5.185);
    CHECK(world.m.points == std::vector<double>{5.185});
    CHECK(world.m.source == "wandb-history-median[10:18]");
    CHECK(world.m.window_points == 9);
    CHECK(world.m.metrics.at("throughput/mfu") == 5.185);
    CHECK(world.m.metrics.at("step_duration_ms") == doctest::Approx(170.0));
    CHECK(world.m.metrics.at("while_ms") == 3);
    CHECK(world.m.warnings.empty());
}

TEST_CASE("recorded metric: mean, another window, a metric that follows from another, and what has no number there") {
    WandbWorld world;
    world.options.average = WindowAverage::mean;
    world.options.step_end = 14;
    world.m.metric = "step_duration_ms";
    world.answers(one_run(run_node("gdn_x-1f9dea", "2026-03-10T16:51:00Z"), "{}", k_durations + ",[],[]"))
        .look([](const HttpRequest& request) {
            CHECK(request.body.find(R"(\"throughput/duration\"],\"minStep\":10,\"maxStep\":15)") != std::string::npos);
        });
    REQUIRE(world.take());
    CHECK(*world.m.value == doctest::Approx(170.0));
    CHECK(world.m.source == "wandb-history-mean[10:14]");
    // Of the last step, as the output has it, it would be compared with means.
    CHECK_FALSE(world.m.metrics.contains("throughput/mfu"));
}

TEST_CASE("recorded metric: the summary where it is asked for, and where the window has too few numbers") {
    WandbWorld world;
    world.options.aggregation = MetricAggregation::summary;
    world.answers(one_run(run_node("gdn_x-1f9dea", "2026-03-10T16:51:00Z"),
                          R"({"throughput/mfu": 5.0, "throughput/duration": 0.2})", ""));
    REQUIRE(world.take());
    CHECK(world.m.value == 5.0);
    CHECK(world.m.source == "wandb-summary");
    CHECK_FALSE(world.m.window_points);
    CHECK(world.m.metrics.at("step_duration_ms") == doctest::Approx(200.0));
    CHECK(world.m.warnings.empty());

    WandbWorld few;
    for (int look = 0; look < 4; ++look) {  // it may come late
        few.answers(one_run(run_node("gdn_x-1f9dea", "2026-03-10T16:51:00Z"), R"({"throughput/mfu": 5.0})",
                            R"([{"_step":10,"throughput/mfu":5.1},{"_step":11,"throughput/mfu":"NaN"}])"));
    }
    REQUIRE(few.take());
    CHECK(few.m.value == 5.0);
    CHECK(few.m.source == "wandb-summary");
    REQUIRE(few.m.warnings.size() == 1);
    CHECK(few.m.warnings.front().find("has 1 values of throughput/mfu at steps 10 to 18, 5 are needed") !=
          std::string::npos);
    CHECK(few.clock.sleeps().size() == 3);
}

TEST_CASE("recorded metric: what is still on its way is waited for, and a run that never ends has no last step") {
    WandbWorld world;
    const Json running = run_node("gdn_x-1f9dea", "2026-03-10T16:51:00Z", "running");
    world.answers(one_run(running, R"({"throughput/mfu": 1.0})", R"([{"_step":10,"throughput/mfu":5.1}])"));
    world.answers(one_run(running, R"({"throughput/mfu": 2.0})", k_rows_of_nine));
    REQUIRE(world.take());
    CHECK(world.m.value == 5.185);

    WandbWorld crashed;
    for (int look = 0; look < 4; ++look) {
        crashed.answers(one_run(run_node("gdn_x-1f9dea", "2026-03-10T16:51:00Z", "crashed"),
                                R"({"throughput/mfu": 4.0})", R"([{"_step":10,"throughput/mfu":5.1}])"));
    }
    REQUIRE(crashed.take());
    CHECK(crashed.kept("run gdn_x-1f9dea at W&B is crashed: its last step is not known"));
}

TEST_CASE("recorded metric: nothing that goes wrong there changes the output's number") {
    struct Case {
        int status;
        std::string body, why;
    };
    const std::vector<Case> cases = {
        {401, "{}", "W&B rejects the key of WANDB_API_KEY; using the metric from the run's output"},
        {500, "oops", "answered 500: oops"},
        {200, "<html>", "not an answer from a W&B server"},
        {200, R"({"data":{"project":{"run":null}}})", "W&B has no run marin-community/marin/gdn_x-1f9dea"},
        {200, one_run(run_node("gdn_x-1f9dea", "2026-03-10T16:51:00Z"), "{no json", ""), "the summary of run"},
        // An older run, which the output names for whatever reason.
        {200, one_run(run_node("gdn_x-1f9dea", "2026-03-10T16:49:59Z"), "{}", k_rows_of_nine),
         "run gdn_x-1f9dea at W&B started before the job that names it"},
        {200, one_run(run_node("gdn_x-1f9dea", ""), "{}", k_rows_of_nine), "started before the job"},
    };
    for (const Case& one : cases) {
        CAPTURE(one.why);
        WandbWorld world;
        world.http.expect("POST", k_graphql).reply(one.status, one.body);
        REQUIRE(world.take());
        CHECK_MESSAGE(world.kept(one.why), world.m.warnings.front());
    }
    WandbWorld without;
    without.env.values.clear();  // and nothing is asked
    REQUIRE(without.take());
    CHECK(without.kept("no key for W&B at api.wandb.ai"));
    WandbWorld stopped;
    stopped.http.expect("POST", k_graphql).fail(Error{ErrorKind::interrupted, "stopped", "", ""});
    CHECK(stopped.take().error().kind == ErrorKind::interrupted);
}

TEST_CASE("recorded metric: a run whose output does not name it is found by its name, or by its id") {
    WandbWorld world;
    world
        .answers(
            run_list({run_node("gdn_x_130m-new", "2026-03-10T16:50:00Z"),
                      run_node("gdn_x_130m-old", "2026-03-10T16:49:59Z"), run_node("other-1", "2026-03-10T16:51:00Z")}))
        .look([](const HttpRequest& request) {
            CHECK(request.body.find(R"({\"display_name\":{\"$regex\":\"gdn_x_\"}})") != std::string::npos);
            CHECK(request.body.find(R"("count":80)") != std::string::npos);
        });
    world.answers(one_run(run_node("gdn_x_130m-new", "2026-03-10T16:50:00Z"), "{}", k_rows_of_nine));
    REQUIRE(world.take(""));
    CHECK(world.m.value == 5.185);
    CHECK(world.m.run_url == "https://wandb.ai/marin-community/marin/runs/gdn_x_130m-new");

    WandbWorld by_id;
    Json renamed = run_node("gdn_x_130m-new", "2026-03-10T16:50:30Z");
    renamed["displayName"] = "lively-sun-3";
    by_id.options.entity = "me";
    by_id.options.project = "mine";
    by_id.answers(run_list({}));
    by_id.answers(run_list({renamed})).look([](const HttpRequest& request) {
        CHECK(request.body.find(R"("count":120)") != std::string::npos);
        CHECK(request.body.find(R"("entity":"me")") != std::string::npos);
    });
    by_id.answers(one_run(renamed, "{}", k_rows_of_nine));
    REQUIRE(by_id.take(""));
    CHECK(by_id.m.value == 5.185);
}

TEST_CASE("recorded metric: a run of somebody else is never taken") {
    WandbWorld old;
    old.answers(run_list({run_node("gdn_x_130m-old", "2026-03-10T16:49:59Z")}));
    old.answers(run_list({run_node("gdn_x_130m-old", "2026-03-10T16:49:59Z")}));
    REQUIRE(old.take(""));
    CHECK(old.kept("no run of W&B's marin-community/marin with gdn_x_ in its name began after the job was submitted"));
    WandbWorld two;
    two.answers(
        run_list({run_node("gdn_x_130m-b", "2026-03-10T16:52:00Z"), run_node("gdn_x_130m-a", "2026-03-10T16:51:00Z")}));
    REQUIRE(two.take(""));
    CHECK(
        two.kept("2 runs of W&B's marin-community/marin with gdn_x_ in their names began after the job was submitted: "
                 "cannot tell which one belongs to this job"));
    // Our clock is an hour slow: by it, that run of 17:20 would have begun after the job was submitted, at 17:50.
    WandbWorld slow;
    const std::vector<Json> before = {run_node("gdn_x_130m-old", "2026-03-10T17:20:00Z")};
    for (int i = 0; i < 2; ++i) {
        slow.http.expect("POST", k_graphql).reply(200, run_list(before), {{"date", "Tue, 10 Mar 2026 18:00:00 GMT"}});
    }
    REQUIRE(slow.take(""));
    CHECK(slow.kept("no run"));
}

TEST_CASE("recorded metric: a run that is named but has no such number is no end where the output has none either") {
    WandbWorld world;
    world.m.value.reset();
    world.m.metrics.clear();
    for (int look = 0; look < 4; ++look) {
        world.answers(one_run(run_node("gdn_x-1f9dea", "2026-03-10T16:51:00Z"), R"({"loss": 1})", ""));
    }
    world.answers(run_list({run_node("gdn_x_130m-new", "2026-03-10T16:52:00Z")}));
    world.answers(one_run(run_node("gdn_x_130m-new", "2026-03-10T16:52:00Z"), "{}", k_rows_of_nine));
    REQUIRE(world.take());
    CHECK(world.m.value == 5.185);
    CHECK(world.m.run_url.ends_with("/gdn_x_130m-new"));
    WandbWorld nothing;
    nothing.m.value.reset();
    nothing.env.values.clear();
    REQUIRE(nothing.take());
    CHECK_FALSE(nothing.m.value);
    CHECK(nothing.m.warnings.front().ends_with("; no metric"));
}

TEST_CASE("recorded metric: which runs report at all, and what the options may be") {
    ValidationOptions options;
    CHECK(reports_to_wandb(pytest_target(), options));
    CHECK_FALSE(reports_to_wandb(plain_target(), options));
    options.profile_env = {"WANDB_MODE=offline", "A=b"};
    CHECK_FALSE(reports_to_wandb(pytest_target(), options));
    options.profile_env.emplace_back("WANDB_MODE=online");
    CHECK(reports_to_wandb(pytest_target(), options));
    options.profile.dry_run = true;
    CHECK_FALSE(reports_to_wandb(pytest_target(), options));
    options = {};
    options.profile.wandb_mode = "offline";
    CHECK_FALSE(reports_to_wandb(pytest_target(), options));

    GateChoices choices;
    RecordedOptions& o = choices.perf.recorded;
    CHECK(to_text(o) == "history-window median 10:18, 5 points or more");
    o.project = "other";
    CHECK(check_gates(choices));
    o.project = "a/b";
    CHECK(check_gates(choices).error().message == "--perf-wandb-project must be a name.");
    o = {};
    o.step_start = 19;
    CHECK(check_gates(choices).error().message == "--perf-history-step-end must be >= --perf-history-step-start.");
    o.step_start = 15;
    CHECK(check_gates(choices).error().message == "--perf-history-min-points 5: there are only 4 steps from 15 to 18.");
    o.min_points = 0;
    CHECK(check_gates(choices).error().message == "--perf-history-min-points must be > 0.");
    o = {};
    o.aggregation = MetricAggregation::summary;
    CHECK(to_text(o) == "summary");
}

TEST_CASE("recorded metric: the profile stage stores it, with what was asked for in the fingerprint") {
    StageWorld world;
    world.candidate.head = world.base;
    world.children.options.clusters = {"c"};
    world.env.values["WANDB_API_KEY"] = "0123456789abcdef0123456789abcdef01234567";
    world.children.child(Children::profile_words("c", "gdn_loopgate_iter007"), 0, report_of("SUCCEEDED"),
                         std::string("throughput/mfu=0.939\nwandb: View run at ") + k_run_url + "\n");
    world.http.expect("POST", k_graphql)
        .reply(200, one_run(run_node("gdn_x-1f9dea", "2026-03-10T16:53:07Z"), "{}", k_rows_of_nine));
    TargetJobs jobs = world.children.jobs();
    RecordedMetrics recorded({}, world.http, world.env, world.children.clock);
    ValidationWorld validation = world.validation(jobs);
    validation.recorded = &recorded;
    const StageResult result = ok(ProfileStage(validation, "throughput/mfu").run(world.context()));
    CHECK(result.verdict == StageVerdict::pass);
    CHECK(result.facts.at("metric_source") == "wandb-history-median[10:18]");
    CHECK(result.facts.at("metric.throughput/mfu") == "5.185");
    const auto stored = load_measurement(world.artefacts.path(7, "measurement.json"));
    REQUIRE(stored);
    CHECK(stored->measurement.value == 5.185);
    CHECK(stored->measurement.window_points == 9);
    CHECK(stored->measurement.fingerprint.asked.at("aggregation") == "history-window median 10:18, 5 points or more");
    const std::string text = read_text(world.artefacts.path(7, "measurement.json"));
    CHECK(text.find("\"metric_points\": 9") != std::string::npos);
}

}  // namespace gdnctl::loop
