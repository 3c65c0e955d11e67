#include "services/devtpu/host_info.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

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
