#include "services/devtpu/holder.h"

#include <doctest/doctest.h>

#include "core/json.h"
#include "services/devtpu/holds.h"
#include "support/temp_dir.h"

using namespace gdnctl;
using namespace gdnctl::devtpu;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

constexpr Terms k_terms{10, 20, 100};
const Clock::Monotonic k_start{seconds(1000)};
const WallTime k_wall{seconds(1'700'000'000)};

}  // namespace

TEST_CASE("a lease that nobody renews ends with its grace") {
    LeaseWatch watch(k_terms, k_start);
    watch.see(k_wall, k_wall, k_start);  // the holder's own file is no renewal
    CHECK(!watch.over(k_start + seconds(19)));
    CHECK(watch.over(k_start + seconds(20)) == HoldEnd::lease);
}

TEST_CASE("a renewal is a changed time of the lease file, and counts from then on") {
    LeaseWatch watch(k_terms, k_start);
    watch.see(k_wall, k_wall, k_start);
    watch.see(k_wall + seconds(15), k_wall + seconds(16), k_start + seconds(16));
    CHECK(!watch.over(k_start + seconds(24)));
    CHECK(watch.over(k_start + seconds(25)) == HoldEnd::lease);
    watch.see(k_wall + seconds(24), k_wall + seconds(24), k_start + seconds(24));
    CHECK(!watch.over(k_start + seconds(33)));
    watch.see(std::nullopt, k_wall + seconds(33), k_start + seconds(33));  // cannot be read: nothing changes
    CHECK(watch.over(k_start + seconds(34)) == HoldEnd::lease);
}

TEST_CASE("a clock that is set neither ends a hold nor keeps it") {
    LeaseWatch watch(k_terms, k_start);
    watch.see(k_wall, k_wall, k_start);
    watch.see(k_wall + seconds(1), k_wall + seconds(1), k_start + seconds(1));
    SUBCASE("forward: the old time of the file is as old as it was") {
        watch.see(k_wall + seconds(1), k_wall + hours(5), k_start + seconds(2));
        CHECK(!watch.over(k_start + seconds(10)));
    }
    SUBCASE("backward: times ahead by minutes count as now") {
        watch.see(k_wall + seconds(5), k_wall - seconds(200), k_start + seconds(5));
        CHECK(!watch.over(k_start + seconds(14)));
        CHECK(watch.over(k_start + seconds(15)) == HoldEnd::lease);
    }
    SUBCASE("a time further ahead is no renewal") {
        watch.see(k_wall + hours(1), k_wall + seconds(5), k_start + seconds(5));
        CHECK(watch.over(k_start + seconds(11)) == HoldEnd::lease);
    }
}

TEST_CASE("the cap ends a hold however often it is renewed") {
    LeaseWatch watch(k_terms, k_start);
    watch.see(k_wall, k_wall, k_start);
    watch.see(k_wall + seconds(99), k_wall + seconds(99), k_start + seconds(99));
    CHECK(!watch.over(k_start + seconds(99)));
    CHECK(watch.over(k_start + seconds(100)) == HoldEnd::max_hold);
}

TEST_CASE("terms travel in a job's metadata") {
    std::map<std::string, std::string> metadata;
    put_terms(metadata, {1, 2, 3});
    CHECK(terms_of(metadata).lease_s == 1);
    CHECK(terms_of(metadata).grace_s == 2);
    CHECK(terms_of(metadata).max_hold_s == 3);
    CHECK(terms_of({{"lease_s", "soon"}, {"grace_s", "-1"}}).lease_s == Terms().lease_s);
    CHECK(terms_of({{"lease_s", "soon"}, {"grace_s", "-1"}}).grace_s == Terms().grace_s);
}

TEST_CASE("heartbeats come four times a lease, and every 30 s at least") {
    CHECK(heartbeat_interval({600, 1, 1}) == seconds(30));
    CHECK(heartbeat_interval({60, 1, 1}) == seconds(15));
    CHECK(heartbeat_interval({1, 1, 1}) == milliseconds(250));
}

TEST_CASE("when a lease ends: after its last renewal, the grace before the first, never after the cap") {
    CHECK(lease_end(k_terms, k_wall, std::nullopt) == k_wall + seconds(20));
    CHECK(lease_end(k_terms, k_wall, k_wall + seconds(7)) == k_wall + seconds(17));
    CHECK(lease_end(k_terms, k_wall, k_wall + seconds(97)) == k_wall + seconds(100));
}

TEST_CASE("terms are checked") {
    CHECK(check_terms({1, 1, 1}));
    CHECK(!check_terms({0, 1, 1}));
    CHECK(!check_terms({1, -1, 1}));
    CHECK(!check_terms({1, 1, 1'000'000'000}));
}

using namespace gdnctl;
using namespace gdnctl::devtpu;

TEST_CASE("the holder's marker begins its line") {
    const auto host = parse_host_line(
        R"(GDNCTL_HOST_INFO {"hostname":"h","ip_address":"203.0.113.7","tpu_name":"a","gcloud_zone":"us-central1-a","pid":7,"accel_count":4,"new":[1]})");
    REQUIRE(host);
    CHECK(host->hostname == "h");
    CHECK(host->reachable_ip() == "203.0.113.7");
    CHECK(host->pid == 7);
    CHECK(host->accel_count == 4);
    CHECK(host_info_of(host_info_json(*host)) == *host);
    CHECK(!parse_host_line(" GDNCTL_HOST_INFO {}"));
    CHECK(!parse_host_line("Running entrypoint for job x: echo GDNCTL_HOST_INFO {}"));
    CHECK(!parse_host_line("GDNCTL_HOST_INFO {broken"));
    CHECK(!parse_host_line("GDNCTL_HOST_INFO []"));
}

TEST_CASE("a host without an outside address is reached by its node's") {
    HostInfo host;
    host.node_ip = "10.0.0.7";
    CHECK(host.reachable_ip() == "10.0.0.7");
    host.ip_address = "203.0.113.7";
    CHECK(host.reachable_ip() == "203.0.113.7");
}

TEST_CASE("a holder's log is read in pieces, through noise") {
    const std::string log =
        "2026-01-01 INFO job_manager.py:1 -- Runtime env is setting up.\n\nGDNCTL_HOST_INFO {\"hostname\":\"h\"}\n"
        "Running entrypoint for job x: GDNCTL_RELEASED {\"reason\":\"lease\"}\n\nGDNCTL_RELEASED "
        "{\"reason\":\"preempted\"}\n";
    for (std::size_t piece : {std::size_t{1}, std::size_t{7}, log.size()}) {
        HolderLog reader;
        for (std::size_t at = 0; at < log.size(); at += piece) reader.feed(std::string_view(log).substr(at, piece));
        REQUIRE(reader.host());
        CHECK(reader.host()->hostname == "h");
        CHECK(reader.end() == HoldEnd::preempted);
    }
}

TEST_CASE("reasons of an end") {
    for (const HoldEnd end : {HoldEnd::stop, HoldEnd::lease, HoldEnd::max_hold, HoldEnd::preempted}) {
        CHECK(parse_hold_end(to_text(end)) == end);
    }
    CHECK(!parse_released_line("GDNCTL_RELEASED {\"reason\":\"other\"}"));
}

TEST_CASE("zones") {
    CHECK(parse_zone("projects/123456789/zones/us-central1-a\n").zone == "us-central1-a");
    CHECK(parse_zone("projects/123456789/zones/us-central1-a").region == "us-central1");
    CHECK(parse_zone("").zone.empty());
    CHECK(parse_zone("<html>").zone.empty());
}

using namespace gdnctl;
using namespace gdnctl::devtpu;

namespace {

HoldRecord record(std::string name, std::string id, std::int64_t created = 1) {
    HoldRecord r;
    r.tpu_name = std::move(name);
    r.cluster = "us-central1";
    r.submission_id = std::move(id);
    r.user = "alice";
    r.state = "ready";
    r.host.hostname = "h";
    r.terms = {1, 2, 3};
    r.created = WallTime(std::chrono::seconds(created));
    r.ssh_ok = false;
    return r;
}

}  // namespace

TEST_CASE("holds come back as they were kept") {
    HoldRecord one = record("a", "id-1");
    one.renewed = WallTime(std::chrono::seconds(9));
    const auto back = parse_holds(holds_text({one, record("b", "id-2")}));
    REQUIRE(back.size() == 2);
    CHECK(back[0].host == one.host);
    CHECK(back[0].terms.max_hold_s == 3);
    CHECK(back[0].renewed == one.renewed);
    CHECK(back[0].ssh_ok == false);
    CHECK(!back[1].renewed);
    CHECK(!back[1].setup_ok);
    for (const char* damaged : {"", "{", "[]", "{\"holds\":3}", "{\"holds\":[1,{}]}"})
        CHECK(parse_holds(damaged).empty());
}

TEST_CASE("the newest hold of a name and a cluster is found") {
    const test::TempDir folder;
    const HoldStore store(folder.path() / "state");
    CHECK(!*store.find("a", {}, {}));
    REQUIRE(store.put(record("a", "id-1", 5)));
    REQUIRE(store.put(record("a", "id-2", 7)));
    REQUIRE(store.put(record("b", "id-3", 9)));
    CHECK((*store.find("a", {}, {}))->submission_id == "id-2");
    CHECK(!*store.find("a", "local", {}));
    CHECK(!*store.find("a", {}, "http://elsewhere"));
    REQUIRE(store.renewed("id-2", WallTime(std::chrono::seconds(8))));
    CHECK((*store.find("a", "us-central1", {}))->renewed == WallTime(std::chrono::seconds(8)));
    REQUIRE(store.forget("id-2"));
    REQUIRE(store.forget("id-2"));
    CHECK((*store.find("a", {}, {}))->submission_id == "id-1");
}

TEST_CASE("a cluster's holder is one argument of python3, with its settings in the environment") {
    HolderRequest request;
    request.submission_id = "gdnctl-hold-x";
    request.tpu_name = "a";
    request.terms = {5, 6, 7};
    request.resources = {{"TPU", 4}};
    const JobRequest job = holder_job(request);
    CHECK(job.entrypoint.starts_with("exec python3 -c \"import base64;exec(base64.b64decode('"));
    CHECK(job.entrypoint.size() < (std::size_t{128} << 10));
    CHECK(job.entrypoint.find('$') == std::string::npos);
    CHECK(job.metadata.at("kind") == "hold");
    CHECK(job.metadata.at("lease_s") == "5");
    CHECK(job.beside.empty());
    CHECK(heartbeat_job("gdnctl-hold-x", "hb", "").beside == "gdnctl-hold-x");
    CHECK(heartbeat_job("gdnctl-hold-x", "hb", "").resources.empty());
}
