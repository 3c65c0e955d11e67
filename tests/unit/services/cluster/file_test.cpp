// Cluster files: which one is meant, what is read out of it, which accelerator it offers.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "services/cluster/cluster.h"
#include "support/scratch.h"

namespace fs = std::filesystem;
using namespace gdnctl;
using gdnctl::test::Scratch;

namespace {

constexpr const char* k_cluster = R"(# a cluster as people keep it
cluster_name: marin-us-central1
max_workers: 1024
auth:
  ssh_user: ray
  ssh_private_key: ~/.ssh/marin_ray_cluster.pem
provider:
  type: gcp
  region: us-central1
  availability_zone: us-central1-a
  project_id: hai-gcp-models
docker:
  image: "us-central1-docker.pkg.dev/x/marin:latest"
  container_name: ray_docker
available_node_types:
  head_default:
    min_workers: 0
    resources: {"CPU": 0, "head_node": 1}
    node_config: {machineType: n2-standard-8}
  tpu_slice_v5p_16:
    max_workers: 4
    resources: {CPU: 120, TPU: 4}
    node_config:
      acceleratorType: v5p-16
      schedulingConfig: {preemptible: true}
  tpu_worker:
    min_workers: 2
    max_workers: 1024
    resources: {CPU: 120, TPU: 4}
    node_config:
      acceleratorType: v5p-8
      runtimeVersion: v2-alpha-tpuv5
      schedulingConfig:
        preemptible: True
)";

std::string relative(const Scratch& root, const Result<fs::path>& found) {
    return found ? found->lexically_relative(root.path()).string() : found.error().message;
}

Result<ClusterFile> read(const Scratch& folder, std::string_view text) {
    return read_cluster_file(folder.file("x.yaml", text), "/home/me");
}

}  // namespace

TEST_CASE("cluster file: the fields that matter") {
    const Scratch folder;
    const auto file = read(folder, k_cluster);
    REQUIRE(file);
    CHECK(file->cluster_name == "marin-us-central1");
    CHECK(file->ssh_user == "ray");
    CHECK(file->ssh_key == "/home/me/.ssh/marin_ray_cluster.pem");
    CHECK(file->provider == "gcp");
    CHECK(file->region == "us-central1");
    CHECK(file->zone == "us-central1-a");
    CHECK(file->project == "hai-gcp-models");
    REQUIRE(file->node_types.size() == 3);
    CHECK(file->node_types[0].name == "head_default");
    CHECK(file->node_types[0].resources.at("head_node") == 1);
    CHECK(file->node_types[0].accelerator.empty());
    CHECK(file->node_types[2].accelerator == "v5p-8");
    CHECK(file->node_types[2].resources.at("TPU") == 4);
}

TEST_CASE("cluster file: what is missing has the usual values") {
    const Scratch folder;
    const auto file = read(folder, "cluster_name: small\n");
    REQUIRE(file);
    CHECK(file->ssh_user == "ray");
    CHECK(file->ssh_key == "/home/me/.ssh/marin_ray_cluster.pem");
    CHECK(file->node_types.empty());
    CHECK(read(folder, "cluster_name: a\nauth: {ssh_private_key: /keys/k}\n")->ssh_key == "/keys/k");
    CHECK(read(folder, "available_node_types: [1, 2]\nprovider: gcp\n")->project.empty());
}

TEST_CASE("cluster file: anchors and merge keys") {
    const Scratch folder;
    const auto file = read(folder,
                           "available_node_types:\n"
                           "  a: &base {resources: {TPU: 4}, node_config: {acceleratorType: v4-8}}\n"
                           "  tpu_worker:\n    <<: *base\n    max_workers: 3\n");
    REQUIRE(file);
    REQUIRE(file->node_types.size() == 2);
    CHECK(file->node_types[1].accelerator == "v4-8");
}

