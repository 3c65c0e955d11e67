// FlashInfer-Bench's rule of speed on a clock that each subject moves, and trace files with several writers.
#include <csignal>
#include <fstream>
#include <thread>

#include <doctest/doctest.h>
#include <sys/resource.h>

#include "harness/flashinfer/time.h"
#include "harness/flashinfer/traces.h"
#include "support/fake_clock.h"
#include "support/temp_dir.h"

using namespace gdnctl;
using namespace gdnctl::harness::flashinfer;
using gdnctl::harness::Subject;

namespace {

void pass_ms(test::FakeClock& clock, double ms) {
    clock.advance(std::chrono::microseconds(static_cast<std::int64_t>(ms * 1000)));
}

std::string trace(const std::string& solution, const std::string& uuid) {
    return R"({"definition":"d","workload":{"uuid":")" + uuid + R"(","axes":{},"inputs":{}},"solution":")" + solution +
           R"(","evaluation":null})";
}

}  // namespace

TEST_CASE("flashinfer: the latency is the mean over trials of the median after the warm-up") {
    test::FakeClock clock;
    std::string order;
    std::size_t next = 0;
    // One warm-up and three timed runs a trial, two trials.
    const std::vector<double> takes = {99, 1, 9, 2, 99, 4, 4, 30};
    Subject solution{"s",
                     0,
                     [&] {
                         order += 's';
                         pass_ms(clock, takes.at(next++));
                     },
                     {},
                     {}};
    Subject reference{"r",
                      0,
                      [&] {
                          order += 'r';
                          pass_ms(clock, 6);
                      },
                      {},
                      {}};
    int chilled = 0;
    solution.before = [&]() -> Status {
        pass_ms(clock, 1000);
        return {};
    };
    const auto chill = [&] {
        ++chilled;
        pass_ms(clock, 500);
    };
    const auto result = measure(solution, reference, {1, 3, 2}, chill, [] { return false; }, clock, {});
    REQUIRE(result);
    CHECK(result->solution_ms == doctest::Approx(3));  // (2 + 4) / 2
    CHECK(result->reference_ms == doctest::Approx(6));
    CHECK(order == "srsrsrsrsrsrsrsr");
    CHECK(chilled == 16);
}

TEST_CASE("flashinfer: a fault and a stop end the trials") {
    test::FakeClock clock;
    int runs = 0;
    Subject solution{"s", 0, [&] { ++runs; }, {}, {}};
    Subject reference{"r", 0, [] {}, {}, {}};
    REQUIRE(measure(solution, reference, {}, [] {}, [&] { return runs == 3; }, clock, {}));
    CHECK(runs == 3);
    std::stop_source source;
    source.request_stop();
    CHECK(!measure(solution, reference, {}, [] {}, [] { return false; }, clock, source.get_token()));
    CHECK(runs == 3);
}

TEST_CASE("flashinfer: traces are appended whole by several writers at once") {
    const test::TempDir dir;
    const auto path = dir.path() / "a/b/traces.jsonl";
    std::vector<std::thread> writers;
    for (int w = 0; w < 4; ++w) {
        writers.emplace_back([&, w] {
            for (int i = 0; i < 25; ++i) {
                CHECK(append_trace(path, trace("s" + std::to_string(w), std::string(2000, 'x') + std::to_string(i))));
            }
        });
    }
    for (std::thread& t : writers) t.join();
    const auto recorded = recorded_traces(path);
    REQUIRE(recorded);
    CHECK(recorded->size() == 100);
}

TEST_CASE("flashinfer: an unfinished last line stays, and the next trace begins a line of its own") {
    const test::TempDir dir;
    const auto path = dir.path() / "traces.jsonl";
    std::ofstream(path) << trace("s", "1") << "\n{\"definition\":\"d\",\"wor";
    REQUIRE(append_trace(path, trace("s", "2")));
    CHECK(test::read_text(path) == trace("s", "1") + "\n{\"definition\":\"d\",\"wor\n" + trace("s", "2") + "\n");
    const auto recorded = recorded_traces(path);
    REQUIRE(recorded);
    CHECK(recorded->size() == 2);
    CHECK(recorded->contains({"s", "2"}));
    CHECK(recorded_traces(dir.path() / "none")->empty());
}

TEST_CASE("flashinfer: a trace that does not fit on the disk leaves nothing behind") {
    const test::TempDir dir;
    const auto path = dir.path() / "traces.jsonl";
    REQUIRE(append_trace(path, trace("s", "1")));
    const std::string before = test::read_text(path);
    rlimit old{};
    getrlimit(RLIMIT_FSIZE, &old);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{before.size() + 20, old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    const Status full = append_trace(path, trace("s", "2"));
    setrlimit(RLIMIT_FSIZE, &old);
    std::signal(SIGXFSZ, handler);
    REQUIRE(!full);
    CHECK(full.error().kind == ErrorKind::local_io);
    CHECK(test::read_text(path) == before);
}
