// One value says what was compared with what, and how much faster it is.
#include "runlog/records/gain.h"

#include <cmath>
#include <functional>

#include <doctest/doctest.h>

#include "core/json.h"
#include "runlog/history/summary.h"
#include "runlog/records/record.h"
#include "runlog/render/render.h"

namespace gdnctl::runlog {

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Gain three_pairs() {
    Gain gain;
    gain.metric = "gdn/forward_ms";
    gain.unit = "ms";
    gain.lower_is_better = true;
    gain.before_runs = {8.0, 8.2, 9.0};
    gain.after_runs = {4.0, 3.6, 3.0};
    gain.before = 8.2;
    gain.after = 3.6;
    gain.pairs = 3;
    gain.factor = std::cbrt(8.0 / 4.0 * (8.2 / 3.6) * (9.0 / 3.0));
    gain.low = 1.25;
    gain.high = 4.1;
    gain.lone_baseline = 16.9;
    return gain;
}

Json record_of(const Gain& gain) {
    Json record = empty_record("20260310T165307Z-7", {7, ""}, WallTime{});
    record["title"] = "Batch them";
    record["outcome"] = "accepted";
    record["decision"] = "promoted";
    record["comparison"]["kind"] = "champion";
    record["extra_metrics"][gain.metric] = {{"before", *gain.before}, {"after", *gain.after}};
    record["gain"] = gain_json(gain);
    return record;
}

// As the version before this one wrote it: `before` is what the champion had recorded at another time.
Json old_record(bool paired) {
    Json record = record_of(three_pairs());
    record.erase("gain");
    Json& value = record["extra_metrics"]["gdn/forward_ms"];
    value = {{"before", 16.9}, {"after", 3.6}};
    if (paired) {
        value["gain_pct"] = 126.55;
        value["gain_bounds_pct"] = {25.0, 310.0};
        value["pairs"] = 3;
    }
    return record;
}

}  // namespace

TEST_CASE("gain: no text has more digits than the noise carries, and the two values have the ratio that decided") {
    Gain noisy;
    noisy.unit = "ms";
    noisy.lower_is_better = true;
    noisy.before_runs = {60.1, 74.557, 140.2};
    noisy.after_runs = {111.98, 70.3, 122.4};
    noisy.before = mean_of_runs(noisy.before_runs);
    noisy.after = mean_of_runs(noisy.after_runs);
    noisy.pairs = 3;
    noisy.factor = *noisy.before / *noisy.after;
    noisy.low = .25;
    noisy.high = 3.02;
    CHECK(whole_gain_text(noisy) == "86 ms -> 99 ms, 1.2x slower (0.3-4x, 3 pairs)");
    CHECK(percent_text(noisy) == "-13");
    noisy.pairs = 0;
    noisy.low = noisy.high = std::nullopt;
    CHECK(percent_text(noisy) == "-13.29");
    CHECK_FALSE(mean_of_runs({}));
    CHECK_FALSE(mean_of_runs({1.0, 0.0}));
}

TEST_CASE("gain: words, bounds in the direction that they say, number of pairs") {
    Gain gain = three_pairs();
    CHECK(gain_text(gain) == "2.4x faster (1.2-4.1x, 3 pairs)");
    CHECK(compared_text(gain) == "8.2 ms -> 3.6 ms");
    CHECK(whole_gain_text(gain) == "8.2 ms -> 3.6 ms, 2.4x faster (1.2-4.1x, 3 pairs)");
    CHECK(speed_text(gain) == "2.4x faster");
    CHECK(percent_text(gain) == "+139");
    gain.factor = 1 / 1.3;
    gain.low = 1 / 1.5;
    gain.high = 1 / 1.1;
    gain.pairs = 9;
    CHECK(gain_text(gain) == "1.3x slower (1.1-1.5x, 9 pairs)");
    gain.factor = 1.0053;
    gain.low = 0.998;
    gain.high = 1.0127;
    CHECK(gain_text(gain) == "1.0053x faster (0.998-1.0127x, 9 pairs)");
    gain.factor = 1.0;
    CHECK(gain_text(gain) == "as fast (0.998-1.0127x, 9 pairs)");
    gain.pairs = 0;
    gain.factor = 4.694;
    CHECK(gain_text(gain) == "4.69x faster (unpaired)");
    gain.factor.reset();
    CHECK(gain_text(gain).empty());
    gain.after.reset();
    CHECK(compared_text(gain) == "8.2 ms");
}