TEST_CASE("cluster file: lookup order of a name") {
    const Scratch root;
    const auto find = [&](const std::string& name) {
        return relative(root, find_cluster_file({root.path(), root / "sub", {}}, name));
    };
    fs::create_directories(root / "sub");
    CHECK(find("us-central1") ==
          "No cluster config found for region us-central1: looked for infra/marin-us-central1.yaml, "
          "infra/marin-us-central1-a.yaml, infra/marin-us-central1-b.yaml, infra/marin-us-central1-vllm.yaml in " +
              root.path().string() + ", lib/iris/config/us-central1.yaml, lib/iris/config/us-central1.yml in " +
              root.path().string());
    root.file("infra/marin-us-central1-vllm.yaml", "a: b");
    CHECK(find("us-central1") == "infra/marin-us-central1-vllm.yaml");
    root.file("infra/marin-us-central1-b.yaml", "a: b");
    CHECK(find("us-central1") == "infra/marin-us-central1-b.yaml");
    root.file("infra/marin-us-central1-a.yaml", "a: b");
    CHECK(find("us-central1") == "infra/marin-us-central1-a.yaml");
    CHECK(find("marin-us-central1") == "infra/marin-us-central1-a.yaml");
    root.file("infra/marin-us-central1.yaml", "a: b");
    CHECK(find("us-central1") == "infra/marin-us-central1.yaml");
    CHECK(find("marin-us-central1") == "infra/marin-us-central1.yaml");
    root.file("infra/marin-marin-us-central1.yaml", "a: b");
    CHECK(find("marin-us-central1") == "infra/marin-marin-us-central1.yaml");
    CHECK(find("mine.yaml") == "sub/mine.yaml");  // ends in .yaml: that file, there or not
    root.file("sub/us-central1", "a: b");
    CHECK(find("us-central1") == "sub/us-central1");
    fs::create_directories(root / "sub/us-east5-a");  // a folder is no cluster file
    const std::string bare = find("marin-x");
    CHECK(bare.find("looked for infra/marin-marin-x.yaml, infra/marin-x.yaml, infra/marin-x-a.yaml, ") !=
          std::string::npos);
    CHECK(find("us-east5-a").starts_with("No cluster config found for region us-east5-a: looked for infra/marin-"));
    CHECK(find("../infra/marin-us-central1") ==
          "No cluster config found for region ../infra/marin-us-central1: looked for " +
              (root / "infra/marin-us-central1").string());
    CHECK(find("").starts_with("No cluster config found for region : looked for "));
}

TEST_CASE("cluster file: an unknown name is answered with those that there are") {
    const Scratch root;
    root.file("infra/marin-us-east5-a.yaml", "a: b");
    root.file("infra/marin-big-run.yaml", "a: b");
    root.file("infra/other.yaml", "a: b");
    root.file("infra/marin-x.yml", "a: b");
    CHECK(cluster_names({root.path(), {}, {}}) == std::vector<std::string>{"big-run", "us-east5-a"});
    const auto found = find_cluster_file({root.path(), root.path(), {}}, "us-east5-b");
    REQUIRE(!found);
    CHECK(found.error().kind == ErrorKind::usage);
    CHECK(
        found.error().hint ==
        "did you mean `us-east5-a`? known clusters: local, big-run, us-east5-a; use `--cluster-config FILE` for a "
        "cluster file elsewhere, `--ray-address URL` for a Ray dashboard, or `--iris-url URL` for an Iris controller");
    CHECK(cluster_names({root / "nowhere", {}, {}}).empty());
}

