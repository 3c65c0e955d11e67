// The pure parts of a tunnel and of what is asked through it.
#include "services/cluster/tunnel.h"

#include <doctest/doctest.h>

#include "services/cluster/cluster.h"
#include "support/fake_http.h"

using namespace gdnctl;
using gdnctl::test::FakeHttp;

TEST_CASE("tunnel: who listens on a port") {
    const std::string table =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 0100007F:2049 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 17 1 0 100 0\n"
        "   1: 00000000:204A 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 18 1 0 100 0\n"
        "   2: 0100007F:204B 0100007F:2049 01 00000000:00000000 00:00000000 00000000  1000        0 19 1 0 100 0\n";
    CHECK(cluster::listener_of(table, 0x2049) == 1000U);
    CHECK(!cluster::listener_of(table, 0x204A));  // on every address: not ssh's
    CHECK(!cluster::listener_of(table, 0x204B));  // a connection
    CHECK(!cluster::listener_of("", 1));
    CHECK(!cluster::listener_of("   0: 0100007F:0001 x 0A\n", 1));
}

TEST_CASE("tunnel: a state folder with blanks and percent signs") {
    TunnelConfig config;
    config.known_hosts = "/a b/50%/known_hosts";
    config.cluster.ssh_key = "/k";
    const auto argv = cluster::forward_argv(config, {"10.0.0.1", "203.0.113.7"}, 4000, {"10.0.0.1", 8265});
    CHECK(std::find(argv.begin(), argv.end(), "UserKnownHostsFile=\"/a b/50%%/known_hosts\"") != argv.end());
    CHECK(argv[argv.size() - 2] == "127.0.0.1:4000:10.0.0.1:8265");
}

TEST_CASE("cluster status: TPU in use and what is queued") {
    const auto load = parse_cluster_status(
        R"({"result": true, "data": {"clusterStatus": {"loadMetricsReport": {"usage": {"CPU": [0.0, 2.0],
            "TPU": [4.0, 8.0]}, "resourceDemand": [[{"TPU": 4.0}, 2], "odd", [{"CPU": 1}, 1]]}}}})");
    REQUIRE(load);
    CHECK(load->tpu_used == 4.0);
    CHECK(load->tpu_total == 8.0);
    REQUIRE(load->queued.size() == 2);
    CHECK(load->queued[0].resources.at("TPU") == 4.0);
    CHECK(load->queued[0].count == 2);
    const auto idle = parse_cluster_status(R"({"data": {"clusterStatus": {"loadMetricsReport": {"usage": {}}}}})");
    REQUIRE(idle);
    CHECK(!idle->tpu_total);
    CHECK(idle->queued.empty());
    for (const char* other : {"", "null", "[]", R"({"data": {"clusterStatus": "text"}})", R"({"data": null})"}) {
        CHECK_MESSAGE(!parse_cluster_status(other), other);
    }
}

TEST_CASE("dashboard: the token goes where it belongs, the facts come back") {
    FakeHttp http;
    const auto bearer = [](const HttpRequest& r) {
        REQUIRE(r.secret_headers.size() == 1);
        CHECK(r.secret_headers[0] == std::pair<std::string, std::string>("Authorization", "Bearer t0ken"));
    };
    http.expect("GET", "http://h/p/api/version")
        .reply(200, R"({"version": "4", "ray_version": "2.60.0", "session_name": "s1"})")
        .look(bearer);
    http.expect("GET", "http://h/p/api/authentication_mode").reply(404).look([](const HttpRequest& r) {
        CHECK(r.secret_headers.empty());
    });
    http.expect("GET", "http://h/p/api/cluster_status").reply(500).look(bearer);
    const auto facts = ask_dashboard(http, "http://h/p", "t0ken", {});
    REQUIRE(facts);
    CHECK(facts->ray_version == "2.60.0");
    CHECK(facts->session == "s1");
    CHECK(facts->auth_mode.empty());
    CHECK(!facts->load);
}

TEST_CASE("dashboard: what is no dashboard") {
    for (const auto& [status, body, kind] :
         {std::tuple(401, "Unauthorized: Missing authentication token", ErrorKind::authentication),
          std::tuple(403, "Forbidden: Invalid authentication token", ErrorKind::authentication),
          std::tuple(404, "404: Not Found", ErrorKind::infrastructure),
          std::tuple(200, "<html>sign in</html>", ErrorKind::infrastructure),
          std::tuple(200, "{}", ErrorKind::infrastructure), std::tuple(302, "", ErrorKind::infrastructure)}) {
        FakeHttp http;
        http.expect("GET", "http://h/api/version").reply(status, body);
        const auto facts = ask_dashboard(http, "http://h", "", {});
        REQUIRE(!facts);
        CHECK(facts.error().kind == kind);
    }
}