TEST_CASE("gain: the sign is that of the speed, whichever way the metric goes, fewer bytes are not faster") {
    CHECK(*speed_factor(8.0, 4.0, true) == 2.0);
    CHECK(*speed_factor(4.0, 8.0, false) == 2.0);
    CHECK_FALSE(speed_factor(0.0, 4.0, true));
    CHECK_FALSE(speed_factor(4.0, -1.0, false));
    CHECK_FALSE(speed_factor(std::nullopt, 4.0, true));
    CHECK(factor_percent(1.25) == doctest::Approx(25));
    Gain gain;
    gain.unit = "MiB";
    gain.lower_is_better = true;
    gain.factor = 2.0;
    CHECK(gain_text(gain) == "2x better (unpaired)");
    gain.factor = 0.5;
    CHECK(gain_text(gain) == "2x worse (unpaired)");
    gain.lower_is_better = false;
    gain.unit = "token/s";
    CHECK(gain_text(gain) == "2x slower (unpaired)");
}

TEST_CASE("gain: what is written is read back, and nothing is 0 that is not known") {
    const Gain gain = three_pairs();
    CHECK(*parse_gain(gain_json(gain)) == gain);
    Gain little;
    little.metric = "score";
    const Json json = gain_json(little);
    CHECK(json["before"].is_null());
    CHECK(json["factor"].is_null());
    CHECK(json["lone_baseline"].is_null());
    CHECK(*parse_gain(json) == little);
    CHECK_FALSE(parse_gain(Json()));
    CHECK_FALSE(parse_gain(Json::object()));
    CHECK_FALSE(parse_gain(Json{{"metric", 3}}));
}

TEST_CASE("gain: entry, summary and context say the same, and the lone baseline is beside it") {
    const Gain gain = three_pairs();
    const Json record = record_of(gain);
    REQUIRE(check_record(record, "record"));
    const std::string words = gain_text(gain);
    const std::string entry = render_entry(record);
    CHECK(has(entry, "- Gain over the champion: " + words + "\n"));
    CHECK(has(entry, "`8.2 ms -> 3.6 ms`"));
    CHECK(has(entry, "- Lone baseline: 16.9 ms, "));
    const Objective objective{"gdn/forward_ms", true};
    const Json summary = summarize({record}, objective);
    CHECK(has(summary_text(summary), words));
    CHECK(summary["champions"][0]["gain"] == record["gain"]);
    const std::string context = context_pack({record}, objective, 8192);
    CHECK(has(context, words));
    for (const std::string& text : {entry, summary_text(summary), context}) {
        CHECK_FALSE(has(text, "%"));
        CHECK_FALSE(has(text, "unpaired"));
    }
    CHECK(gain_fault(record).empty());
}

TEST_CASE("gain: records of earlier versions are read, and what is unpaired in them is said") {
    const Objective objective{"gdn/forward_ms", true};
    const Json single = old_record(false);
    CHECK(has(context_pack({single}, objective, 8192), "16.9 ms -> 3.6 ms, 4.69x faster (unpaired)"));
    CHECK(has(summary_text(summarize({single}, objective)), "4.69x faster (unpaired)"));
    CHECK(gain_fault(single).empty());
    const Json paired = old_record(true);
    const std::string context = context_pack({paired}, objective, 8192);
    CHECK(has(context, "16.9 ms -> 3.6 ms (these two are unpaired), 2.3x faster (1.2-4.1x, 3 pairs)"));
    // Their entries stay as they were rendered.
    CHECK(has(render_entry(single), "`16.900000 ms -> 3.600000 ms`"));
    CHECK_FALSE(has(render_entry(paired), "Gain over"));
}

