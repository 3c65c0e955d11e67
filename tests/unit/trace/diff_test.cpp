#include "trace/diff/diff.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "trace/diff/match.h"
#include "trace/model/names.h"

using namespace gdnctl;
using namespace gdnctl::trace;

namespace {

// An operation whose text names itself and its operand, as HLO does.
OpSum make_op(const std::string& name, Ps self, const std::string& tf_op = "jit(f)/dot") {
    OpSum op;
    op.program = "jit_f";
    op.name = name;
    op.category = "loop fusion";
    op.tf_op = tf_op;
    op.source = "model.py:10";
    op.cls = "compute";
    op.text = "%" + name + " = f32[8,16]{1,0:T(8,128)} fusion(f32[8]{0} %copy.1), calls=%fused_computation.3";
    op.self_ps = self;
    op.calls = 1;
    return op;
}

// Steps of the given durations on one device.
Profile make_profile(std::vector<OpSum> ops, std::vector<Ps> steps) {
    static int number = 0;
    Profile profile;
    profile.sha256 = std::string(58, 'a') + std::to_string(100'000 + ++number);
    profile.path = "a.xplane.pb";
    profile.kind = "tpu";
    profile.device_type = "TPU v5p";
    profile.devices = 1;
    profile.dominant = "jit_f";
    profile.programs = {"jit_f"};
    profile.step_source = "modules:jit_f";
    profile.steps = std::move(steps);
    for (const Ps step : profile.steps) {
        profile.mean_step_ps += static_cast<double>(step) / static_cast<double>(profile.steps.size());
        profile.step_busy.push_back(step - 10);
        profile.step_gap.push_back(10);
    }
    for (std::size_t i = 0; i < ops.size(); ++i) ops[i].order = static_cast<std::int64_t>(i);
    profile.ops = std::move(ops);
    profile.hotspot = profile.ops.empty() ? "" : profile.ops.front().name;
    return profile;
}

const std::vector<Ps> k_steps = {1000, 1010, 1020, 1030};
const std::vector<Ps> k_faster = {800, 810, 820, 830};

Diff compared(const Profile& before, const Profile& after, const DiffOptions& options = {}) {
    auto diff = compare(before, after, options);
    REQUIRE(diff.has_value());
    return *std::move(diff);
}

Diff compared(std::vector<OpSum> before, std::vector<OpSum> after) {
    return compared(make_profile(std::move(before), k_steps), make_profile(std::move(after), k_steps));
}

bool has_label(const Diff& diff, const std::string& label) {
    return std::find(diff.labels.begin(), diff.labels.end(), label) != diff.labels.end();
}

const Gate* find_gate(const Diff& diff, const std::string& name) {
    for (const Gate& gate : diff.gates) {
        if (gate.name == name) return &gate;
    }
    return nullptr;
}

// The statistics, straight from their definitions.
std::vector<Ps> all_differences(const std::vector<Ps>& before, const std::vector<Ps>& after) {
    std::vector<Ps> list;
    for (const Ps a : before) {
        for (const Ps b : after) list.push_back(b - a);
    }
    std::sort(list.begin(), list.end());
    return list;
}

double p_by_counting(const std::vector<Ps>& before, const std::vector<Ps>& after) {
    std::vector<Ps> pool = before;
    pool.insert(pool.end(), after.begin(), after.end());
    const auto distance = [&](unsigned chosen) {
        Ps in = 0;
        Ps out = 0;
        for (std::size_t i = 0; i < pool.size(); ++i) ((chosen >> i & 1) != 0 ? in : out) += pool[i];
        return std::abs(in * static_cast<Ps>(after.size()) - out * static_cast<Ps>(before.size()));
    };
    const Ps observed = distance((1U << before.size()) - 1);
    int hits = 0;
    int all = 0;
    for (unsigned chosen = 0; chosen < 1U << pool.size(); ++chosen) {
        if (static_cast<std::size_t>(__builtin_popcount(chosen)) != before.size()) continue;
        ++all;
        if (distance(chosen) >= observed) ++hits;
    }
    return static_cast<double>(hits) / all;
}

Profile random_profile(std::mt19937& random, std::int64_t devices) {
    const auto below = [&](unsigned limit) { return static_cast<Ps>(random() % limit); };
    std::vector<Ps> steps(static_cast<std::size_t>(3 + below(4)));
    for (Ps& step : steps) step = 500 + below(100);
    std::vector<OpSum> ops;
    for (int i = 0; i < 30; ++i) {
        OpSum op = make_op("fusion." + std::to_string(below(40)), below(200), "op" + std::to_string(below(6)));
        op.program = below(4) == 0 ? "jit_g" : "jit_f";
        if (op.program == "jit_g") op.text.clear();
        if (below(3) == 0) op.text += std::to_string(below(3));
        op.source = "model.py:" + std::to_string(below(3));
        ops.push_back(std::move(op));
    }
    Profile profile = make_profile(std::move(ops), std::move(steps));
    profile.devices = devices;
    return profile;
}

}  // namespace

TEST_CASE("trace names: numbers are removed from names and HLO texts") {
    CHECK(base_name("fusion.12") == "fusion");
    CHECK(base_name("copy-done.2.clone.1") == "copy-done.clone");
    CHECK(base_name("v1.5x.3") == "v1.5x");
    CHECK(base_name(".7") == ".7");
    CHECK(canonical_name("loop_fusion_3", "gpu") == "loop_fusion");
    CHECK(canonical_name("loop_fusion_3.1", "gpu") == "loop_fusion");
    CHECK(canonical_name("loop_fusion_3", "tpu") == "loop_fusion_3");
    CHECK(canonical_name("_7", "gpu") == "_7");
    CHECK(output_shape("%a.1 = bf16[2,8]{1,0:T(8,128)} copy(f32[4]{0} %b)") == "bf16[2,8]");
    CHECK(output_shape("%a.1 = (f32[2]{0}, s32[]) fusion()") == "f32[2]");
    CHECK(output_shape("custom text").empty());
    CHECK(anonymise("%a.1 = f32[2]{0} fusion(f32[2]{0} %copy-done.2.clone.1), calls=%fused.4, channel_id=97, x=1.5") ==
          "%a = f32[2]{0} fusion(f32[2]{0} %copy-done.clone), calls=%fused, channel_id=N, x=1.5");
    CHECK(anonymise("async_collective_name=\"all-gather-start.8\"") == "async_collective_name=\"all-gather-start\"");
    CHECK(anonymise("%") == "%");
}

TEST_CASE("trace diff: each matching level pairs what it should") {
    SUBCASE("exact: everything is equal but numbers inside the text") {
        OpSum after = make_op("fusion.1", 5);
        after.text = "%fusion.1 = f32[8,16]{1,0:T(8,128)} fusion(f32[8]{0} %copy.77), calls=%fused_computation.9";
        const Diff diff = compared({make_op("fusion.1", 5)}, {after});
        CHECK(diff.levels.exact == 1);
        CHECK(diff.rows.front().label == "fusion.1");
    }
    SUBCASE("text: another name") {
        const Diff diff = compared({make_op("fusion.1", 5)}, {make_op("fusion.9", 6)});
        CHECK(diff.levels.text == 1);
        CHECK(diff.rows.front().label == "fusion.1 -> fusion.9");
        CHECK(diff.rows.front().level == "text");
    }
    SUBCASE("text_order: equal texts pair in program order") {
        const Diff diff = compared({make_op("fusion.1", 400), make_op("fusion.2", 800)},
                                   {make_op("fusion.8", 404), make_op("fusion.7", 808)});
        CHECK(diff.levels.text_order == 2);
        CHECK(diff.rows[0].label == "fusion.2 -> fusion.7");
        CHECK(diff.rows[1].label == "fusion.1 -> fusion.8");
    }
    SUBCASE("text: a moved source line does not matter, another file does") {
        OpSum moved = make_op("fusion.1", 5);
        moved.source = "model.py:12";
        CHECK(compared({make_op("fusion.1", 5)}, {moved}).levels.text == 1);
        moved.source = "other.py:10";
        moved.text += " changed";
        const Diff diff = compared({make_op("fusion.1", 5)}, {moved});
        CHECK(diff.levels.added == 1);
        CHECK(diff.levels.removed == 1);
    }
    SUBCASE("source: another text, the same source and shape") {
        OpSum after = make_op("fusion.9", 6);
        after.text = "%fusion.9 = f32[8,16]{1,0} fusion(f32[8]{0} %a.1, f32[8]{0} %b.1)";
        CHECK(compared({make_op("fusion.1", 5)}, {after}).levels.source == 1);
        OpSum second = after;
        second.name = "fusion.10";
        CHECK(compared({make_op("fusion.1", 5), make_op("fusion.2", 5)}, {after, second}).levels.source_order == 2);
        after.text = "%fusion.9 = f32[4]{0} fusion(f32[8]{0} %a.1)";
        CHECK(compared({make_op("fusion.1", 5)}, {after}).levels.removed == 1);
    }
    SUBCASE("group: different numbers of equal operations are summed") {
        const Diff diff = compared({make_op("fusion.1", 400), make_op("fusion.2", 800)}, {make_op("fusion.3", 1600)});
        CHECK(diff.levels.group == 1);
        CHECK(diff.rows.front().label == "fusion (2 -> 1)");
        CHECK(diff.rows.front().before_ps == 300);
        CHECK(diff.rows.front().after_ps == 400);
    }
    SUBCASE("stable_op_id comes before the name") {
        OpSum before = make_op("fusion.1", 5);
        OpSum after = make_op("other.3", 5, "moved");
        before.stable_id = after.stable_id = "17";
        CHECK(compared({before}, {after, make_op("fusion.1", 5)}).levels.stable_op_id == 1);
    }
    SUBCASE("programs pair by name") {
        OpSum after = make_op("fusion.1", 5);
        after.program = "jit_g";
        const Diff diff = compared({make_op("fusion.1", 5)}, {after});
        CHECK(diff.levels.added == 1);
        CHECK(diff.levels.removed == 1);
    }
}

TEST_CASE("trace diff: without HLO text only sums over canonical names are compared") {
    std::vector<OpSum> before = {make_op("dot.1", 40), make_op("dot.2", 80), make_op("gone.1", 4)};
    std::vector<OpSum> after = {make_op("dot.1", 80), make_op("dot.2", 40), make_op("new.1", 8)};
    for (auto* ops : {&before, &after}) {
        for (OpSum& op : *ops) op.text.clear();
    }
    const Diff diff = compared(before, after);
    CHECK(diff.levels.group == 1);
    CHECK(diff.levels.added == 1);
    CHECK(diff.levels.removed == 1);
    CHECK(diff.levels.exact == 0);
    for (const WaterfallRow& row : diff.rows) {
        if (row.kind == "group") {
            CHECK(row.label == "dot");
            CHECK(row.delta_ps == 0);
        }
    }
    CHECK_FALSE(has_label(diff, "same-program"));
}

TEST_CASE("trace diff: shift, interval and p equal the definitions") {
    std::mt19937 random(7);
    const std::map<std::size_t, std::size_t> ranks = {{4, 1}, {5, 3}, {6, 6}, {8, 14}};
    for (int round = 0; round < 200; ++round) {
        for (const auto& [n, k] : ranks) {
            std::vector<Ps> a(n);
            std::vector<Ps> b(n);
            for (Ps& value : a) value = static_cast<Ps>(random() % 40);
            for (Ps& value : b) value = static_cast<Ps>(random() % 40) + round % 20;
            const DiffStats stats = shift_of(a, b);
            const std::vector<Ps> all = all_differences(a, b);
            const double middle = static_cast<double>(all[(all.size() - 1) / 2] + all[all.size() / 2]) / 2;
            CHECK(stats.shift_ps == std::llround(middle));
            CHECK(stats.ci_low_ps == all[k - 1]);
            CHECK(stats.ci_high_ps == all[all.size() - k]);
            if (n < 8 || round < 2) CHECK(stats.p.value() == doctest::Approx(p_by_counting(a, b)).epsilon(1e-12));
        }
    }
    CHECK(shift_of({1, 2, 3}, {4, 5, 6}).p.value() == doctest::Approx(0.1));
    CHECK(shift_of({1, 2, 3, 4}, {5, 6, 7, 8}).p.value() == doctest::Approx(2.0 / 70));
    CHECK(shift_of({1, 2, 3, 4, 5, 6, 7, 8}, {9, 10, 11, 12, 13, 14, 15, 16}).p.value() ==
          doctest::Approx(2.0 / 12870));
    CHECK(shift_of({5, 5, 5, 5}, {5, 5, 5, 5}).p.value() == 1);
    CHECK(shift_of({1, 2, 3}, {9}).p.value() == doctest::Approx(p_by_counting({1, 2, 3}, {9})));
}

TEST_CASE("trace diff: statistics of samples that are empty, single, large or far apart") {
    CHECK_FALSE(shift_of({}, {1, 2}).p.has_value());
    CHECK_FALSE(shift_of({1}, {2}).p.has_value());
    CHECK(shift_of({1}, {4}).shift_ps == 3);
    const Ps far = 4'000'000'000'000'000'000;
    CHECK(shift_of({0, 0}, {far, far}).shift_ps == far);
    CHECK(shift_of({far, far}, {0, 0}).ci_low_ps == -far);

    std::mt19937 random(3);
    std::vector<Ps> a(3000);
    std::vector<Ps> b(2000);
    for (Ps& value : a) value = 1'000'000 + static_cast<Ps>(random() % 1000);
    for (Ps& value : b) value = 1'000'100 + static_cast<Ps>(random() % 1000);
    const DiffStats stats = shift_of(a, b);
    const std::vector<Ps> all = all_differences(a, b);
    CHECK(stats.shift_ps == std::llround(static_cast<double>(all[all.size() / 2 - 1] + all[all.size() / 2]) / 2));
    CHECK(stats.ci_low_ps > 60);
    CHECK(stats.ci_high_ps < 140);
    CHECK(stats.p.value() == doctest::Approx(1.0 / 20'001));
    CHECK(shift_of(a, b).p == shift_of(b, a).p);
    CHECK(shift_of(a, a).p.value() > 0.9);
}

TEST_CASE("trace diff: exchanging the inputs negates every figure") {
    std::mt19937 random(11);
    for (int round = 0; round < 200; ++round) {
        const Profile a = random_profile(random, 3);
        const Profile b = random_profile(random, 3);
        const Diff forth = compared(a, b);
        const Diff back = compared(b, a);
        CHECK(forth.total_delta_ps == -back.total_delta_ps);
        CHECK(forth.stats.shift_ps == -back.stats.shift_ps);
        CHECK(forth.stats.ci_low_ps == -back.stats.ci_high_ps);
        CHECK(forth.stats.p == back.stats.p);
        CHECK(forth.levels.added == back.levels.removed);
        CHECK(forth.levels.text_order == back.levels.text_order);
        using Figures = std::vector<std::vector<Ps>>;
        Figures rows;
        Figures mirrored;
        Ps sum = 0;
        for (const WaterfallRow& row : forth.rows) {
            rows.push_back({row.before_ps, row.after_ps, row.delta_ps});
            CHECK(row.after_ps - row.before_ps == row.delta_ps);
            if (row.kind != "idle") CHECK(std::min(row.before_ps, row.after_ps) >= 0);
            sum += row.delta_ps;
        }
        for (const WaterfallRow& row : back.rows) mirrored.push_back({row.after_ps, row.before_ps, -row.delta_ps});
        CHECK(rows.back() == mirrored.back());
        std::sort(rows.begin(), rows.end());
        std::sort(mirrored.begin(), mirrored.end());
        CHECK(rows == mirrored);
        CHECK(sum == forth.total_delta_ps);
        CHECK(std::abs(static_cast<double>(forth.total_delta_ps) - (b.mean_step_ps - a.mean_step_ps)) < 0.501);
    }
}

TEST_CASE("trace diff: JSON rows beyond `top` are summed, and idle comes last") {
    const Diff diff = compared({make_op("a.1", 400), make_op("b.1", 40), make_op("c.1", 4)},
                               {make_op("a.1", 800), make_op("b.1", 80), make_op("c.1", 8)});
    const Json json = diff_json(diff, 1);
    CHECK(to_text(json["waterfall"]) ==
          R"([{"label":"a.1","kind":"matched","before_ps":100,"after_ps":200,"delta_ps":100,"level":"exact"},)"
          R"({"label":"2 more","kind":"rest","before_ps":11,"after_ps":22,"delta_ps":11,"level":null},)"
          R"({"label":"idle","kind":"idle","before_ps":904,"after_ps":793,"delta_ps":-111,"level":null}])");
    CHECK(diff_json(diff, -1)["waterfall"].size() == 4);
    CHECK(diff_json(diff, 0)["waterfall"].size() == 2);
    std::string keys;
    for (const auto& [key, value] : json.items()) keys += key + " ";
    CHECK(keys == "verdict impact labels gates match_levels stats total_delta_ps waterfall kernels ");
    CHECK(json["impact"].is_null());
    CHECK(json["stats"]["floor_ps"].is_null());
}

TEST_CASE("trace diff: a verdict needs four steps, a small p and a shift above effect and floor") {
    const std::vector<OpSum> ops = {make_op("a.1", 400)};
    const Profile before = make_profile(ops, k_steps);
    const Profile after = make_profile(ops, k_faster);
    CHECK(compared(before, after).verdict == Verdict::improved);
    CHECK(compared(after, before).verdict == Verdict::regressed);
    CHECK(compared(before, make_profile(ops, k_steps)).verdict == Verdict::no_change);
    CHECK(compared(before, after, {.min_effect = 0.5}).verdict == Verdict::no_change);
    CHECK(compared(before, after, {.alpha = 0.02}).verdict == Verdict::no_change);
    CHECK(compared(before, after, {.noise_floor_ps = 60}).verdict == Verdict::improved);
    CHECK(compared(before, after, {.noise_floor_ps = 70}).verdict == Verdict::no_change);
    Profile baseline = before;
    baseline.floor_ps = 70;
    CHECK(compared(baseline, after).stats.floor_ps == 70);
    CHECK(compared(baseline, after).verdict == Verdict::no_change);

    const Diff few = compared(make_profile(ops, {1, 2, 3}), make_profile(ops, {7, 8, 9}));
    CHECK(few.verdict == Verdict::insufficient);
    CHECK(few.stats.p.value() == doctest::Approx(0.1));
    const Diff none = compared(make_profile(ops, {}), after);
    CHECK(none.verdict == Verdict::insufficient);
    CHECK(none.rows.empty());
    CHECK(std::string(name_of(none.verdict)) == "insufficient");
}

TEST_CASE("trace diff: gates refuse what cannot be compared and warn about the rest") {
    const std::vector<OpSum> ops = {make_op("a.1", 400), make_op("b.1", 400), make_op("c.1", 400), make_op("d.1", 400)};
    const Profile before = make_profile(ops, k_steps);
    Profile after = make_profile(ops, k_steps);
    CHECK(compared(before, after).gates.empty());

    const auto same = compare(before, before, {});
    REQUIRE_FALSE(same.has_value());
    CHECK(same.error().kind == ErrorKind::bad_input);
    CHECK(same.error().message ==
          "same trace: both inputs have sha256 aaaaaaaaaaaa…; pass --allow-same to compare anyway");
    CHECK(compare(before, before, {.allow_same = true}).has_value());

    after.device_type = "TPU v6e";
    after.devices = 2;
    after.dominant = "jit_g";
    const auto refused = compare(before, after, {});
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().message ==
          "not comparable: device-type: TPU v5p and TPU v6e; device-count: 1 and 2; dominant-program: jit_f and jit_g; "
          "pass --allow-mismatch to compare anyway");
    const Diff allowed = compared(before, after, {.allow_mismatch = true});
    REQUIRE(find_gate(allowed, "device-count") != nullptr);
    CHECK(find_gate(allowed, "device-count")->refuses);

    after = before;
    after.sha256 = "b";
    after.programs.emplace_back("jit_g");
    after.step_source = "steps-line";
    after.jax = "0.10.2";
    CHECK(find_gate(compared(before, after), "toolchain-changed") == nullptr);  // unknown on one side
    Profile older = before;
    older.jax = "0.10.0";
    older.peak_tflops = 918.0;
    after.peak_tflops = 946.7;
    older.options = "0801";
    after.options = "0802";
    older.kernels = {{"gdn.1", "jit_f", "%gdn.1 = f32[8]{0} custom-call(f32[8]{0} %a)", "", 5, {}, {}}};
    after.kernels = {{"gdn.4", "jit_f", "%gdn.4 = f32[16]{0} custom-call(f32[16]{0} %a)", "", 5, {}, {}}};
    const Diff warned = compared(older, after);
    for (const char* name : {"programs-changed", "kernel-shapes-changed", "toolchain-changed", "peak-changed",
                             "profile-options-changed", "step-source-changed"}) {
        CAPTURE(name);
        REQUIRE(find_gate(warned, name) != nullptr);
        CHECK_FALSE(find_gate(warned, name)->refuses);
    }
    CHECK(find_gate(warned, "toolchain-changed")->detail == "jax 0.10.0 and 0.10.2");
    CHECK(find_gate(warned, "peak-changed")->detail == "918 and 946.7 TFLOP/s");
    CHECK(find_gate(warned, "kernel-shapes-changed")->detail == "gdn");
}

TEST_CASE("trace diff: one factor for all operations is a warning") {
    const auto scaled = [](double factor, double last) {
        std::vector<OpSum> ops;
        for (const char* name : {"a.1", "b.1", "c.1", "d.1"}) {
            ops.push_back(make_op(name, std::llround(4e9 * (name[0] == 'd' ? last : factor))));
        }
        return make_profile(ops, k_steps);
    };
    CHECK(find_gate(compared(scaled(1, 1), scaled(1.1, 1.1)), "uniform-scaling") != nullptr);
    CHECK(find_gate(compared(scaled(1, 1), scaled(1.1, 1.2)), "uniform-scaling") == nullptr);
    CHECK(find_gate(compared(scaled(1, 1), scaled(1.01, 1.01)), "uniform-scaling") == nullptr);
}

TEST_CASE("trace diff: labels") {
    const auto with_class = [](const char* name, Ps self, const char* cls) {
        OpSum op = make_op(name, self);
        op.cls = cls;
        return op;
    };
    CHECK(has_label(compared({make_op("fusion.1", 400)}, {make_op("fusion.2", 300)}), "same-program"));
    CHECK_FALSE(has_label(compared({make_op("fusion.1", 400)}, {make_op("dot.2", 300)}), "same-program"));

    const Diff moved = compared({make_op("a.1", 400, "jit(f)/old")}, {make_op("a.1", 400, "jit(f)/new")});
    CHECK(has_label(moved, "namespace-only"));
    CHECK(moved.levels.text == 1);
    CHECK_FALSE(has_label(compared({make_op("a.1", 400)}, {make_op("a.1", 400)}), "namespace-only"));

    Profile before = make_profile({make_op("a.1", 400)}, k_steps);
    Profile after = make_profile({make_op("a.1", 400)}, k_steps);
    for (Ps& busy : after.step_busy) busy -= 100;
    for (Ps& gap : after.step_gap) gap += 100;
    CHECK(has_label(compared(before, after), "host-bound"));
    CHECK_FALSE(has_label(compared(after, before), "host-bound"));

    const Diff hidden = compared({make_op("a.1", 1600), with_class("w.1", 400, "wait")},
                                 {make_op("a.1", 800), with_class("w.1", 400, "wait")});
    CHECK(has_label(hidden, "off-critical-path"));
    CHECK_FALSE(has_label(hidden, "waiting"));
    const Diff waiting = compared({make_op("a.1", 1600), with_class("w.1", 400, "wait")},
                                  {make_op("a.1", 800), with_class("w.1", 1000, "wait")});
    CHECK(has_label(waiting, "waiting"));
    const Diff gained =
        compared(make_profile({make_op("a.1", 1600)}, k_steps), make_profile({make_op("a.1", 800)}, k_faster));
    CHECK_FALSE(has_label(gained, "off-critical-path"));
}

TEST_CASE("trace diff: impact follows the MFU and never the verdict") {
    Profile before = make_profile({make_op("a.1", 400)}, k_steps);
    Profile after = make_profile({make_op("a.2", 400)}, k_steps);
    CHECK(compared(before, after).impact.empty());
    before.mfu = 0.40;
    after.mfu = 0.44;
    CHECK(compared(before, after).impact == "target-hit");
    after.mfu = 0.42;
    CHECK(compared(before, after).impact.empty());
    after.mfu = 0.41;
    CHECK(compared(before, after).impact == "low-impact");
    after.hotspot = "b.1";
    CHECK(compared(before, after).impact.empty());
}

TEST_CASE("trace diff: kernels follow their operations, otherwise their canonical names") {
    OpSum first = make_op("gdn.1", 400, "fwd");
    OpSum second = make_op("gdn.2", 400, "bwd");
    Profile before = make_profile({first, second}, k_steps);
    first.name = "gdn.8";
    second.name = "gdn.7";
    Profile after = make_profile({first, second}, k_steps);
    before.kernels = {{"gdn.1", "jit_f", "", "scalar-bound", 10, 0.5, 3},
                      {"gdn.2", "jit_f", "", "", 20, {}, {}},
                      {"old.1", "jit_f", "", "", 1, {}, {}},
                      {"lone.4", "jit_f", "", "", 7, {}, {}}};
    after.kernels = {{"gdn.7", "jit_f", "", "", 21, {}, {}},
                     {"gdn.8", "jit_f", "", "", 11, {}, {}},
                     {"new.1", "jit_f", "", "", 2, {}, {}},
                     {"lone.9", "jit_f", "", "", 8, {}, {}}};
    const Diff diff = compared(before, after);
    REQUIRE(diff.kernels.size() == 5);
    CHECK(diff.kernels[0].name == "gdn.1 -> gdn.8");
    CHECK(diff.kernels[0].before_ps == 10);
    CHECK(diff.kernels[0].after_ps == 11);
    CHECK(diff.kernels[1].name == "gdn.2 -> gdn.7");
    CHECK(diff.kernels[2].name == "lone.4 -> lone.9");
    CHECK(to_text(diff_json(diff, 1)["kernels"][3]) ==
          R"({"name":"new.1","before_ps":null,"after_ps":2,"wait_share_before":null,"wait_share_after":null,)"
          R"("spill_before":null,"spill_after":null,"bound_before":null,"bound_after":null})");
    CHECK_FALSE(diff.kernels[4].after_ps.has_value());
}

TEST_CASE("trace baseline: a profile survives the way through JSON") {
    std::mt19937 random(5);
    Profile profile = random_profile(random, 2);
    profile.kernels = {{"gdn.1", "jit_f", "text", "scalar-bound", 10, 0.5, 3}, {"gdn.2", "jit_f", "", "", 20, {}, {}}};
    profile.peak_tflops = 459.0;
    profile.mfu = 0.4;
    profile.floor_ps = 12;
    profile.options = "0801";
    const auto text = parse_json(to_text(to_json(profile)), "baseline");
    REQUIRE(text.has_value());
    const auto read = profile_from_json(*text);
    REQUIRE(read.has_value());
    CHECK(to_text(to_json(*read)) == to_text(to_json(profile)));
    const Diff diff = compared(profile, *read, {.allow_same = true});
    CHECK(diff.total_delta_ps == 0);
    CHECK(diff.stats.shift_ps == 0);
}

TEST_CASE("trace baseline: a missing field, and one of another type, is named") {
    std::mt19937 random(5);
    Profile profile = random_profile(random, 2);
    profile.ops.resize(1);
    profile.kernels = {{"gdn.1", "jit_f", "text", "scalar-bound", 10, 0.5, 3}};
    const Json good = to_json(profile);
    const auto check_field = [](const Json& bad, const std::string& field) {
        CAPTURE(field);
        const auto read = profile_from_json(bad);
        REQUIRE_FALSE(read.has_value());
        CHECK(read.error().kind == ErrorKind::bad_input);
        const std::string& message = read.error().message;
        CHECK((message.starts_with("trace baseline: " + field + ":") ||
               message.starts_with("trace baseline: " + field + "[0]: expected an object")));
    };
    const auto damage = [&](const Json& object, const std::string& prefix,
                            const std::function<Json(const Json&)>& whole) {
        for (const auto& [key, value] : object.items()) {
            Json without = Json::object();
            for (const auto& [other, kept] : object.items()) {
                if (other != key) without[other] = kept;
            }
            check_field(whole(without), prefix + key);
            for (const Json& wrong :
                 {Json(true), Json::object(), Json(-1), Json(1e300), Json::array({Json(nullptr)})}) {
                Json changed = object;
                changed[key] = wrong;
                check_field(whole(changed), prefix + key);
            }
        }
    };
    damage(good, "", [](const Json& object) { return object; });
    for (const char* list : {"ops", "kernels"}) {
        damage(good[list][0], std::string(list) + "[0].", [&](const Json& item) {
            Json changed = good;
            changed[list][0] = item;
            return changed;
        });
    }
    for (const Json& wrong : {Json(), Json(3), Json("x"), Json::array()}) check_field(wrong, "schema");
    Json huge = good;
    huge["mean_step_ps"] = 3e18;
    check_field(huge, "mean_step_ps");
    huge = good;
    huge["ops"].push_back(good["ops"][0]);
    huge["ops"][0]["self_ps"] = 3'000'000'000'000'000'000;
    huge["ops"][1]["self_ps"] = 3'000'000'000'000'000'000;
    check_field(huge, "ops");
    huge["ops"][0]["self_ps"] = 18'000'000'000'000'000'000U;
    check_field(huge, "ops[0].self_ps");
}
