// The performance policy: the recipe's cases 1 to 14, gates, champions, review, A/A.
#include <cmath>
#include <functional>
#include <set>

#include <doctest/doctest.h>

#include "loop/perf/review.h"
#include "loop_world.h"

namespace gdnctl::loop {

namespace {

const MetricMap k_none;

Measurement measurement(MetricMap metrics, const std::string& metric = "throughput/mfu") {
    Measurement m;
    m.metric = metric;
    m.source = "cli-output";
    if (const auto it = metrics.find(metric); it != metrics.end()) {
        m.value = it->second;
        m.points = {it->second};
    }
    if (const auto it = metrics.find("throughput/duration"); it != metrics.end()) {
        metrics["step_duration_ms"] = it->second * 1000.0;
    }
    m.metrics = std::move(metrics);
    derive_budgets(m.metrics, std::nullopt);
    return m;
}

MetricMap with(double mfu, MetricMap metrics) {
    metrics["throughput/mfu"] = mfu;
    return metrics;
}

// A first call with `before` sets the baseline, a second one judges `after`.
struct Two {
    PerfPolicy policy = default_policy();
    PerfRecord champion;
    PerfDecision first, second;
    std::string text;

    Two(const MetricMap& before, const MetricMap& after, const std::string& change_class = {},
        RegressionPolicy on_regression = RegressionPolicy::revert_count_failure) {
        const Measurement a = measurement(before), b = measurement(after);
        first = decide({policy, on_regression, true, a});
        champion.commit = "1111111111111111111111111111111111111111";
        champion.measured = a;
        const PerfQuestion q{policy, on_regression, true, b, &champion, change_class};
        second = decide(q);
        text = decision_text(q, second, "2222222222222222222222222222222222222222");
    }
    bool triple(bool ok, bool count, int rc) const {
        return second.ok == ok && second.count_failure == count && second.rc == rc;
    }
    bool says(const std::string& words) const {
        for (const std::string& reason : second.reasons) {
            if (reason.find(words) != std::string::npos) return true;
        }
        return false;
    }
    bool refused_by(const std::string& words) const {
        return second.verdict == PerfVerdict::control_flow_regression && triple(true, true, 0) && second.take_back &&
               says(words);
    }
};

}  // namespace

TEST_CASE("perf: case 1, a better candidate is promoted") {
    const Two two({{"throughput/mfu", 4.0}}, {{"throughput/mfu", 4.2}});
    CHECK(two.first.verdict == PerfVerdict::baseline);
    CHECK((two.first.ok && !two.first.count_failure && two.first.rc == 0));
    CHECK(two.second.verdict == PerfVerdict::promoted);
    CHECK(two.triple(true, false, 0));
    CHECK(two.second.becomes_champion());
    CHECK(two.text == "performance champion promoted: 4 -> 4.2 (+5.00%, source=cli-output); 1.05x faster (unpaired)");
}

TEST_CASE("perf: case 2, a worse one is taken back: HEAD and files are those of the champion") {
    const Two two({{"throughput/mfu", 4.0}}, {{"throughput/mfu", 3.0}});
    CHECK(two.second.verdict == PerfVerdict::regression);
    CHECK(two.triple(true, true, 0));
    CHECK(two.second.take_back);
    CHECK_FALSE(two.second.becomes_champion());
    CHECK(two.text ==
          "performance regression detected vs champion: 4 -> 3 (-25.00%, source=cli-output); 1.33x slower (unpaired)");

    const LoopWorld world;
    for (const Isolation isolation : {Isolation::worktree, Isolation::inplace}) {
        auto transactions = world.transactions(isolation);
        const Base base = ok(transactions.begin(1, false));
        write_text(transactions.workdir() / "kernel.c", "int speed = 0;\n");
        world.sh("cd '" + transactions.workdir().string() + "' && git commit -qam slower");
        const Candidate candidate = ok(transactions.collect(1, base));
        REQUIRE(candidate.head != base.sha);
        REQUIRE(transactions.reject(base, candidate));
        CHECK(world.sh("git rev-parse HEAD") == base.sha);
        CHECK(read_text(world.path() / "kernel.c") == "int speed = 1;\n");
        CHECK(world.ref("iter-001/head") == candidate.head);
        world.sh("git for-each-ref --format='%(refname)' refs/gdnctl | xargs -rn1 git update-ref -d");
    }
}

TEST_CASE("perf: case 3, no metric under policy fail stops the loop") {
    const PerfPolicy policy = default_policy();
    const Measurement nothing = measurement(k_none);
    const PerfDecision decision = decide({policy, RegressionPolicy::fail, true, nothing});
    CHECK(decision.verdict == PerfVerdict::metric_missing);
    CHECK((!decision.ok && decision.count_failure && decision.rc == 1));
}

TEST_CASE("perf: case 4, no metric is taken back under revert-count-failure") {
    const Two two({{"throughput/mfu", 4.0}}, k_none);
    CHECK(two.second.verdict == PerfVerdict::metric_missing);
    CHECK(two.triple(true, true, 0));
    CHECK(two.second.take_back);
    const Two going_on({{"throughput/mfu", 4.0}}, k_none, {}, RegressionPolicy::revert_continue);
    CHECK(going_on.triple(true, false, 0));
    const Two counted({{"throughput/mfu", 4.0}}, k_none, {}, RegressionPolicy::count_failure);
    CHECK(counted.triple(false, true, 1));
}

TEST_CASE("perf: case 5, a new while is refused although the metric rose") {
    const MetricMap before = {
        {"while_ms", 0}, {"forward_closed_call_ms", 41}, {"backward_closed_call_ms", 26}, {"train_path_budget_ms", 67}};
    const MetricMap after = {{"while_ms", 31.5},
                             {"forward_closed_call_ms", 20},
                             {"backward_closed_call_ms", 13},
                             {"train_path_budget_ms", 64.5}};
    const Two two(with(4.0, before), with(4.04, after));
    CHECK(two.refused_by("`while_ms` increased by 31.500 ms"));
    CHECK(two.text.starts_with("performance control-flow gate triggered:\n  - `while_ms` increased by "));
}

TEST_CASE("perf: case 6, a gain beyond the override passes the gates") {
    const Two two(with(4.0, {{"while_ms", 0}, {"train_path_budget_ms", 67}}),
                  with(4.3, {{"while_ms", 31.5}, {"train_path_budget_ms", 64.5}}));
    CHECK(two.second.verdict == PerfVerdict::promoted);
    CHECK(two.triple(true, false, 0));
    CHECK(two.second.gates.empty());
}

TEST_CASE("perf: case 7, a new conditional is refused") {
    const MetricMap before = {{"conditional_ms", 0}, {"train_path_budget_ms", 67}};
    const MetricMap after = {{"conditional_ms", 12}, {"train_path_budget_ms", 79}};
    const Two two(with(4.0, before), with(4.02, after));
    CHECK(two.refused_by("`conditional_ms` became a new large bucket"));
    CHECK(two.refused_by("`train_path_budget_ms` increased"));
    const Two unknown_before(with(4.0, {{"x_ms", 1}}), with(4.02, after));
    CHECK(unknown_before.refused_by("became a new large bucket"));
}

TEST_CASE("perf: case 8, a shorter train path with the same step is off the critical path") {
    const Two two(with(6.061863, {{"train_path_budget_ms", 43.965}, {"throughput/duration", 0.167098}}),
                  with(6.026688, {{"train_path_budget_ms", 39.173}, {"throughput/duration", 0.168073}}));
    CHECK(two.refused_by("off-critical-path"));
}

TEST_CASE("perf: case 9, so is one beside a longer remainder") {
    const Two two(with(6.09, {{"train_path_budget_ms", 42.72},
                              {"decoder_layer_shell_budget_ms", 64},
                              {"step_duration_ms", 166.3},
                              {"remainder_budget_ms", 123.58}}),
                  with(6.08, {{"train_path_budget_ms", 40.9},
                              {"decoder_layer_shell_budget_ms", 63.7},
                              {"step_duration_ms", 166.42},
                              {"remainder_budget_ms", 125.52}}));
    CHECK(two.refused_by("classify as off-critical-path or overlap-loss"));
}

TEST_CASE("perf: case 10, progress in names only (failure mode E)") {
    const Two two(with(6.09, {{"train_path_budget_ms", 42.7},
                              {"hybrid_generic_shell_delta_budget_ms", 14.2},
                              {"interaction_remainder_ms", 53.1},
                              {"step_duration_ms", 166.3}}),
                  with(6.09, {{"train_path_budget_ms", 40.9},
                              {"hybrid_generic_shell_delta_budget_ms", 14.15},
                              {"interaction_remainder_ms", 55.5},
                              {"step_duration_ms", 166.42}}));
    CHECK(two.refused_by("namespace-only / renamed-bucket progress"));
    CHECK(two.says("`interaction_remainder_ms` increased"));
}

TEST_CASE("perf: case 11, a larger dispatch shell is named") {
    const Two two(
        with(6.03,
             {{"dispatch_shard_shell_delta_ms", 9.8}, {"ad_wrapper_shell_delta_ms", 6.1}, {"step_duration_ms", 167.7}}),
        with(6.04, {{"dispatch_shard_shell_delta_ms", 12.4},
                    {"ad_wrapper_shell_delta_ms", 6.0},
                    {"step_duration_ms", 167.6}}));
    CHECK(two.refused_by("`dispatch_shard_shell_delta_ms` increased"));
}

TEST_CASE("perf: case 12, waiting still dominates") {
    const Two two(with(6.03, {{"train_path_budget_ms", 42.7},
                              {"dispatch_shard_shell_delta_ms", 9.8},
                              {"xprof_idle_attributed_ms", 38.1},
                              {"step_duration_ms", 167.7}}),
                  with(6.03, {{"train_path_budget_ms", 40.5},
                              {"dispatch_shard_shell_delta_ms", 9.5},
                              {"xprof_idle_attributed_ms", 38.5},
                              {"step_duration_ms", 167.8}}));
    CHECK(two.refused_by("waiting/serialization still dominant"));
}

TEST_CASE("perf: case 13, the matched profile did not follow the local delta") {
    const MetricMap before = {{"dispatch_shard_shell_delta_ms", 9.8},
                              {"ad_wrapper_shell_delta_ms", 6.1},
                              {"hybrid_generic_shell_delta_budget_ms", 20.1},
                              {"xprof_dispatch_shard_shell_delta_ms", 31.6},
                              {"xprof_ad_wrapper_shell_delta_ms", 11.1},
                              {"xprof_idle_attributed_ms", 38.3},
                              {"step_duration_ms", 167.8}};
    const MetricMap after = {{"dispatch_shard_shell_delta_ms", 5.2},
                             {"ad_wrapper_shell_delta_ms", 8.2},
                             {"hybrid_generic_shell_delta_budget_ms", 17.6},
                             {"xprof_dispatch_shard_shell_delta_ms", 31.63},
                             {"xprof_ad_wrapper_shell_delta_ms", 12.0},
                             {"xprof_idle_attributed_ms", 44.06},
                             {"step_duration_ms", 167.59}};
    const Two two(with(6.03, before), with(6.04, after), "branch-core sharding envelope");
    CHECK(two.refused_by("matched xprof `dispatch_shard_shell_delta_ms` did not improve materially"));
    CHECK(two.says("prefilter"));
    CHECK(two.says("xprof_idle_attributed_ms"));
    // Ours: only such changes are asked for it; that it was left out is recorded with the reason.
    const Two other(with(6.03, before), with(6.04, after), "inner kernel math");
    CHECK_FALSE(other.says("did not improve materially"));
    CHECK(other.says("xprof_idle_attributed_ms"));
    for (const GateResult& gate : other.second.gates) {
        if (gate.id != "xprof-dispatch-shard") continue;
        CHECK(gate.kind == GateResult::Kind::skip);
        CHECK(gate.reason == "only for changes of class branch-core sharding envelope");
    }
}

TEST_CASE("perf: case 14, the matched AD shell grew") {
    const Two two(with(6.03, {{"dispatch_shard_shell_delta_ms", 9.8},
                              {"xprof_dispatch_shard_shell_delta_ms", 31.6},
                              {"xprof_ad_wrapper_shell_delta_ms", 11.0},
                              {"xprof_idle_attributed_ms", 38.0},
                              {"step_duration_ms", 167.7}}),
                  with(6.05, {{"dispatch_shard_shell_delta_ms", 8.4},
                              {"xprof_dispatch_shard_shell_delta_ms", 28.9},
                              {"xprof_ad_wrapper_shell_delta_ms", 12.3},
                              {"xprof_idle_attributed_ms", 38.1},
                              {"step_duration_ms", 167.4}}));
    CHECK(two.refused_by("matched xprof `ad_wrapper_shell_delta_ms` increased"));
    for (const std::string& reason : two.second.reasons)
        CHECK(reason.find("ad_wrapper_shell_delta_ms") != std::string::npos);
}

TEST_CASE("perf: gates at their thresholds, and what they need") {
    const auto fires = [](const char* id, const MetricMap& before, const MetricMap& after) {
        for (const GateResult& gate :
             evaluate_gates(default_policy(), before, after, "branch-core sharding envelope")) {
            if (gate.id == id) return gate.kind;
        }
        FAIL("no such gate");
        return GateResult::Kind::skip;
    };
    using GateKind = GateResult::Kind;
    CHECK(fires("while", {{"while_ms", 1}}, {{"while_ms", 6}}) == GateKind::pass);
    CHECK(fires("while", {{"while_ms", 1}}, {{"while_ms", 6.001}}) == GateKind::fail);
    CHECK(fires("while", {}, {{"while_ms", 99}}) == GateKind::skip);
    CHECK(fires("conditional", {}, {{"conditional_ms", 5}}) == GateKind::pass);
    CHECK(fires("conditional", {{"conditional_ms", 3}}, {{"conditional_ms", 7.9}}) == GateKind::pass);
    CHECK(fires("conditional", {}, {{"conditional_ms", 5.1}}) == GateKind::fail);
    // Both sides of one source: never a delta of the trace against one of xprof.
    CHECK(fires("dispatch-shard", {{"dispatch_shard_shell_delta_ms", 1}},
                {{"xprof_dispatch_shard_shell_delta_ms", 30}}) == GateKind::skip);
    CHECK(fires("dispatch-shard", {{"xprof_dispatch_shard_shell_delta_ms", 1}},
                {{"xprof_dispatch_shard_shell_delta_ms", 30}}) == GateKind::fail);
    // Without the train path the gates on the remainders work all the same.
    CHECK(fires("remainder", {{"remainder_budget_ms", 1}}, {{"remainder_budget_ms", 3.5}}) == GateKind::fail);
    CHECK(fires("interaction", {{"interaction_remainder_ms", 1}}, {{"interaction_remainder_ms", 3}}) == GateKind::pass);
    CHECK(fires("hybrid-generic", {{"hybrid_generic_shell_delta_budget_ms", 1}},
                {{"hybrid_generic_shell_delta_budget_ms", 3.1}}) == GateKind::fail);
    CHECK(fires("off-critical-path", {{"train_path_budget_ms", 9}, {"step_duration_ms", 20}},
                {{"train_path_budget_ms", 8}, {"step_duration_ms", 19.75}}) == GateKind::pass);
    CHECK(fires("off-critical-path", {{"train_path_budget_ms", 9}, {"step_duration_ms", 20}},
                {{"train_path_budget_ms", 8}, {"step_duration_ms", 19.9}}) == GateKind::fail);
    CHECK(default_policy().gates.size() == 14);
    for (const GateResult& gate : evaluate_gates(default_policy(), {}, {}, "")) {
        CAPTURE(gate.id);
        CHECK(gate.kind == GateKind::skip);
        CHECK_FALSE(gate.reason.empty());
    }
}

TEST_CASE("perf: budgets follow from what was measured (case 33, failure mode P)") {
    MetricMap m = {{"step_duration_ms", 166.307},
                   {"train_path_budget_ms", 42.7},
                   {"remainder_budget_ms", 1.0},
                   {"hybrid_generic_shell_delta_budget_ms", 20.0}};
    derive_budgets(m, 57.8605);
    CHECK(m["remainder_budget_ms"] == doctest::Approx(123.607));
    CHECK(m["upper_bound_gap_ms"] == doctest::Approx(108.4465));
    CHECK(m["gap_explained_by_train_path"] == doctest::Approx(42.7 / 108.4465));
    CHECK(m["interaction_remainder_ms"] == doctest::Approx(108.4465 - 62.7));
    MetricMap shell = {{"step_duration_ms", 100.0}, {"decoder_layer_shell_budget_ms", 9.0}};
    derive_budgets(shell, 50.0);
    CHECK(shell["gap_explained_by_decoder_layer_shell"] == doctest::Approx(9.0 / 50.0));
}

TEST_CASE("perf: thresholds on the metric, the way that is better, and each policy") {
    CHECK(Two({{"throughput/mfu", 4.0}}, {{"throughput/mfu", 4.011}}).second.verdict == PerfVerdict::promoted);
    CHECK(Two({{"throughput/mfu", 4.0}}, {{"throughput/mfu", 4.009}}).second.verdict == PerfVerdict::within_threshold);
    CHECK(Two({{"throughput/mfu", 4.0}}, {{"throughput/mfu", 3.97}}).second.verdict == PerfVerdict::within_threshold);
    CHECK(Two({{"throughput/mfu", 4.0}}, {{"throughput/mfu", 3.96}}).second.verdict == PerfVerdict::regression);
    // Kept, as the recipe has it.
    CHECK_FALSE(Two({{"throughput/mfu", 4.0}}, {{"throughput/mfu", 3.97}}).second.take_back);

    const PerfPolicy policy = default_policy();
    PerfRecord champion;
    champion.measured = measurement({{"ms", 10.0}}, "ms");
    const Measurement faster = measurement({{"ms", 9.0}}, "ms");
    const PerfDecision decision = decide({policy, RegressionPolicy::fail, false, faster, &champion});
    CHECK(decision.verdict == PerfVerdict::promoted);
    CHECK(*decision.delta_pct == doctest::Approx(-10.0));
    CHECK(*decision.gain_pct == doctest::Approx(10.0));

    struct Row {
        RegressionPolicy policy;
        bool ok, count, back;
        int rc;
    };
    for (const Row& row :
         {Row{RegressionPolicy::revert_count_failure, true, true, true, 0},
          Row{RegressionPolicy::revert_continue, true, false, true, 0},
          Row{RegressionPolicy::count_failure, true, true, false, 0},
          Row{RegressionPolicy::go_on, true, false, false, 0}, Row{RegressionPolicy::fail, false, true, false, 1}}) {
        const Two two({{"throughput/mfu", 4.0}}, {{"throughput/mfu", 3.0}}, {}, row.policy);
        CAPTURE(to_text(row.policy));
        CHECK(two.triple(row.ok, row.count, row.rc));
        CHECK(two.second.take_back == row.back);
    }
}

TEST_CASE("perf: delta of a champion of zero, and of one without a number") {
    CHECK(delta_percent(0, 0) == 0.0);
    CHECK(std::isinf(delta_percent(0, 1)));
    CHECK(delta_percent(0, -1) < 0.0);
    CHECK(delta_percent(-4, -3) == doctest::Approx(25.0));
    CHECK(Two({}, {{"throughput/mfu", 3.0}}).second.verdict == PerfVerdict::promote_corrupt_champion);
}

TEST_CASE("perf: incomparable is not a regression (failure modes C, J)") {
    const PerfPolicy policy = default_policy();
    PerfRecord champion;
    champion.measured = measurement({{"throughput/mfu", 6.0}});
    champion.measured.fingerprint.asked = {{"cluster", "a"}};
    champion.measured.fingerprint.effective = {{"ce", "pallas_tpu"}};
    Measurement m = measurement({{"throughput/mfu", 3.0}});
    m.fingerprint = champion.measured.fingerprint;
    m.fingerprint.asked["cluster"] = "b";
    PerfDecision decision = decide({policy, RegressionPolicy::fail, true, m, &champion});
    CHECK(decision.verdict == PerfVerdict::incomparable);
    CHECK(decision.why_not_compared == "cluster: a -> b");
    CHECK((decision.ok && !decision.count_failure && decision.rc == 0));
    // The change itself decides what is in effect; only a change that is about that may.
    m.fingerprint.asked["cluster"] = "a";
    m.fingerprint.effective["ce"] = "xla";
    decision = decide({policy, RegressionPolicy::fail, true, m, &champion});
    CHECK(decision.verdict == PerfVerdict::incomparable);
    CHECK(decision.why_not_compared == "ce: pallas_tpu -> xla");
    CHECK(decide({policy, RegressionPolicy::fail, true, m, &champion, "CE backend"}).verdict ==
          PerfVerdict::regression);
    CHECK(champion.measured.fingerprint.key() == m.fingerprint.key());
    m.fingerprint.asked["cluster"] = "b";
    CHECK(champion.measured.fingerprint.key() != m.fingerprint.key());
}

TEST_CASE("perf: common-factor alarm") {
    const MetricMap before = {
        {"forward_closed_call_ms", 41.3}, {"backward_closed_call_ms", 26.2}, {"all_gather_ms", 5.0}, {"while_ms", 9.0}};
    MetricMap after = {{"forward_closed_call_ms", 20.65},
                       {"backward_closed_call_ms", 13.1},
                       {"all_gather_ms", 2.5},
                       {"while_ms", 9.0}};
    CHECK(common_factor_alarm(before, after).find("all changed by -50.0 %") != std::string::npos);
    const Two two(with(6.0, before), with(5.3, after));
    CHECK(two.second.verdict == PerfVerdict::common_factor);
    CHECK(two.triple(true, false, 0));
    after["all_gather_ms"] = 2.6;  // 4 % from the others
    CHECK(common_factor_alarm(before, after).empty());
    CHECK(common_factor_alarm(before, before).empty());  // nothing changed at all
    // Sums of them, which change with them, are no buckets of their own.
    CHECK(common_factor_alarm({{"forward_closed_call_ms", 10}, {"kernel_budget_ms", 10}, {"train_path_budget_ms", 10}},
                              {{"forward_closed_call_ms", 5}, {"kernel_budget_ms", 5}, {"train_path_budget_ms", 5}})
              .empty());
}

}  // namespace gdnctl::loop
