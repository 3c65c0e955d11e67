// Dashboard addresses, and what may be sent where.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include "core/redact.h"
#include "services/cluster/cluster.h"
#include "services/cluster/tunnel.h"
#include "support/fake_env.h"
#include "support/fake_process.h"
#include "support/scratch.h"

using namespace gdnctl;
using gdnctl::test::FakeEnv;

TEST_CASE("address: scheme, slashes and prefix") {
    CHECK(*normalize_address("http://h:8265") == "http://h:8265");
    CHECK(*normalize_address("http://h:8265///") == "http://h:8265");
    CHECK(*normalize_address("h:8265") == "http://h:8265");
    CHECK(*normalize_address(" h ") == "http://h");
    CHECK_FALSE(normalize_address("http://h/a\n/"));
    CHECK_FALSE(normalize_address("http://h/a b"));
    CHECK(*normalize_address("localhost:9999/us-central1/") == "http://localhost:9999/us-central1");
    CHECK(*normalize_address("https://x.example.org/ray/a/") == "https://x.example.org/ray/a");
    CHECK(*normalize_address("http://[::1]:8265") == "http://[::1]:8265");
    for (const char* bad :
         {"ray://h:10001", "", "  ", "http://", "http://h:0", "http://h:65536", "http://h:x", "http://u:p@h",
          "http://h?x=1", "http://h/#/jobs", "http://a b", "ftp://h", "http://[::1"}) {
        CHECK_MESSAGE(!normalize_address(bad), bad);
        CHECK(normalize_address(bad).error().kind == ErrorKind::usage);
    }
}

TEST_CASE("address: out of the environment, dashboards only") {
    CHECK(!*ray_address_of(FakeEnv()));
    const auto both = *ray_address_of(FakeEnv{{"RAY_ADDRESS", "http://a"}, {"RAY_API_SERVER_ADDRESS", "https://b/"}});
    REQUIRE(both);
    CHECK(both->url == "https://b");
    CHECK(both->origin == "environment RAY_API_SERVER_ADDRESS");
    const auto skipped =
        *ray_address_of(FakeEnv{{"RAY_API_SERVER_ADDRESS", "ray://h:10001"}, {"RAY_ADDRESS", "HTTP://a:1/p/"}});
    REQUIRE(skipped);
    CHECK(skipped->url == "HTTP://a:1/p");
    CHECK(skipped->origin == "environment RAY_ADDRESS");
    for (const char* other : {"ray://h:10001", "10.0.0.7:6379", "auto", "local", " "}) {
        CHECK_MESSAGE(!*ray_address_of(FakeEnv{{"RAY_ADDRESS", other}}), other);
    }
    CHECK(!ray_address_of(FakeEnv{{"RAY_ADDRESS", "http://u@h"}}));
}

TEST_CASE("address: where a token may go in clear text") {
    for (const char* yes : {"http://127.0.0.1:8265", "http://127.8.9.1", "http://localhost:1/p", "http://[::1]:1",
                            "https://anywhere.example.org", "http://LOCALHOST"}) {
        CHECK_MESSAGE(is_confidential(yes), yes);
    }
    for (const char* no : {"http://10.0.0.7:8265", "http://localhost.example.org", "http://127.0.0.1.example.org",
                           "http://127.1", "http://0x7f000001", "http://2130706433", "http://[::2]", "", "127.0.0.1"}) {
        CHECK_MESSAGE(!is_confidential(no), no);
    }
}

TEST_CASE("address: agents that a plain address leads to") {
    const auto agent = [](const char* dashboard, const char* address, bool token, bool plaintext) {
        return make_plain_route(dashboard, token ? "t" : "", plaintext)->agent_url(address).value_or("-");
    };
    CHECK(agent("http://10.9.9.9:8265", "http://10.9.9.9:52365", false, false) == "http://10.9.9.9:52365");
    CHECK(agent("http://10.9.9.9:8265", "http://10.9.9.9:52365", true, false) == "-");
    CHECK(agent("http://10.9.9.9:8265", "http://10.9.9.9:52365", true, true) == "http://10.9.9.9:52365");
    // Behind somebody's tunnel or proxy the node is out of reach.
    CHECK(agent("http://127.0.0.1:8265", "http://10.9.9.9:52365", false, false) == "-");
    CHECK(agent("https://proxy/us-central1", "http://10.9.9.9:52365", true, true) == "-");
    CHECK(agent("http://127.0.0.1:8265", "http://127.0.0.1:52365", true, false) == "http://127.0.0.1:52365");
    CHECK(agent("http://127.0.0.1:8265", "nonsense", false, false) == "-");
    CHECK(*make_plain_route("http://h/p", "t", false)->url() == "http://h/p");
}

