// What is measured in which order, and what is made of it: an invented device under the real review.
#include <cmath>
#include <functional>
#include <set>

#include <doctest/doctest.h>

#include "loop/perf/review.h"

namespace gdnctl::loop {

namespace {

template <class T>
T must(Result<T> result) {
    REQUIRE_MESSAGE(result.has_value(), (result ? std::string() : result.error().text()));
    return std::move(*result);
}

// Speeds of commits on a device; HEAD moves when a candidate is kept.
struct Device {
    std::map<std::string, double> speed;  // of the metric, higher is better
    std::set<std::string> moved;          // commits that differ from their predecessors in what is measured
    double noise = 0.0;
    std::map<std::string, std::string> asked = {{"cluster", "a"}};
    MetricMap buckets;
    int outlier_at = -1, looks = 0;  // the so many-th measurement is off, as a last step of a run may be

    PerfPolicy policy = default_policy();
    RegressionPolicy on_regression = RegressionPolicy::revert_count_failure;
    int pairs = 9;
    PerfState state;
    std::string head = "base";
    int iteration = 0;
    std::vector<std::string> measured, said;
    std::uint64_t draws = 0;
    std::string source = "cli-output", busy;
    int from_elsewhere = 0;  // so many measurements more are of the other kind

    double jitter() {
        // A fixed sequence without a pattern, in (-1.7, 1.7) times the noise.
        draws = draws * 6364136223846793005U + 1442695040888963407U;
        return noise * (static_cast<double>(draws >> 40U) * 0x1.0p-24 - 0.5) * 3.4;
    }
    Measurement measurement(const std::string& commit) {
        Measurement m;
        m.metric = "throughput/mfu";
        m.source = source;
        m.busy = busy;
        m.fingerprint.asked = asked;
        m.value = speed.at(commit) * (1.0 + jitter()) * (looks++ == outlier_at ? 0.939 / 5.185 : 1.0);
        if (from_elsewhere > 0 && from_elsewhere-- > 0) {  // what the output says of a run is a tenth less
            m.source = "cli-output";
            m.value = *m.value * 0.9;
        }
        m.points = {*m.value};
        m.metrics = buckets;
        m.metrics["throughput/mfu"] = *m.value;
        return m;
    }
    Review judge(const std::string& commit) {
        ++iteration;
        ReviewInput input{policy, on_regression,       true, pairs, iteration, head,
                          commit, measurement(commit), "",   {},    1'000};
        const ReviewWorld world{
            [this](const std::string& c) -> Result<Measurement> {
                measured.push_back(c);
                return measurement(c);
            },
            [this](const std::string&, const std::string& to) -> Result<bool> { return moved.contains(to); },
            [this](const std::string& line) { said.push_back(line); }};
        Review done = must(review(state, input, world));
        apply_review(state, done);
        if (!done.decision.take_back) head = commit;
        return done;
    }
};

int count(const PerfState& state, PerfVerdict verdict) {
    int n = 0;
    for (const PerfRecord& record : state.history()) n += record.decision == verdict ? 1 : 0;
    return n;
}

}  // namespace

TEST_CASE("review: HEAD becomes the champion, then pairs decide in turns") {
    Device device;
    device.speed = {{"base", 4.0}, {"better", 4.2}, {"same", 4.2}, {"worse", 4.0}};
    Review done = device.judge("better");
    CHECK(done.decision.verdict == PerfVerdict::promoted);
    CHECK(device.measured == std::vector<std::string>{"base", "base", "better", "better", "base", "base", "better"});
    CHECK(done.runs == 7);
    REQUIRE(done.before.size() == 1);
    CHECK(done.before[0].decision == PerfVerdict::baseline);
    CHECK(device.said.front() == "performance baseline initialized: throughput/mfu=4 @ base (source=cli-output)");
    CHECK(done.record.pairs->n == 3);
    CHECK(device.head == "better");

    device.measured.clear();
    done = device.judge("same");
    CHECK(done.decision.verdict == PerfVerdict::within_threshold);
    CHECK(done.decision.take_back);  // not measurably better: with pairs nothing is kept that is not
    CHECK((done.decision.ok && !done.decision.count_failure));
    CHECK(device.measured.size() == 18);
    CHECK(device.head == "better");

    done = device.judge("worse");
    CHECK(done.decision.verdict == PerfVerdict::regression);
    CHECK(done.decision.count_failure);
    CHECK(device.state.champion(done.record.measured.fingerprint.key())->commit == "better");
}

TEST_CASE("review: on a busy machine a single run promotes nothing, pairs that say so do, and it is said") {
    for (const int pairs : {1, 3}) {
        CAPTURE(pairs);
        Device device;
        device.pairs = pairs;
        device.speed = {{"base", 4.0}, {"better", 4.8}, {"best", 6.0}};
        device.judge("base");
        device.busy = "other programs use 2 of 2 CPUs";
        const Review done = device.judge("better");
        CHECK(done.decision.verdict == (pairs == 1 ? PerfVerdict::within_threshold : PerfVerdict::promoted));
        CHECK(done.decision.held_as_busy == (pairs == 1));
        CHECK(done.decision.becomes_champion() == (pairs == 3));
        CHECK(device.said.back().find(device.busy) != std::string::npos);
        CHECK(busy_words(done.decision).find(device.busy) != std::string::npos);
        REQUIRE(done.record.gain);
        CHECK(done.record.gain->busy == device.busy);
        device.busy.clear();
        const Review quiet = device.judge("best");
        CHECK(quiet.decision.verdict == PerfVerdict::promoted);
        CHECK(busy_words(quiet.decision).empty());
    }
}

TEST_CASE("review: A/A on a busy machine crowns nothing") {
    Device device;
    device.pairs = 1;
    device.speed = {{"base", 4.0}, {"kept", 8.0}, {"next", 8.0}};
    device.moved = {"kept", "next"};
    device.judge("base");
    device.busy = "other programs use 2 of 2 CPUs";
    device.judge("kept");
    const Review busy = device.judge("next");
    CHECK_FALSE((busy.base_shifted || busy.champion));
    CHECK(device.said[device.said.size() - 2].starts_with("HEAD unchanged: 4 -> 8 (+100.00%, "));
    device.busy.clear();
    CHECK(device.judge("next").base_shifted);
}

TEST_CASE("review: the gain is of the runs that were compared, what the champion had recorded alone stands beside it") {
    Device device;
    device.noise = 0.02;
    device.speed = {{"base", 4.0}, {"better", 5.0}};
    const Review done = device.judge("better");
    REQUIRE(done.record.gain);
    const runlog::Gain& gain = *done.record.gain;
    CHECK(gain.pairs == done.record.pairs->n);
    CHECK(gain.before_runs.size() == static_cast<std::size_t>(gain.pairs));
    CHECK(gain.after == done.record.measured.value);
    CHECK(*gain.factor == doctest::Approx(std::exp(done.record.pairs->mean)));
    CHECK(*gain.factor == doctest::Approx(*gain.after / *gain.before));  // one gain, one number
    CHECK(*gain.low < *gain.factor);
    CHECK(gain.lone_baseline == done.before[0].measured.value);
    CHECK(gain.lone_baseline != gain.before);
    CHECK_FALSE(gain.lower_is_better);
    // With one unit and the words of the gain itself.
    const std::string last = device.said.back();
    CHECK(last.find(runlog::gain_text(gain)) != std::string::npos);
    CHECK(done.before[0].gain == std::nullopt);  // nothing was compared there
}

TEST_CASE("review: numbers of two kinds are never compared, and HEAD becomes the baseline of the new kind") {
    const std::string recorded = "wandb-history-median[10:18]";
    Device device;
    device.pairs = 1;
    device.source = recorded;
    device.speed = {{"base", 4.0}, {"equal", 4.0}, {"worse", 3.8}, {"better", 4.2}};
    device.judge("base");
    // For one profile the service is out of reach: HEAD is looked at, and nothing can be said of the candidate.
    device.from_elsewhere = 1;
    Review done = device.judge("equal");
    CHECK(done.decision.verdict == PerfVerdict::incomparable);
    CHECK(done.decision.why_not_compared == "metric source: " + recorded + " -> cli-output");
    CHECK(count(device.state, PerfVerdict::aa_ok) == 1);
    CHECK(count(device.state, PerfVerdict::baseline_shift) == 0);
    // From now on it is out of reach for good: by the last steps HEAD is at 3.6, which is no shift of the base.
    device.from_elsewhere = 100;
    done = device.judge("worse");
    CHECK(done.decision.verdict == PerfVerdict::regression);
    CHECK(*done.decision.delta_pct == doctest::Approx(-5.0));
    CHECK(count(device.state, PerfVerdict::baseline) == 2);
    CHECK(count(device.state, PerfVerdict::baseline_shift) == 0);
    CHECK(device.state.champion(done.record.measured.fingerprint.key())->measured.source == "cli-output");
    CHECK(device.judge("better").decision.verdict == PerfVerdict::promoted);
}

TEST_CASE("review: runs of which one is recorded elsewhere make no pair, and that is nobody's failure") {
    Device device;
    device.source = "wandb-summary";
    device.speed = {{"base", 4.0}, {"next", 4.0}};
    device.judge("base");
    const std::size_t records = device.state.history().size();
    int runs = 0;
    const PerfPolicy policy = default_policy();
    ReviewInput input{policy, RegressionPolicy::fail,     true, 9,  2, "base",
                      "next", device.measurement("next"), "",   {}, 0};
    const ReviewWorld world{[&](const std::string& commit) -> Result<Measurement> {
                                device.from_elsewhere = ++runs == 4 ? 1 : 0;
                                return device.measurement(commit);
                            },
                            [](const std::string&, const std::string&) -> Result<bool> { return false; },
                            [](const std::string&) {}};
    const auto done = review(device.state, input, world);
    REQUIRE_FALSE(done);
    CHECK(done.error().kind == ErrorKind::infrastructure);
    CHECK(done.error().message == "one run's number is wandb-summary, another's is cli-output: they cannot be paired");
    CHECK(device.state.history().size() == records);
}

TEST_CASE("review: gates compare with the champion, never with a candidate that was refused (defect 5)") {
    Device device;
    device.pairs = 1;
    device.speed = {{"base", 4.0}, {"loops", 4.04}, {"loops more", 4.05}};
    device.buckets = {{"while_ms", 0.0}};
    device.judge("base");
    device.buckets["while_ms"] = 31.5;
    CHECK(device.judge("loops").decision.verdict == PerfVerdict::control_flow_regression);
    // Beside the one before it nothing has grown.
    const Review second = device.judge("loops more");
    CHECK(second.decision.verdict == PerfVerdict::control_flow_regression);
    CHECK(device.head == "base");
    CHECK(device.state.champion(second.record.measured.fingerprint.key())->commit == "base");
}

TEST_CASE("failure mode B: one wrong number among the measurements neither refuses nor promotes") {
    for (int at = 0; at < 8; ++at) {
        for (const double speed : {4.0, 4.12}) {
            CAPTURE(at);
            CAPTURE(speed);
            Device device;
            device.noise = 0.001;
            device.outlier_at = at;
            device.speed = {{"base", 4.0}, {"next", speed}};
            const Review done = device.judge("next");
            CHECK(done.decision.verdict != PerfVerdict::regression);
            CHECK_FALSE(done.decision.count_failure);
            if (speed == 4.0) CHECK(done.decision.verdict != PerfVerdict::promoted);
        }
    }
}

TEST_CASE("failure mode L: a gain of 2.12 % is kept, by single runs and by pairs") {
    for (const int pairs : {1, 9}) {
        Device device;
        device.pairs = pairs;
        device.speed = {{"base", 4.927}, {"gain", 4.927 * 1.0212}};
        device.judge("base");
        CHECK(device.judge("gain").decision.verdict == PerfVerdict::promoted);
        CHECK(device.head == "gain");
    }
}

TEST_CASE("review: hold may keep, and single runs keep by themselves") {
    Device device;
    device.speed = {{"base", 4.0}, {"same", 4.0}};
    device.policy.hold = Hold::keep;
    CHECK_FALSE(device.judge("same").decision.take_back);
    Device single;
    single.speed = {{"base", 4.0}, {"first", 4.0}, {"second", 3.99}};
    single.pairs = 1;
    CHECK(single.judge("first").decision.verdict == PerfVerdict::baseline);
    const Review done = single.judge("second");
    CHECK(done.decision.verdict == PerfVerdict::within_threshold);
    CHECK_FALSE(done.decision.take_back);
    CHECK(single.measured.empty());  // the profile of the candidate was enough
}

TEST_CASE("review: a candidate without a number costs no run and is recorded (defect 23)") {
    Device device;
    device.speed = {{"base", 4.0}, {"nan", 0.0}};
    ReviewInput input{device.policy, RegressionPolicy::revert_count_failure, true, 9, 1, "base", "nan", {}, "", {}, 0};
    input.candidate.metric = "throughput/mfu";
    const Review done = must(review(device.state, input, {}));
    CHECK(done.decision.verdict == PerfVerdict::metric_missing);
    CHECK(done.runs == 0);
    apply_review(device.state, done);
    CHECK(count(device.state, PerfVerdict::metric_missing) == 1);
}

TEST_CASE("review: other conditions have a champion of their own (failure mode C)") {
    Device device;
    device.speed = {{"base", 4.0}, {"x", 4.2}, {"y", 2.1}};
    device.judge("x");
    device.asked = {{"cluster", "b"}};
    device.speed["x"] = 2.0;  // that cluster is slower
    const Review done = device.judge("y");
    CHECK(done.decision.verdict == PerfVerdict::promoted);
    CHECK(count(device.state, PerfVerdict::regression) == 0);
    CHECK(device.state.champion_keys().size() == 2);
    device.asked = {{"cluster", "a"}};
    CHECK(device.state.champion(Fingerprint{device.asked, {}}.key())->commit == "x");
}

TEST_CASE("review: an error of the surroundings records nothing") {
    Device device;
    device.speed = {{"base", 4.0}, {"x", 4.2}};
    ReviewInput input{device.policy, RegressionPolicy::fail,  true, 9,  1, "base",
                      "x",           device.measurement("x"), "",   {}, 0};
    const ReviewWorld world{[](const std::string&) -> Result<Measurement> {
                                return fail(ErrorKind::infrastructure, "The TPU is already in use by another process");
                            },
                            [](const std::string&, const std::string&) -> Result<bool> { return false; },
                            [](const std::string&) {}};
    const auto done = review(device.state, input, world);
    REQUIRE_FALSE(done);
    CHECK(done.error().kind == ErrorKind::infrastructure);
}

TEST_CASE("A/A: after ten candidates, after the base changed, before a third refusal in a row") {
    CHECK(aa_reasons({false, 9}).empty());
    CHECK(aa_reasons({false, 10}) == std::vector<std::string>{"10 candidates were judged since the last check"});
    CHECK(aa_reasons({true, 0}).size() == 1);

    Device device;
    device.pairs = 1;
    device.speed = {{"base", 4.0}};
    device.judge("base");
    for (const char* name : {"a", "b", "c"}) device.speed[name] = 3.5;
    CHECK(device.judge("a").decision.verdict == PerfVerdict::regression);
    CHECK(device.judge("b").decision.verdict == PerfVerdict::regression);
    CHECK(device.measured.empty());
    // The third one: HEAD is measured three times first, and is where it was. The refusal stands.
    const Review third = device.judge("c");
    CHECK(device.measured == std::vector<std::string>{"base", "base", "base"});
    CHECK(third.decision.verdict == PerfVerdict::regression);
    REQUIRE(third.before.size() == 1);
    CHECK(third.before[0].decision == PerfVerdict::aa_ok);
    for (const PerfRecord& record : device.state.history()) CHECK_FALSE(record.suspect);

    // Ten more that change nothing.
    device.measured.clear();
    device.speed["d"] = 4.0;
    for (int i = 0; i < 9; ++i) device.judge("d");
    CHECK(device.measured.empty());
    device.judge("d");
    CHECK(device.measured.size() == 3);
}

TEST_CASE("A/A: buckets that change by one factor are looked into before anything is scored") {
    Device device;
    device.pairs = 1;
    device.speed = {{"base", 6.0}, {"x", 5.4}};
    device.buckets = {{"forward_closed_call_ms", 41.3}, {"backward_closed_call_ms", 26.2}, {"all_gather_ms", 5.0}};
    device.judge("base");
    for (auto& [name, value] : device.buckets) value /= 2;
    device.speed["base"] = 5.4;  // the base has moved
    const Review done = device.judge("x");
    CHECK(done.base_shifted);
    CHECK(done.decision.verdict == PerfVerdict::within_threshold);
    CHECK(count(device.state, PerfVerdict::regression) == 0);
}

TEST_CASE("failure mode A: a base that moves is one new baseline, not 28 regressions") {
    // The real one: champion of 6.04 MFU, base moved to 5.325 by a merge from main, 28 iterations compared with it.
    for (const int pairs : {1, 9}) {
        for (const bool seen_by_git : {true, false}) {
            CAPTURE(pairs);
            CAPTURE(seen_by_git);
            Device device;
            device.pairs = pairs;
            device.noise = 0.001;
            device.speed = {{"base", 5.83}, {"champion", 6.04}};
            device.judge("champion");
            if (pairs == 1) device.judge("champion");
            REQUIRE(device.head == "champion");
            // From here on everything is slower: the merge, or a machine that lost its kernel.
            device.speed = {{"champion", seen_by_git ? 6.04 : 5.325}, {"merged", 5.325}};
            if (seen_by_git) {
                device.head = "merged";
                device.moved.insert("merged");
            }
            for (int i = 38; i < 66; ++i) {
                const std::string name = "iteration" + std::to_string(i);
                device.speed[name] = 5.325 * (1.0 + 0.001 * (i % 3));
                device.judge(name);
            }
            CHECK(count(device.state, PerfVerdict::baseline_shift) == 1);
            const int rejected = count(device.state, PerfVerdict::regression);
            // Where nothing shows that the base moved, single runs refuse two before they look; both are marked.
            CHECK(rejected == (pairs == 1 && !seen_by_git ? 2 : 0));
            for (const PerfRecord& record : device.state.history()) {
                if (record.decision == PerfVerdict::regression) CHECK(record.suspect);
            }
        }
    }
}

}  // namespace gdnctl::loop