TEST_CASE("cluster file: faults") {
    const Scratch folder;
    CHECK(read_cluster_file(folder / "none.yaml", "/").error().kind == ErrorKind::usage);
    CHECK(read_cluster_file(folder / "none.yaml", "/").error().hint.find("--ray-address URL") != std::string::npos);
    CHECK(read(folder, "").error().kind == ErrorKind::config);
    CHECK(read(folder, "just a line\n").error().kind == ErrorKind::config);
    const auto bad = read(folder, "a: b\nc: [1, 2\nd: e\n");
    REQUIRE(!bad);
    CHECK(bad.error().kind == ErrorKind::config);
    CHECK(bad.error().message.find("x.yaml:") != std::string::npos);
    CHECK(read(folder, std::string(2 << 20, 'a')).error().kind == ErrorKind::bad_input);
    CHECK(!read(folder, std::string(5000, '[')));
    std::string bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n";
    for (char c = 'b'; c < 'k'; ++c) {
        const char before = static_cast<char>(c - 1);
        bomb += fmt::format("{}: &{} [*{},*{},*{},*{},*{},*{},*{},*{},*{},*{}]\n", c, c, before, before, before, before,
                            before, before, before, before, before, before);
    }
    CHECK(read(folder, bomb).error().message.ends_with("too large"));
    CHECK(!read(folder, std::string("a: \0b\n", 6) + "\xff\xfe: [}"));
}

TEST_CASE("tpu auto: the worker type of the cluster") {
    const Scratch folder;
    CHECK(infer_tpu(*read(folder, k_cluster)) == "v5p-8");
    CHECK(infer_tpu(*read(folder,
                          "available_node_types:\n"
                          "  cpu: {resources: {CPU: 8}, node_config: {acceleratorType: none-1}}\n"
                          "  serve: {resources: {TPU: 8}, node_config: {acceleratorType: v6e-8}}\n"
                          "  other: {resources: {TPU: 4}, node_config: {acceleratorType: v6e-4}}\n")) == "v6e-8");
    const auto none = infer_tpu(*read(folder, "cluster_name: cpu\n"));
    REQUIRE(!none);
    CHECK(none.error().message == "Unable to infer TPU worker type from cluster config.");
    CHECK(exit_code_of(none.error().kind) == ExitCode::usage);
}

TEST_CASE("tpu types: what a cluster offers") {
    const Scratch folder;
    const ClusterFile file = *read(folder, k_cluster);
    CHECK(tpu_types(file) == std::vector<std::string>{"v5p-16", "v5p-8"});
    CHECK(offers_tpu(file, "v5p-8"));
    CHECK(!offers_tpu(file, "v6e-8"));
    CHECK(offers_tpu(*read(folder, "available_node_types: {w: {resources: {TPU-v6e-8-head: 1, TPU: 8}}}\n"), "v6e-8"));
}

TEST_CASE(".marin.yaml: variables as they are written, null is empty") {
    const Scratch folder;
    using Env = std::vector<std::pair<std::string, std::string>>;
    CHECK(*read_env_table(folder / "none") == Env{});
    CHECK(*read_env_table(folder.file("m", "")) == Env{});
    CHECK(*read_env_table(folder.file("m", "other: 1\n")) == Env{});
    CHECK(*read_env_table(folder.file("m", "env:\n")) == Env{});
    CHECK(*read_env_table(folder.file("m",
                                      "env:\n  WANDB_ENTITY: team\n  EMPTY: null\n  TILDE: ~\n  N: 010\n  B: yes\n"
                                      "  Q: \"null\"\n  D: 'a$b \"c\"'\n")) == Env{{"WANDB_ENTITY", "team"},
                                                                                   {"EMPTY", ""},
                                                                                   {"TILDE", ""},
                                                                                   {"N", "010"},
                                                                                   {"B", "yes"},
                                                                                   {"Q", "null"},
                                                                                   {"D", "a$b \"c\""}});
    for (const char* bad : {"env: [1]\n", "env: {A: [1]}\n", "env: {1A: x}\n", "env: {A-B: x}\n", "env: text\n"}) {
        CHECK_MESSAGE(read_env_table(folder.file("m", bad)).error().kind == ErrorKind::config, bad);
    }
    // A value may be a secret: it is not repeated in the message.
    CHECK(read_env_table(folder.file("m", "env: {A: [hunter2hunter2]}\n")).error().text().find("hunter2") ==
          std::string::npos);
}