TEST_CASE("address: which are of this machine") {
    CHECK(cluster::is_own_address("127.0.0.1"));
    CHECK(!cluster::is_own_address("203.0.113.7"));
    CHECK(!cluster::is_own_address("example.org"));
}

// Where the token is looked for, in which order, and what is kept of it.
namespace fs = std::filesystem;
using namespace gdnctl;
using gdnctl::test::FakeEnv;
using gdnctl::test::FakeProcess;
using gdnctl::test::read_whole;
using gdnctl::test::Scratch;

namespace {

const std::vector<std::string> k_secret_call = {
    "gcloud", "secrets", "versions", "access", "latest", "--secret=RAY_AUTH_TOKEN", "--project=proj"};

ClusterFile with_project() {
    ClusterFile file;
    file.cluster_name = "c";
    file.project = "proj";
    return file;
}

ProcessResult failed(std::string said) {
    ProcessResult result;
    result.exit_code = 1;
    result.err = std::move(said);
    return result;
}

}  // namespace

TEST_CASE("token: the environment comes first, trimmed as Ray trims it") {
    FakeProcess none;
    const auto found =
        find_ray_token(FakeEnv{{"RAY_AUTH_TOKEN", " \t\ntok-one-123\r\f\v"}, {"RAY_AUTH_TOKEN_PATH", "/nowhere"}},
                       nullptr, {&none, {}});
    REQUIRE(found);
    CHECK(found->value == "tok-one-123");
    CHECK(found->origin == "environment RAY_AUTH_TOKEN");
    CHECK(redact("x tok-one-123 y").find("tok-one-123") == std::string::npos);
}

TEST_CASE("token: a named file has no substitute") {
    const Scratch home;
    home.file(".ray/auth_token", "from-home-1234\n");
    FakeProcess none;
    const auto look = [&](const fs::path& named) {
        return find_ray_token(
            FakeEnv{{"RAY_AUTH_TOKEN", "  "}, {"RAY_AUTH_TOKEN_PATH", named.string()}, {"HOME", home.path().string()}},
            nullptr, {&none, {}});
    };
    CHECK(look(home.file("t", "named-file-99\n"))->value == "named-file-99");
    for (const fs::path& bad : {home / "missing", home.file("empty", " \n\v"), home.path()}) {
        const auto found = look(bad);
        REQUIRE(!found);
        CHECK(exit_code_of(found.error().kind) == ExitCode::authentication);
        CHECK(found.error().message.find("RAY_AUTH_TOKEN_PATH") != std::string::npos);
    }
}

TEST_CASE("token: the usual file, before any question to gcloud") {
    const Scratch home;
    const FakeEnv env{{"HOME", home.path().string()}};
    const ClusterFile cluster = with_project();
    FakeProcess none;
    home.file(".ray/auth_token", "from-home-1234\n");
    CHECK(find_ray_token(env, &cluster, {&none, {}})->value == "from-home-1234");
    home.file(".ray/auth_token", "two words\n");
    CHECK(find_ray_token(env, nullptr, {&none, {}}).error().kind == ErrorKind::authentication);
    home.file(".ray/auth_token", "\n");
    const auto found = find_ray_token(env, nullptr, {&none, {}});
    REQUIRE(found);
    CHECK(found->value.empty());
    CHECK(token_hint(*found, false).find("auth_token: empty") != std::string::npos);
    CHECK(token_hint(*found, false).find("make get_ray_auth_token") != std::string::npos);
}

TEST_CASE("token: the project's secret is kept, for its owner only") {
    const Scratch home;
    const ClusterFile cluster = with_project();
    FakeProcess process;
    SUBCASE("no folder yet") {}
    SUBCASE("an empty file that others may read") { ::chmod(home.file(".ray/auth_token", "").c_str(), 0644); }
    process.expect(k_secret_call, 0, "secret-token-1\n");
    const auto found = find_ray_token(FakeEnv{{"HOME", home.path().string()}}, &cluster, {&process, {}});
    REQUIRE(found);
    CHECK(found->value == "secret-token-1");
    CHECK(found->origin == "secret RAY_AUTH_TOKEN of project proj");
    CHECK(read_whole(home / ".ray/auth_token") == "secret-token-1\n");
    struct stat facts{};
    REQUIRE(::stat((home / ".ray/auth_token").c_str(), &facts) == 0);
    CHECK((facts.st_mode & 0777U) == 0600);
}

