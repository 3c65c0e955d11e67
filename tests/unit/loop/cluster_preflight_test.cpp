// Clusters that gates need are looked at before an agent is paid.
#include "loop/gates/cluster_preflight.h"

#include "platform/signals.h"
#include "validation_world.h"

namespace gdnctl::loop {

namespace {

struct PreflightWorld {
    FakeProcess process;
    ValidationOptions options;
    HoldOptions hold;
    bool resilient = false;
    std::stop_source stop;
    test::TempDir folder;

    void cluster(const std::string& name, int rc, const std::string& err = "") {
        Words words = {"/bin/gdnctl", "cluster", "check"};
        if (!name.empty()) words.insert(words.end(), {"--cluster", name});
        words.insert(words.end(), {"--target", "t"});
        ProcessResult result = process_result(rc, "answers    no\n");
        result.err = err;
        process.expect(words, result, [this](const ProcessSpec& spec) {
            CHECK(spec.wall_limit == std::chrono::seconds(60));
            CHECK(spec.cwd == folder.path());
        });
    }
    Status look() {
        return check_clusters_answer({options,
                                      hold,
                                      resilient,
                                      folder.path(),
                                      folder.path(),
                                      "/bin/gdnctl",
                                      {"--target", "t"},
                                      process,
                                      stop.get_token()});
    }
};

}  // namespace

TEST_CASE("cluster preflight: one that answers is enough, and no more are asked") {
    PreflightWorld world;
    world.options.clusters = {"a", "b", "c"};
    world.cluster("a", 4, "[gdnctl] error: no head node found for cluster a\n");
    world.cluster("b", 0);
    ok(world.look());
    PreflightWorld usual;  // wherever such a job goes by itself
    usual.cluster("", 0);
    ok(usual.look());
    PreflightWorld here;
    here.options.clusters = {"local"};
    ok(here.look());
}

TEST_CASE("cluster preflight: none answers; --resilient goes on, as it may come back") {
    for (const bool resilient : {false, true}) {
        PreflightWorld world;
        world.resilient = resilient;
        world.options.clusters = {"a", "b"};
        world.cluster("a", 4, "[gdnctl] trying\n[gdnctl] error: no head node found for cluster a\n[gdnctl] hint: h\n");
        world.cluster("b", 5, "[gdnctl] error: Forbidden\n");
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
        for (const auto& [rc, kind] : {std::pair{5, ErrorKind::authentication}, {2, ErrorKind::usage}}) {
            PreflightWorld world;
            world.resilient = resilient;
            world.options.clusters = {"a"};
            world.cluster("a", rc, "[gdnctl] error: no\n");
            const Status looked = world.look();
            REQUIRE_FALSE(looked);
            CHECK(looked.error().kind == kind);
            CHECK(looked.error().hint.find("--resilient") == std::string::npos);
        }
    }
}

TEST_CASE("cluster preflight: one that never answers has a minute; a signal ends it") {
    PreflightWorld world;
    world.options.clusters = {"a"};
    ProcessResult late = process_result(0, "");
    late.end = ProcessResult::End::wall_limit;
    world.process.expect({"/bin/gdnctl", "cluster", "check", "--cluster", "a", "--target", "t"}, late);
    Status looked = world.look();
    REQUIRE_FALSE(looked);
    CHECK(looked.error().kind == ErrorKind::infrastructure);
    world.stop.request_stop();
    world.cluster("a", 4);
    looked = world.look();
    REQUIRE_FALSE(looked);
    CHECK(looked.error().kind == stopped_error().kind);
}

TEST_CASE("cluster preflight: a held TPU is of no use to gates without the commands that run jobs there") {
    const auto look = [](ValidationMode mode, const std::vector<std::pair<const char*, int>>& commands) {
        PreflightWorld world;
        world.options.mode = mode;
        for (const auto& [command, rc] : commands) world.process.expect({"/bin/gdnctl", command, "--help"}, rc);
        const Status done =
            check_held_commands({world.options, world.hold, true, {}, {}, "/bin/gdnctl", {}, world.process});
        return done ? std::string("ok") : done.error().message;
    };
    const std::string lacks = "this gdnctl has no dev-tpu-";
    CHECK(look(ValidationMode::required, {{"dev-tpu-test", 0}, {"dev-tpu-profile", 0}}) == "ok");
    CHECK(look(ValidationMode::profile_only, {{"dev-tpu-profile", 0}}) == "ok");
    CHECK(look(ValidationMode::required, {{"dev-tpu-test", 2}}).starts_with(lacks + "test, "));
    CHECK(
        look(ValidationMode::required, {{"dev-tpu-test", 0}, {"dev-tpu-profile", 2}}).starts_with(lacks + "profile, "));
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
