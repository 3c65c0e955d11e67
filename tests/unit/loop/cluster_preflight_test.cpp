// Clusters that gates need are looked at before an agent is paid.
#include "loop/gates/cluster_preflight.h"

#include "platform/signals.h"
#include "validation_world.h"

namespace gdnctl::loop {

namespace {

struct PreflightWorld {
    ScriptedJobs jobs;
    ValidationOptions options;
    HoldOptions hold;
    bool resilient = false;
    std::stop_source stop;
    test::TempDir folder;

    void cluster(const std::string& name, const Status& answer) { jobs.looks.emplace_back(name, answer); }
    void cluster(const std::string& name, ErrorKind kind, std::string message) {
        cluster(name, fail(kind, std::move(message)));
    }
    Status look() { return check_clusters_answer({options, hold, resilient, folder.path(), jobs, stop.get_token()}); }
};

}  // namespace

TEST_CASE("cluster preflight: one that answers is enough, and no more are asked") {
    PreflightWorld world;
    world.options.clusters = {"a", "b", "c"};
    world.cluster("a", ErrorKind::infrastructure, "no head node found for cluster a");
    world.cluster("b", Status());
    ok(world.look());
    PreflightWorld usual;  // wherever such a job goes by itself
    usual.cluster("", Status());
    ok(usual.look());
    PreflightWorld here;
    here.options.clusters = {"local"};
    ok(here.look());
}

TEST_CASE("cluster preflight: none answers, --resilient goes on, as it may come back") {
    for (const bool resilient : {false, true}) {
        PreflightWorld world;
        world.resilient = resilient;
        world.options.clusters = {"a", "b"};
        world.cluster("a", ErrorKind::infrastructure, "no head node found for cluster a");
        world.cluster("b", ErrorKind::authentication, "Forbidden");
        const Status looked = world.look();
        CHECK(looked.has_value() == resilient);
        if (looked) continue;
        CHECK(looked.error().kind == ErrorKind::infrastructure);
        CHECK(looked.error().message ==
              "no cluster that validation needs can be used: a: no head node found for cluster a; b: Forbidden");
        CHECK(looked.error().hint.find("--resilient") != std::string::npos);
    }
}

TEST_CASE("cluster preflight: what is configured wrong does not come back by itself") {
    for (const bool resilient : {false, true}) {
        for (const auto& [said, kind] : {std::pair{ErrorKind::authentication, ErrorKind::authentication},
                                         {ErrorKind::usage, ErrorKind::usage},
                                         {ErrorKind::config, ErrorKind::usage}}) {
            PreflightWorld world;
            world.resilient = resilient;
            world.options.clusters = {"a"};
            world.cluster("a", said, "no");
            const Status looked = world.look();
            REQUIRE_FALSE(looked);
            CHECK(looked.error().kind == kind);
            CHECK(looked.error().hint.find("--resilient") == std::string::npos);
        }
    }
}

TEST_CASE("cluster preflight: one that never answers has a minute, a signal ends it") {
    PreflightWorld world;
    world.options.clusters = {"a"};
    world.cluster("a", ErrorKind::timeout, "no answer within 1 min");
    Status looked = world.look();
    REQUIRE_FALSE(looked);
    CHECK(looked.error().kind == ErrorKind::infrastructure);
    world.stop.request_stop();
    world.cluster("a", ErrorKind::interrupted, "interrupted");
    looked = world.look();
    REQUIRE_FALSE(looked);
    CHECK(looked.error().kind == stopped_error().kind);
}

TEST_CASE("cluster preflight: an accelerator that none of the named clusters has is a mistake") {
    const test::TempDir folder;
    const auto put = [&](const std::string& name, const std::string& types) {
        write_text(
            folder / "infra" / ("marin-" + name + ".yaml"),
            "cluster_name: marin-" + name + "\navailable_node_types:\n  head_default: {resources: {CPU: 0}}\n" + types);
    };
    put("p", "  w: {resources: {TPU: 4}, node_config: {acceleratorType: v5p-8}}\n");
    put("e", "  w: {resources: {TPU: 4}, node_config: {acceleratorType: v6e-4}}\n");
    put("unsaid", "");
    const auto check = [&](const ValidationOptions& options, const Target& target = pytest_target()) {
        const Status done = check_cluster_files(options, target, folder.path());
        return done ? std::string("ok") : done.error().message + " | " + done.error().hint;
    };
    ValidationOptions options;
    CHECK(check(options) == "ok");  // nobody is named
    options.clusters = {"p"};
    CHECK(check(options) == "ok");
    options.profile.tpu = "v6e-4";
    CHECK(check(options) ==
          "no cluster offers --validation-profile-tpu v6e-4: jobs would wait forever | marin-p offers v5p-8");
    CHECK(check(options, plain_target()) == "ok");  // its profiles ask for none
    options.clusters = {"p", "e"};
    CHECK(check(options) == "ok");
    options.clusters = {"p", "unsaid"};
    CHECK(check(options) == "ok");
    options.clusters = {"p", "gone"};
    CHECK(check(options).starts_with("no cluster offers"));
    options.clusters = {"gone", "local"};
    CHECK(check(options) == "ok");
    options.clusters = {"gone"};
    CHECK(check(options).starts_with("No cluster config found for region gone"));
    options.clusters = {"p"};
    options.profile.tpu = "v5p-8";
    options.tpu = "v4-8";
    CHECK(check(options).starts_with("no cluster offers --validation-ray-tpu v4-8"));
    CHECK(check(options, plain_target()).starts_with("no cluster offers --validation-ray-tpu v4-8"));
    options.mode = ValidationMode::profile_only;
    CHECK(check(options) == "ok");
}

}  // namespace gdnctl::loop