TEST_CASE("token: what can be wrong with the secret") {
    const Scratch home;
    const ClusterFile cluster = with_project();
    const auto look = [&](ProcessResult result) {
        FakeProcess process;
        process.expect(k_secret_call, std::move(result));
        return find_ray_token(FakeEnv{{"HOME", home.path().string()}}, &cluster, {&process, {}});
    };
    ProcessResult empty;
    empty.out = " \n";
    CHECK(look(empty).error().message == "Secret RAY_AUTH_TOKEN returned empty token");
    CHECK(look(empty).error().kind == ErrorKind::authentication);
    CHECK(
        look(failed(
                 "ERROR: (gcloud) You do not currently have an active account selected.\nPlease run:\n  $ gcloud auth "
                 "login\n"))
            .error()
            .kind == ErrorKind::authentication);
    CHECK(look(failed("ERROR: PERMISSION_DENIED: no")).error().kind == ErrorKind::authentication);
    CHECK(look(failed("a notice\nERROR: (gcloud) broken\nmore advice\n")).error().message ==
          "cannot get the secret RAY_AUTH_TOKEN of project proj: (gcloud) broken");
    CHECK(look(failed("ERROR: something else")).error().kind == ErrorKind::infrastructure);
    const auto absent = look(failed("ERROR: NOT_FOUND: Secret [x] not found"));
    REQUIRE(absent);  // an open cluster needs none
    CHECK(absent->value.empty());
    CHECK(!fs::exists(home / ".ray"));
}

TEST_CASE("token: without gcloud the message says what to do") {
    FakeProcess process;
    const ClusterFile cluster = with_project();
    process.expect(k_secret_call, fail(ErrorKind::local_io, "cannot start gcloud: No such file or directory"));
    const auto found = find_ray_token(FakeEnv(), &cluster, {&process, {}});
    REQUIRE(!found);
    CHECK(found.error().kind == ErrorKind::infrastructure);
    CHECK(found.error().hint.find("--ray-address") != std::string::npos);
}

TEST_CASE("token: a withheld one is named") {
    RayToken token;
    token.value = "x";
    token.origin = "environment RAY_AUTH_TOKEN";
    CHECK(token_hint(token, true).find("--allow-plaintext-token") != std::string::npos);
    CHECK(token_hint(token, true).find("environment RAY_AUTH_TOKEN") != std::string::npos);
}

TEST_CASE("head node: what gcloud prints") {
    CHECK(cluster::parse_head_node("10.128.0.5\t34.1.2.3\n", "c")->internal_ip == "10.128.0.5");
    CHECK(cluster::parse_head_node("10.128.0.5\t34.1.2.3\n", "c")->ssh_ip == "34.1.2.3");
    CHECK(cluster::parse_head_node("10.128.0.5\n", "c")->ssh_ip == "10.128.0.5");
    CHECK(cluster::parse_head_node("10.128.0.5\t\n", "c")->ssh_ip == "10.128.0.5");
    for (const char* empty : {"", "\n", "\t\n", " \n"}) {
        const auto head = cluster::parse_head_node(empty, "marin-x");
        REQUIRE(!head);
        CHECK(head.error().message == "No head node found for cluster marin-x");
        CHECK(exit_code_of(head.error().kind) == ExitCode::infrastructure);
    }
    CHECK(!cluster::parse_head_node("-oProxyCommand=x\t1.2.3.4", "c"));
    CHECK(!cluster::parse_head_node("1.2.3.4\t-oProxyCommand=x", "c"));
}

TEST_CASE("head node: the question to gcloud") {
    FakeProcess process;
    process.expect(
        {"gcloud", "compute", "instances", "list", "--filter",
         "labels.ray-cluster-name=c AND labels.ray-node-type=head", "--format",
         "value(networkInterfaces[0].networkIP,networkInterfaces[0].accessConfigs[0].natIP)", "--limit", "1",
         "--project=proj"},
        [] {
            ProcessResult result;
            result.out = "10.0.0.1\t34.0.0.1\n";
            return result;
        }(),
        [](const ProcessSpec& spec) { CHECK(spec.wall_limit == std::chrono::seconds(30)); });
    CHECK(cluster::find_head_node({&process, {}}, with_project())->ssh_ip == "34.0.0.1");
    FakeProcess none;
    CHECK(cluster::find_head_node({&none, {}}, ClusterFile()).error().kind == ErrorKind::config);
}
