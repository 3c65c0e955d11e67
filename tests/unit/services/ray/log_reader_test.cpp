// Reading a log by each of the three ways: every byte exactly once, whatever happens on the way.
#include <random>

#include "log_world.h"

namespace gdnctl::ray {

TEST_CASE("log: the agent's file by ranges, 416 means nothing new, a pump is one request") {
    LogWorld world(true);
    world.server.log = lines(0, 100);
    world.open({std::nullopt, true});
    CHECK(*world.pump() == world.server.log.size());
    const std::size_t before = world.server.asked.size();
    CHECK(*world.pump() == 0);
    CHECK(world.server.asked.size() == before + 1);
    world.server.log += "more";
    CHECK(*world.pump() == 4);
    CHECK((world.got == world.server.log));
    CHECK(world.server.count("/api/v0/") == 0);
}

TEST_CASE("log: an agent out of reach is asked once, then the dashboard is") {
    LogWorld world(true);
    world.server.agent = false;
    world.server.log = lines(0, 100);
    world.open({std::nullopt, true});
    world.settle();
    CHECK((world.got == world.server.log));
    CHECK(world.server.count(k_agent) == 1);
}

TEST_CASE("log: an agent lost in the middle, no byte twice") {
    LogWorld world(true);
    world.server.log = lines(0, 9000);
    world.open({std::nullopt, true});
    world.settle();
    world.server.agent = false;
    for (int i = 0; i < 10; ++i) {
        world.server.log += lines(9000 + i * 20, 9000 + i * 20 + 20);
        world.settle();
    }
    CHECK((world.got == world.server.log));
}

TEST_CASE("log: the dashboard's looks join without gap or overlap, and cost what is new") {
    LogWorld world(false);
    world.server.log = lines(0, 20'000);
    world.open({std::nullopt, true});
    world.settle();
    const std::uint64_t before = world.server.sent;
    for (int i = 0; i < 50; ++i) {
        world.server.log += lines(20'000 + i * 10, 20'010 + i * 10);
        REQUIRE(world.pump());
    }
    CHECK((world.got == world.server.log));
    CHECK(world.server.count("/api/jobs/j/logs") == 0);
    CHECK(world.server.sent - before < 50 * 5 * k_window);
}

TEST_CASE("log: a burst larger than a look is caught up with") {
    LogWorld world(false);
    world.server.log = lines(0, 20'000);
    world.open({std::nullopt, true});
    world.settle();
    world.server.log += lines(20'000, 60'000);
    world.settle();
    CHECK((world.got == world.server.log));
}

TEST_CASE("log: equal lines, periodic lines, no line end: each byte once") {
    for (const std::string& unit :
         {std::string("waiting\n"), std::string("a\nb\nc\n"), std::string("x"), std::string("\n"),
          std::string(700, 'q') + "\n", std::string(100'000, 'z') + "\n"}) {
        LogWorld world(false);
        world.open({std::nullopt, true});
        for (int i = 0; i < 12; ++i) {
            const std::size_t amount = i == 5 ? 300'000 : 1'000;
            for (std::size_t n = 0; n < amount; n += unit.size()) world.server.log += unit;
            world.settle();
            REQUIRE(world.got.size() == world.server.log.size());
        }
        CHECK((world.got == world.server.log));
    }
}

TEST_CASE("log: blocks that repeat beyond the window: each byte once") {
    const std::string block = lines(0, 6000);
    LogWorld world(false);
    world.open({std::nullopt, true});
    for (int i = 0; i < 6; ++i) {
        world.server.log += block + (i % 2 == 0 ? "end\n" : "");
        world.settle();
        REQUIRE((world.got == world.server.log));
    }
}

TEST_CASE("log: a second copy of a long text that comes within one look: each byte once") {
    const std::string block = lines(0, 20'000);  // more than a look
    for (const char* first : {"begins\n", ""}) {
        for (const char* last : {"", "ends\n", "ends without a line end"}) {
            CAPTURE(first);
            CAPTURE(last);
            LogWorld world(false);
            world.open({std::nullopt, true});
            world.server.log = first + block;
            world.settle();
            world.server.log += block + last;
            world.settle();
            world.server.state = "SUCCEEDED";
            REQUIRE(world.jobs->details("j"));
            world.settle();
            REQUIRE(world.got.size() == world.server.log.size());
            CHECK((world.got == world.server.log));
        }
    }
}

TEST_CASE("log: two copies of a long text and what follows, each within one look: each byte once, in order") {
    const std::string block = lines(0, 20'000);
    LogWorld world(false);
    world.open({std::nullopt, true});
    world.server.log = "begins\n" + block.substr(0, block.size() / 2);
    world.settle();
    world.server.log += block.substr(block.size() / 2) + block + "ends\n";
    world.settle();
    CHECK((world.got == world.server.log));
}

TEST_CASE("log: lines that come between a look and the question whether that was all do not matter") {
    LogWorld world(false);
    world.open({std::nullopt, true});
    world.server.log = lines(0, 20'000);
    world.settle();
    int looks = 0;
    world.server.before = [&](const HttpRequest& request) -> std::optional<Result<HttpResponse>> {
        if (request.url.find("lines=") != std::string::npos) world.server.log += lines(30'000 + looks, 30'001 + looks);
        ++looks;
        return std::nullopt;
    };
    const std::uint64_t before = world.server.sent;
    for (int i = 0; i < 20; ++i) REQUIRE(world.pump());
    CHECK((world.got == world.server.log.substr(0, world.got.size())));
    CHECK(world.got.size() > world.server.log.size() - 100);
    CHECK(world.server.sent - before < 20 * 6 * k_window);  // never the whole log
}

TEST_CASE("log: bytes that are not UTF-8, NUL, a line of 5 MB, no last newline") {
    for (const bool with_agent : {true, false}) {
        LogWorld world(with_agent);
        world.open({std::nullopt, true});
        for (const std::string& part : {std::string("ok\n\xff\xfe\0bad\n", 10), std::string(5'000'000, 'a'),
                                        std::string("\nmore\n"), std::string("no newline at end")}) {
            world.server.log += part;
            world.settle();
            REQUIRE(world.got.size() == world.server.log.size());
        }
        CHECK((world.got == world.server.log));
    }
}

TEST_CASE("log: connections cut at random places on random logs, every byte exactly once") {
    for (std::uint32_t seed = 0; seed < 40; ++seed) {
        std::mt19937 random(seed);
        const auto upto = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random()) % n; };
        LogWorld world(seed % 3 == 0);
        if (seed % 5 == 4) world.server.file = false;
        world.open({std::nullopt, true});
        for (int round = 0; round < 30; ++round) {
            for (std::uint32_t n = upto(400); n > 0; --n) {
                const std::uint32_t kind = upto(4);
                if (kind == 0) world.server.log += "same line\n";
                if (kind == 1) world.server.log += std::to_string(random()) + "\n";
                if (kind == 2) world.server.log += std::string(upto(300), '-');
                if (kind == 3) world.server.log += std::string(upto(3), '\n');
            }
            if (upto(2) == 0) world.server.cut_after = upto(1 + static_cast<std::uint32_t>(world.server.log.size()));
            (void)world.pump();
            if (seed % 3 == 0 && round == 20) world.server.agent = false;
        }
        world.settle();
        CHECK((world.got == world.server.log));
    }
}

TEST_CASE("log: as JSON at last, what was read raw before is not read again, whatever the line ends") {
    LogWorld world(true);
    world.server.log = "a\r\nb\rc\n\r\n";
    world.open({std::nullopt, true});
    world.settle();
    world.server.agent = world.server.file = false;
    world.server.log += "d \xe2\x82\xac\n";
    world.settle();
    CHECK(world.got == "a\r\nb\rc\n\r\nd \xe2\x82\xac\n");
    world.server.file = true;  // once folded, always folded
    world.server.log += "e\r\n";
    world.settle();
    CHECK(world.got.ends_with("\ne\n"));
}

TEST_CASE("log: the last lines in one request, of none, none") {
    LogWorld world(true);
    world.server.log = lines(0, 5000);
    world.open({7});
    const std::size_t before = world.server.asked.size();
    REQUIRE(world.pump());
    CHECK(world.got == lines(4993, 5000));
    CHECK(world.server.asked.size() == before + 1);
    CHECK(world.server.asked.back().ends_with("&lines=7"));
    CHECK(*world.pump() == 0);
    world.got.clear();
    world.open({0});
    CHECK(*world.pump() == 0);
}

TEST_CASE("log: last lines first, then what comes, by each way") {
    for (const int way : {0, 1, 2}) {
        for (const std::size_t tail : {0U, 1U, 3U, 9000U}) {
            LogWorld world(way == 0);
            if (way == 2) world.server.file = false;
            world.server.log = lines(0, 3000) + "open";
            world.open({tail, true});
            REQUIRE(world.pump());
            CHECK(world.got == (tail == 0   ? std::string()
                                : tail > 99 ? world.server.log
                                            : lines(3001 - static_cast<int>(tail), 3000) + "open"));
            world.server.log += "ed\nnext\n";
            world.settle();
            CHECK(world.got.ends_with("ed\nnext\n"));
            if (tail == 1) CHECK(world.got == "opened\nnext\n");
        }
    }
}

TEST_CASE("log: a tail of long lines is found backwards through the agent") {
    LogWorld world(true);
    world.server.log = "first\n" + std::string(9'000'000, 'x') + "\nlast\n";
    world.open({2, true});
    world.settle();
    CHECK((world.got == world.server.log.substr(6)));
}

TEST_CASE("log: nothing is asked while the job waits, all of it is there when it has started") {
    LogWorld world(false);
    world.server.state = "PENDING";
    world.server.node = false;
    world.open({std::nullopt, true});
    CHECK(*world.pump() == 0);
    CHECK(world.server.count("logs") == 0);
    world.server.state = "RUNNING";
    world.server.node = true;
    world.server.log = "started\n";
    REQUIRE(world.jobs->poll("j"));
    world.settle();
    CHECK(world.got == "started\n");
}

TEST_CASE("log: the stream is never asked for") {
    LogWorld world(true);
    world.server.log = "x\n";
    world.open({std::nullopt, true});
    world.settle();
    CHECK(world.server.count("/stream") == 0);
    CHECK(world.server.count("/tail") == 0);
}

TEST_CASE("log: gone with its node: said once and for all when the job is over, later when it runs") {
    for (const char* state : {"RUNNING", "FAILED"}) {
        LogWorld world(false);
        world.server.state = state;
        world.server.before = [](const HttpRequest& r) -> std::optional<Result<HttpResponse>> {
            if (r.url.find("/logs") == std::string::npos) return std::nullopt;
            HttpResponse a;
            a.status = 500;
            a.body = "Agent for node id: node1 doesn't exist.";
            return a;
        };
        world.open({std::nullopt, true});
        const auto read = world.pump();
        REQUIRE_FALSE(read);
        const bool over = std::string(state) == "FAILED";
        CHECK(read.error().kind == (over ? ErrorKind::remote_missing : ErrorKind::infrastructure));
        if (over) CHECK(read.error().message.starts_with("logs are gone with the node"));
    }
}

TEST_CASE("log: not UTF-8 and no raw way to it is said") {
    LogWorld world(false);
    world.server.file = false;
    world.server.state = "FAILED";
    world.server.log = "\xff";
    world.open({});
    const auto read = world.pump();
    REQUIRE_FALSE(read);
    CHECK(read.error().message.find("not UTF-8") != std::string::npos);
}

TEST_CASE("log: a dashboard that its own agents refuse: one look goes to the agent") {
    for (const bool agent : {true, false}) {
        LogWorld world(true);
        world.server.state = "SUCCEEDED";
        world.server.agent = agent;
        world.server.log = agent ? "first\nbad \xff byte\nlast\n" : "first\nlast\n";
        world.server.before = [](const HttpRequest& request) -> std::optional<Result<HttpResponse>> {
            if (request.url.find("/api/v0/") == std::string::npos) return std::nullopt;
            HttpResponse refused;
            refused.status = 500;
            refused.body = "debug_error_string = \"UNAUTHENTICATED:Invalid or missing authentication token\"";
            return Result<HttpResponse>(refused);
        };
        for (const std::optional<std::size_t> tail : {std::optional<std::size_t>(), std::optional<std::size_t>(1)}) {
            world.got.clear();
            world.open({tail, false});
            CHECK(world.pump());
            CHECK(world.got == (tail ? "last\n" : world.server.log));
        }
        CHECK(world.server.count("/api/v0/") == 2);
        CHECK(world.clock.sleeps().empty());
    }
}

TEST_CASE("log: one look bears with a dashboard that is away, and keeps its place") {
    LogWorld world(false);
    world.server.log = lines(0, 5000);
    int faults = 3;
    world.open({});
    world.server.before = [&](const HttpRequest&) -> std::optional<Result<HttpResponse>> {
        if (faults-- > 0) return Result<HttpResponse>(tl::unexpected(RayWorld::refused()));
        return std::nullopt;
    };
    world.server.cut_after = 50'000;
    REQUIRE(world.pump());
    CHECK((world.got == world.server.log));
}

TEST_CASE("log: a hundred megabytes pass through without being kept") {
    LogWorld world(false);
    const std::string block = lines(0, 4000);
    while (world.server.log.size() < (std::size_t{100} << 20)) world.server.log += block;
    world.open({});
    std::uint64_t bytes = 0;
    std::size_t largest = 0;
    REQUIRE(world.log->pump([&](std::string_view piece) {
        bytes += piece.size();
        largest = std::max(largest, piece.size());
        return true;
    }));
    CHECK(bytes == world.server.log.size());
    CHECK(largest <= (std::size_t{8} << 20));
}

TEST_CASE("log: enough is enough") {
    for (const bool with_agent : {true, false}) {
        LogWorld world(with_agent);
        world.server.log = lines(0, 500'000);
        world.open({std::nullopt, true});
        const auto n = world.log->pump([](std::string_view) { return false; });
        REQUIRE(n);
        CHECK(*n < world.server.log.size());
    }
}

}  // namespace gdnctl::ray