TEST_CASE("gain: one that does not follow from the recorded values is found") {
    CHECK(has(gain_fault(old_record(true)), "2.3x faster (1.2-4.1x, 3 pairs), but 16.9 ms -> 3.6 ms is 4.69x faster"));
    const auto fault = [](auto change) {
        Json record = record_of(three_pairs());
        change(record);
        return gain_fault(record);
    };
    CHECK(fault([](Json&) {}).empty());
    CHECK(has(fault([](Json& r) { r["gain"]["factor"] = 3.1; }), "the record says 3.1x faster"));
    CHECK(has(fault([](Json& r) { r["gain"]["after"] = 3.0; }), "after is 3.6 ms in the record"));
    CHECK(has(fault([](Json& r) { r["extra_metrics"]["gdn/forward_ms"]["before"] = 16.9; }), "before is 16.9 ms"));
    CHECK(has(fault([](Json& r) {
                  r["gain"]["after"] = 3.0;
                  r["extra_metrics"]["gdn/forward_ms"]["after"] = 3.0;
              }),
              "the mean of its runs is 3.5"));
    CHECK(has(fault([](Json& r) { r["gain"]["before_runs"].erase(0); }), "with 2 and 3 runs"));
    CHECK(has(fault([](Json& r) { r["gain"]["better"] = "higher"; }), "the record says 2.4x"));
    CHECK(has(fault([](Json& r) { r["extra_metrics"] = Json::object(); }), "no value"));
    // Without its runs a gain of pairs is near the ratio of the medians.
    const auto without_runs = [&](double factor, double low, double high, int pairs) {
        return fault([&](Json& r) {
            r["gain"]["before_runs"] = r["gain"]["after_runs"] = Json::array();
            r["gain"]["factor"] = factor;
            r["gain"]["low"] = low;
            r["gain"]["high"] = high;
            r["gain"]["pairs"] = pairs;
        });
    };
    CHECK(without_runs(2.3, 1.9, 2.7, 3).empty());
    CHECK_FALSE(without_runs(1.3, 1.2, 1.4, 3).empty());
    CHECK_FALSE(without_runs(0.44, 0.4, 0.5, 9).empty());
    // Unpaired it is the ratio.
    Gain single = three_pairs();
    single.pairs = 0;
    single.before_runs = single.after_runs = {};
    single.factor = 8.2 / 3.6;
    CHECK(gain_fault(record_of(single)).empty());
    single.factor = 2.3;
    CHECK(has(gain_fault(record_of(single)), "but 8.2 ms -> 3.6 ms is 2.28x faster (unpaired)"));
    Json stated = old_record(false);
    stated["extra_metrics"]["gdn/forward_ms"]["gain_pct"] = 78.66;
    CHECK_FALSE(gain_fault(stated).empty());
}

TEST_CASE("gain: whatever contradicts it in the record is a fault") {
    const auto fault = [](const std::function<void(Json&)>& change) {
        Json record = record_of(three_pairs());
        Json& value = record["extra_metrics"]["gdn/forward_ms"];
        value["gain_pct"] = factor_percent(*three_pairs().factor);
        value["gain_bounds_pct"] = {25.0, 310.0};
        value["pairs"] = 3;
        value["unit"] = "ms";
        change(record);
        return gain_fault(record);
    };
    CHECK(fault([](Json&) {}).empty());
    const auto copy = [&](const char* field, const Json& content) {
        return fault([&](Json& record) { record["extra_metrics"]["gdn/forward_ms"][field] = content; });
    };
    CHECK(has(copy("gain_pct", 300.0), "`gain_pct` of gdn/forward_ms is 300 %, but the gain says 139.09 %"));
    CHECK(has(copy("gain_pct", -58.2), "`gain_pct` of gdn/forward_ms is -58.2 %"));
    CHECK(has(copy("gain_pct", "139 %"), "`gain_pct` of gdn/forward_ms is not a number"));
    CHECK(has(copy("gain_bounds_pct", {25.0, 40.0}), "`gain_bounds_pct` of gdn/forward_ms is 40 %"));
    CHECK(has(copy("pairs", 9), "gdn/forward_ms has 9 pairs, but the gain has 3"));
    CHECK(has(copy("unit", "s"), "gdn/forward_ms is in s, but the gain is in ms"));
    const auto own = [&](const char* field, const Json& content) {
        return fault([&](Json& record) { record["gain"][field] = content; });
    };
    CHECK(own("factor", "2.39") == "the gain's `factor` is not a number");
    CHECK(own("before_runs", {8.0, "8.2", 9.0}) == "the gain's `before_runs` is not a list of numbers");
    CHECK(own("factor", 0) == "the gain's factor is 0; a factor is above 0");
    CHECK(own("factor", -2.0) == "the gain's factor is -2; a factor is above 0");
    CHECK(own("factor", nullptr) == "the gain has no factor, but 8.2 ms -> 3.6 ms is 2.28x faster (unpaired)");
    CHECK(own("low", 3.0) == "the gain's factor 2.3909 is not between its bounds, 3 and 4.1");
    CHECK(own("high", 2.0) == "the gain's factor 2.3909 is not between its bounds, 1.25 and 2");
    CHECK(own("high", nullptr) == "the gain has only one of its two bounds");
}

