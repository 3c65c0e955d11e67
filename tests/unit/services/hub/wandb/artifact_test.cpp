#include "services/hub/wandb/artifact.h"

#include <string>

#include <doctest/doctest.h>

namespace gdnctl::wandb {

namespace {
bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }
Artifact profile(std::int64_t version, std::string updated, std::vector<std::string> aliases = {}) {
    return {"id",    "COMMITTED",       std::string(k_profile_type), "run-r-profiler", std::move(updated),
            version, std::move(aliases)};
}
std::string parsed(std::string_view text, const std::optional<std::string>& entity = {},
                   const std::optional<std::string>& project = {}) {
    const auto path = parse_run_target(text, entity, project);
    return path ? path->entity + "|" + path->project + "|" + path->run : "usage";
}
}  // namespace

TEST_CASE("wandb artifacts: how a run is named") {
    CHECK(parsed("e/p/r") == "e|p|r");
    CHECK(parsed("r", "e", "p") == "e|p|r");
    CHECK(parsed("e/p/r", "e") == "e|p|r");
    CHECK(parsed(" https://wandb.ai/e/p/runs/r?nw=1`. ") == "e|p|r");
    CHECK(parsed("(https://x)") == "usage");
    for (const char* bad : {"", "r", "e/p", "e//r", "a/b/c/d", "https://wandb.ai/e/p", "e/p/..", "`"}) {
        CAPTURE(bad);
        CHECK(parsed(bad) == "usage");
    }
    CHECK(parsed("e/p/r", "other") == "usage");
}

TEST_CASE("wandb artifacts: which one is meant") {
    std::vector<Artifact> artifacts = {profile(1, "2026-03-02", {"v1"}), profile(0, "2026-03-01", {"best"}),
                                       profile(2, "2026-03-03")};
    artifacts[2].state = "PENDING";
    CHECK(choose_artifact(artifacts, {})->version == 1);
    CHECK(choose_artifact(artifacts, "best")->version == 0);
    CHECK(choose_artifact(artifacts, "v0")->version == 0);
    CHECK(choose_artifact(artifacts, "none").error().kind == ErrorKind::remote_missing);
    artifacts = {profile(0, "x")};
    artifacts[0].type = "model";
    const auto none = choose_artifact(artifacts, {});
    CHECK(none.error().kind == ErrorKind::nothing_done);
    CHECK(has(none.error().message, "it has: model"));
}

TEST_CASE("wandb artifacts: pages") {
    const auto page = parse_run_artifacts(
        R"({"data":{"project":{"run":{"artifacts":{"pageInfo":{"endCursor":"c","hasNextPage":true},"edges":[{"node":{"id":"a","state":"COMMITTED",
        "versionIndex":3,"updatedAt":"t","artifactType":{"name":"jax_profile"},"artifactSequence":{"name":"n"},"aliases":[{"alias":"latest"}]}},{"node":null}]}}}}})",
        {"e", "p", "r"});
    REQUIRE(page);
    CHECK(page->next == "c");
    REQUIRE(page->items.size() == 1);
    CHECK(page->items[0].version_name() == "v3");
    CHECK(page->items[0].has_alias("latest"));
    CHECK(parse_run_artifacts(R"({"data":{"project":null}})", {"e", "p", "r"}).error().kind ==
          ErrorKind::remote_missing);
    CHECK(parse_run_artifacts(R"({"data":{"project":{"run":null}}})", {"e", "p", "r"}).error().kind ==
          ErrorKind::remote_missing);
    CHECK(parse_run_artifacts(R"({"errors":[{"message":"permission denied"}]})", {}).error().kind ==
          ErrorKind::authentication);
    CHECK(parse_run_artifacts(R"({"errors":[{"message":"boom"}]})", {}).error().kind == ErrorKind::infrastructure);
    CHECK(parse_run_artifacts("<html>", {}).error().kind == ErrorKind::infrastructure);
}

TEST_CASE("wandb artifacts: manifests and addresses") {
    const auto manifest = parse_manifest(
        R"({"version":1,"storagePolicyConfig":{"storageLayout":"V2"},"contents":{"a/b.pb":{"digest":"1B2M2Y8AsgTpgAmY7PhCfg==","size":0,"birthArtifactID":"Q=="},
        "far":{"digest":"x","ref":"gs://b/far"}}})");
    REQUIRE(manifest);
    REQUIRE(manifest->entries.size() == 2);
    CHECK(manifest->entries[0].md5 == "d41d8cd98f00b204e9800998ecf8427e");
    CHECK(manifest->entries[1].ref == "gs://b/far");
    const WandbPath path{"e", "p q", "r"};
    CHECK(file_address("https://h", path, profile(0, ""), *manifest, manifest->entries[0]) ==
          "https://h/artifactsV2/default/e/p%20q/run-r-profiler/Q%3D%3D/d41d8cd98f00b204e9800998ecf8427e/b.pb");
    Manifest old = *manifest;
    old.second_layout = false;
    CHECK(file_address("https://h", path, profile(0, ""), old, old.entries[0]) ==
          "https://h/artifacts/e/d41d8cd98f00b204e9800998ecf8427e");
    for (const char* bad :
         {"", "[]", "{}", R"({"version":2,"contents":{}})", R"({"version":1,"contents":{"a":{"size":1}}})",
          R"({"version":1,"contents":{"a":{"digest":"1B2M2Y8AsgTpgAmY7PhCfg==","size":-1}}})",
          R"({"version":1,"contents":{"a":5}})"}) {
        CAPTURE(bad);
        CHECK(parse_manifest(bad).error().kind == ErrorKind::infrastructure);
    }
}

TEST_CASE("wandb artifacts: where a configuration says that profiles are") {
    const auto places = parse_profile_places(
        R"({"data":{"project":{"run":{"config":"{\"trainer\":{\"value\":{\"log_dir\":\"gs://b/logs\",\"profiler\":{\"path\":\"gs://b/x\",\"steps\":3}}},\"other\":{\"value\":\"gs://no\"}}"}}}})");
    CHECK(places == std::vector<std::string>{"trainer.log_dir: gs://b/logs", "trainer.profiler.path: gs://b/x"});
    CHECK(parse_profile_places("nonsense").empty());
    CHECK(parse_profile_places(R"({"data":{"project":{"run":{"config":null}}}})").empty());
    // No depth of it is too much.
    std::string deep;
    for (int i = 0; i < 200'000; ++i) deep += R"({\"value\":)";
    deep += "1" + std::string(200'000, '}');
    CHECK(parse_profile_places(R"({"data":{"project":{"run":{"config":")" + deep + R"("}}}})").empty());
}

}  // namespace gdnctl::wandb
