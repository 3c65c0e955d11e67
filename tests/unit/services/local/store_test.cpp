#include "services/local/store.h"

#include <doctest/doctest.h>

namespace gdnctl::local {

namespace {

const Resources k_host = {{"CPU", 2}, {"TPU", 4}, {"TPU-v5p-8-head", 1}};

}  // namespace

TEST_CASE("local queue: what fits starts, first come per resource") {
    const std::vector<QueueEntry> queue = {{"a", {{"TPU", 4}}, true},
                                           {"b", {{"TPU", 2}}, false},
                                           {"c", {{"CPU", 1}}, false},
                                           {"d", {{"CPU", 2}}, false},
                                           {"e", {{"CPU", 1}}, false}};
    CHECK_FALSE(may_start(queue, "b", k_host));  // the TPU is held
    CHECK(may_start(queue, "c", k_host));        // does not ask for what b waits for
    CHECK_FALSE(may_start(queue, "d", k_host));  // c came first
    CHECK_FALSE(may_start(queue, "e", k_host));  // so did d, though e alone would fit
}

TEST_CASE("local queue: one that can never start keeps nobody waiting") {
    const std::vector<QueueEntry> queue = {{"huge", {{"TPU", 8}}, false}, {"b", {{"TPU", 4}}, false}};
    CHECK_FALSE(may_start(queue, "huge", k_host));
    CHECK(may_start(queue, "b", k_host));
    CHECK_FALSE(can_ever_fit({{"GPU", 1}}, k_host));
    CHECK(can_ever_fit({}, k_host));
    CHECK(can_ever_fit({{"GPU", 0}}, k_host));
}

TEST_CASE("local queue: fractions add up") {
    std::vector<QueueEntry> queue;
    for (int i = 0; i < 9; ++i) queue.push_back({"h" + std::to_string(i), {{"CPU", 0.1}}, true});
    queue.push_back({"last", {{"CPU", 0.1}}, false});
    CHECK(may_start(queue, "last", {{"CPU", 1}}));
    queue[9].resources["CPU"] = 0.2;
    CHECK_FALSE(may_start(queue, "last", {{"CPU", 1}}));
}

TEST_CASE("local records: read back what was written, and refuse what is damaged") {
    const std::vector<QueueEntry> queue = {{"a", {{"TPU", 4}}, true}, {"b", {}, false}};
    const auto back = parse_queue(to_json_text(queue));
    REQUIRE(back);
    CHECK(back->size() == 2);
    CHECK((*back)[0].holds);
    CHECK((*back)[0].resources == queue[0].resources);
    CHECK_FALSE(parse_queue(R"({"queue":[{"id":"../../x"}]})"));
    CHECK_FALSE(parse_queue("{}"));
    CHECK_FALSE(parse_queue(""));

    LocalRequest request;
    request.submission_id = "r-1";
    request.entrypoint = "echo \"\xff\"";
    request.env_names = {"A"};
    request.resources = {{"CPU", 0.5}};
    request.capacity = k_host;
    request.start_timeout_s = 2.5;
    request.keep_workdir = true;
    const auto r = parse_request(to_json_text(request));
    REQUIRE(r);
    CHECK(r->resources == request.resources);
    CHECK(r->start_timeout_s == 2.5);
    CHECK(r->keep_workdir);
    CHECK_FALSE(parse_request("[]"));
    CHECK_FALSE(parse_request("{}"));

    const SupervisorRecord record{{{12, 34}, "boot", "ns"}, std::nullopt};
    const auto s = parse_supervisor(to_json_text(record));
    REQUIRE(s);
    CHECK(s->supervisor.id == ProcessId{12, 34});
    CHECK_FALSE(s->child);
    CHECK_FALSE(parse_supervisor(R"({"supervisor":{"pid":-1,"start_ticks":1}})"));
    CHECK_FALSE(parse_supervisor(R"({"supervisor":{"pid":1}})"));
}

}  // namespace gdnctl::local