TEST_CASE("summary and context: a gain is shown whatever the target names, with its unit") {
    Gain gain = three_pairs();
    gain.metric = "x/time";
    const Json record = record_of(gain);
    Json baseline = record_of(gain);
    baseline["iteration"] = 6;
    baseline["id"] = "20260310T165307Z-6";
    baseline["decision"] = "baseline";
    baseline["gain"] = nullptr;
    baseline["extra_metrics"]["x/time"] = {{"before", nullptr}, {"after", 90.0408631903211}, {"source", "profile"}};
    const std::vector<Json> history = {baseline, record};
    for (const Objective& wanted : {Objective{}, Objective{"throughput/mfu", false}, Objective{"x/time", true}}) {
        const Objective chosen = choose_objective(history, wanted);
        CHECK(chosen.key == "x/time");
        CHECK(chosen.lower_is_better);
        const std::string summary = summary_text(summarize(history, chosen));
        CHECK(has(summary, "8.2 ms -> 3.6 ms, 2.4x faster (1.2-4.1x, 3 pairs)"));
        CHECK(has(summary, "90.041 ms"));
        const std::string context = context_pack(history, chosen, 8192);
        CHECK(has(context, "x/time 8.2 ms -> 3.6 ms, 2.4x faster (1.2-4.1x, 3 pairs)"));
        CHECK(has(context, "x/time 90.041 ms"));
    }
    // A gain of another metric than the one that counts.
    Json mfu = record_of(gain);
    mfu["gain"] = nullptr;
    mfu["extra_metrics"] = Json::object();
    mfu["iteration"] = 8;
    mfu["id"] = "20260310T165307Z-8";
    mfu["metrics"]["throughput/mfu"] = {{"before", 6.026160}, {"after", 6.115848}};
    const std::vector<Json> mixed = {record, mfu};
    const Objective chosen = choose_objective(mixed, {"throughput/mfu", false});
    CHECK(chosen.key == "throughput/mfu");
    CHECK(has(summary_text(summarize(mixed, chosen)), "x/time 8.2 ms -> 3.6 ms, 2.4x faster"));
    CHECK(has(context_pack(mixed, chosen, 8192), "throughput/mfu 6.0262 % -> 6.1158 %"));
}

TEST_CASE("context: numbers as people read them, one of something in the singular") {
    Json record = record_of(three_pairs());
    record["metrics"] = {{"while_ms", {{"before", 8.886552123}, {"after", 8.978471}}},
                         {"gap_explained_by_train_path", {{"before", nullptr}, {"after", 0.386123456}}},
                         {"throughput/tokens_per_second", {{"before", nullptr}, {"after", 198123.456}}},
                         {"throughput/duration", {{"before", nullptr}, {"after", 0.165612345}}}};
    record["checks"] = Json::array({{{"passed", 24}, {"warnings", 1}}, {{"passed", 3}, {"warnings", 11}}});
    const std::string text = context_pack({record}, {"gdn/forward_ms", true}, 8192);
    CHECK(has(text, "while: `8.8866 ms -> 8.9785 ms`"));
    CHECK(has(text, "`38.612 %`"));
    CHECK(has(text, "`198120 tokens/s`"));
    CHECK(has(text, "`0.16561 s`"));
    CHECK(has(text, "24 passed, 1 warning\n"));
    CHECK(has(text, "3 passed, 11 warnings\n"));
    CHECK(has(render_entry(record), "while: `8.886552123 ms -> 8.978471 ms`"));
}

TEST_CASE("entry: a baseline that a loop measured has its unit and no more digits than other entries") {
    Json record = record_of(three_pairs());
    record["gain"] = nullptr;
    const Json value = {{"before", nullptr}, {"after", 90.0408631903211}, {"source", "profile"}, {"unit", "ms"}};
    record["extra_metrics"] = {{"x/time", value}};
    record["metrics"] = {{"step_duration_ms", value}};
    const std::string text = render_entry(record);
    CHECK(has(text, "  - x/time: `90.041 ms`\n"));
    CHECK(has(text, "  - step duration: `90.040863 ms`\n"));
    CHECK(record["extra_metrics"]["x/time"]["after"] == 90.0408631903211);
}

}  // namespace gdnctl::runlog
