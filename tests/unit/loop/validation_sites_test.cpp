// Where jobs of validation are tried: clusters that are found, and tests on another accelerator.
#include "validation_world.h"

namespace gdnctl::loop {

namespace {

// A cluster file with node types of these accelerators; the first is what `auto` means.
void put_cluster(const StageWorld& world, const std::string& name, const Words& types) {
    std::string text = "cluster_name: marin-" + name + "\navailable_node_types:\n";
    for (const auto& type : types) {
        std::string word = type;
        std::replace(word.begin(), word.end(), '-', '_');
        text += "  tpu_slice_" + word +
                ": {max_workers: 4, resources: {TPU: 4}, node_config: {acceleratorType: " + type + "}}\n";
    }
    world.write("infra/marin-" + name + ".yaml", text);
}

Words with_tpu(Words words, const std::string& type) {
    const auto at = std::find(words.begin(), words.end(), "--timeout");
    words.insert(at, {"--tpu", type});
    return words;
}

// One pass over all sites, none of which works.
StageResult climb(StageWorld& world, JobKind kind) {
    world.children.options.max_attempts = 1;
    TargetJobs jobs = world.children.jobs();
    if (kind == JobKind::tests) return ok(TestsStage(world.validation(jobs)).run(world.context()));
    return ok(ProfileStage(world.validation(jobs), "throughput/mfu").run(world.context()));
}

}  // namespace

TEST_CASE("validation: tests may go to any v5p, v5e or v6e of the clusters, after the one that is meant") {
    StageWorld world;
    put_cluster(world, "c", {"v5p-8", "v4-8", "v6e-4"});
    put_cluster(world, "d", {"v5litepod-4"});
    world.children.options.clusters = {"c", "d"};
    world.children.options.tpu = "v5p-8";
    world.children.options.cross_tpu_tests = true;
    Children& children = world.children;
    for (const auto& [cluster, type] : {std::pair{"c", "v5p-8"}, {"d", "v5p-8"}, {"c", "v6e-4"}}) {
        children.child(with_tpu(children.test_words(cluster), type), 4, {}, "");
    }
    children.child(with_tpu(children.test_words("d"), "v5litepod-4"), 0, report_of("SUCCEEDED"), k_green);
    CHECK(climb(world, JobKind::tests).verdict == StageVerdict::pass);
}

TEST_CASE("validation: without --validation-cross-tpu-test-fallback tests, and profiles always, keep to their TPU") {
    StageWorld world;
    put_cluster(world, "c", {"v5p-8", "v6e-4"});
    world.children.options.clusters = {"c"};
    world.children.child(world.children.test_words("c"), 4, {}, "");
    CHECK(climb(world, JobKind::tests).outcome == Outcome::infra);

    StageWorld other;
    put_cluster(other, "c", {"v5p-8", "v6e-4"});
    other.children.options.clusters = {"c"};
    other.children.options.cross_tpu_tests = true;
    other.children.child(Children::profile_words("c", "gdn_loopgate_iter007"), 4, {}, "");
    CHECK(climb(other, JobKind::profile).outcome == Outcome::infra);
}

TEST_CASE("validation: what auto means is not tried a second time") {
    StageWorld world;
    put_cluster(world, "c", {"v5p-8", "v6e-4"});
    world.children.options.clusters = {"c"};
    world.children.options.cross_tpu_tests = true;
    world.children.child(world.children.test_words("c"), 4, {}, "");
    world.children.child(with_tpu(world.children.test_words("c"), "v6e-4"), 4, {}, "");
    CHECK(climb(world, JobKind::tests).outcome == Outcome::infra);
}

TEST_CASE(
    "validation: clusters are found by the profile's TPU, --validation-ray-cluster-exclude replaces the defaults") {
    for (const bool replaced : {false, true}) {
        StageWorld world;
        for (const char* name : {"a-vllm", "b", "big-run"}) put_cluster(world, name, {"v5p-8"});
        put_cluster(world, "e", {"v6e-4"});
        world.children.options.cluster_auto = true;
        if (replaced) world.children.options.cluster_exclude = {"b.yaml", "big"};
        for (const char* name : {"us-central1", replaced ? "a-vllm" : "b"}) {
            world.children.child(world.children.test_words(name), 4, {}, "");
        }
        CHECK(climb(world, JobKind::tests).outcome == Outcome::infra);
    }
}

}  // namespace gdnctl::loop
