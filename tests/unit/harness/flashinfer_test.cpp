// FlashInfer-Bench's rule of speed on a clock that each subject moves, and trace files with several writers.
#include <cmath>
#include <csignal>
#include <fstream>
#include <thread>

#include <doctest/doctest.h>
#include <sys/resource.h>

#include "harness/flashinfer/dataset.h"
#include "harness/flashinfer/latency.h"
#include "harness/flashinfer/solution.h"
#include "support/fake_clock.h"
#include "support/temp_dir.h"
#include "unit/oracle/judging.h"

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

// Inputs like a workload's: other values of the same kind, and what is honest of them.
using namespace gdnctl;
using namespace gdnctl::oracle;
using namespace gdnctl::oracle::flashinfer;

namespace {

struct Case {
    const GdnDefinition* definition = nullptr;
    Trace trace;
    std::map<std::string, Tensor> loaded;
};

Case shipped(const std::string& stage) {
    const auto root = std::filesystem::path(GDNCTL_FIXTURES) / "flashinfer";
    const std::string name = "gdn_" + stage + "_qk4_v8_d128_k_last";
    Case c;
    c.definition = find_gdn_definition(name);
    REQUIRE(c.definition != nullptr);
    const auto bytes = testing::file_bytes(root / "workloads/gdn" / (name + ".jsonl"));
    const std::string text(bytes.begin(), bytes.end());
    auto trace = parse_trace(text.substr(0, text.find('\n')), "w");
    REQUIRE(trace);
    c.trace = std::move(*trace);
    for (const auto& [input, source] : c.trace.workload.inputs) {
        if (source.kind != InputSource::Kind::safetensors) continue;
        c.loaded[input] = *testing::load_safetensors(root / source.path).find(source.tensor_key);
    }
    return c;
}

FreshWorkload fresh_of(const Case& c) {
    auto contract = resolve_contract("flashinfer", {}, {});
    REQUIRE(contract);
    auto fresh = FreshWorkload::make(*c.definition, c.trace.workload, c.loaded, *contract);
    REQUIRE_MESSAGE(fresh, (fresh ? std::string() : fresh.error().message));
    return *fresh;
}

// What a call gives, exactly.
TensorFile honest(const FreshWorkload& fresh) {
    const auto reference = fresh.reference(1);
    REQUIRE(reference);
    const auto flat = [](const std::vector<double>& values) {
        return from_f64(values, {static_cast<std::int64_t>(values.size())}, DType::f32);
    };
    TensorFile outputs;
    outputs.tensors = {{"out", flat(reference->truth.out)}, {"final_state", flat(reference->truth.final_state)}};
    return outputs;
}

double length_of(const std::vector<double>& values, std::size_t row, std::size_t width) {
    double sum = 0;
    for (std::size_t i = row * width; i < (row + 1) * width; ++i) sum += values[i] * values[i];
    return std::sqrt(sum);
}

}  // namespace

TEST_CASE("fresh workload: other values of the same kind, each time") {
    for (const char* stage : {"prefill", "decode", "mtp"}) {
        CAPTURE(stage);
        const Case c = shipped(stage);
        FreshWorkload fresh = fresh_of(c);
        const TensorFile before = fresh.as_workload();
        REQUIRE(fresh.draw(7));
        const TensorFile first = fresh.as_workload();
        REQUIRE(fresh.draw(8));
        const TensorFile second = fresh.as_workload();
        for (const auto& [name, tensor] : before.tensors) {
            CAPTURE(name);
            const bool stays = name == "scale" || !is_floating(tensor.dtype);
            CHECK((first.find(name)->bytes == tensor.bytes) == stays);
            CHECK((second.find(name)->bytes == first.find(name)->bytes) == stays);
            CHECK(first.find(name)->shape == tensor.shape);
            CHECK(first.find(name)->dtype == tensor.dtype);
            if (stays || !c.loaded.contains(name)) continue;
            const auto was = to_f64(tensor);
            const auto is = to_f64(*first.find(name));
            std::size_t same_sizes = 0;
            double farthest = 0;
            for (std::size_t i = 0; i < was.size(); ++i) {
                same_sizes += std::fabs(was[i]) == std::fabs(is[i]) && was[i] != 0 ? 1 : 0;
                if (was[i] != 0) farthest = std::max(farthest, std::fabs(std::fabs(is[i] / was[i]) - 1));
            }
            CHECK(20 * same_sizes <= was.size());
            CHECK(farthest < 0.4);
            if (name != "q" && name != "k") continue;
            for (std::size_t row = 0; row < was.size() / 128; ++row) {
                REQUIRE(length_of(is, row, 128) == doctest::Approx(length_of(was, row, 128)).epsilon(2e-3));
            }
        }
        REQUIRE(fresh.draw(7));
        CHECK(fresh.as_workload().find("q")->bytes == first.find("q")->bytes);
    }
}

TEST_CASE("fresh workload: results of its values are near, of others are not") {
    for (const char* stage : {"prefill", "decode", "mtp"}) {
        CAPTURE(stage);
        const Case c = shipped(stage);
        FreshWorkload fresh = fresh_of(c);
        const TensorFile of_the_workload = honest(fresh);
        CHECK(fresh.distance(of_the_workload, Pass::forward, 2) <= 1);
        REQUIRE(fresh.draw(3));
        TensorFile outputs = honest(fresh);
        CHECK(fresh.distance(outputs, Pass::forward, 2) <= 1);
        CHECK(fresh.distance(of_the_workload, Pass::forward, 2) > 100);
        std::erase_if(outputs.tensors, [](const auto& t) { return t.name == "out"; });
        CHECK_FALSE(fresh.distance(outputs, Pass::forward, 2) <= 1);
    }
}

TEST_CASE("fresh workload: what is random is drawn, and a state of the pool that two sequences share stays one") {
    Case c = shipped("mtp");
    std::erase_if(c.trace.workload.inputs, [](const auto& input) { return input.first == "v"; });
    c.loaded["initial_state_indices"] = from_f64(std::vector<double>{1, 1}, {2}, DType::i32);
    for (const bool random : {false, true}) {
        if (random) {
            std::erase_if(c.trace.workload.inputs, [](const auto& input) { return input.first == "initial_state"; });
        }
        FreshWorkload fresh = fresh_of(c);
        const auto v = to_f64(*fresh.as_workload().find("v"));
        REQUIRE(fresh.draw(5));
        const auto drawn = to_f64(*fresh.as_workload().find("v"));
        double product = 0;
        double squares = 0;
        for (std::size_t i = 0; i < v.size(); ++i) {
            product += std::fabs(v[i] * drawn[i]);
            squares += drawn[i] * drawn[i];
        }
        const auto count = static_cast<double>(v.size());
        CHECK(squares / count == doctest::Approx(1).epsilon(0.1));
        CHECK(product / count == doctest::Approx(2 / 3.14159).epsilon(0.1));  // of independent |N(0,1)|
        const auto state = to_f64(*fresh.as_workload().find("initial_state"));
        const std::size_t half = state.size() / 2;
        CHECK(std::equal(state.begin(), state.begin() + static_cast<std::ptrdiff_t>(half),
                         state.begin() + static_cast<std::ptrdiff_t>(half)));
    }
}
