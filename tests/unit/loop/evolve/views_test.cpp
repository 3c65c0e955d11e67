#include "loop/evolve/views.h"

#include <cstdlib>
#include <fstream>

#include <doctest/doctest.h>

#include "core/json.h"
#include "loop/evolve/agent_dialogue.h"
#include "loop/evolve/state.h"
#include "support/temp_dir.h"

namespace gdnctl::loop::evolve {

namespace {

Json record(const char* type, Json facts) {
    facts["type"] = type;
    facts["ts"] = "2026-01-01T00:00:00Z";
    return facts;
}

// Attempt N of a run: proposed, committed, judged on target as `verdict` says.
std::vector<Json> attempt(int number, const std::string& verdict) {
    const Json gain = {{"est", .01}, {"lo", .008}, {"hi", .012}, {"n", 3}};
    const Json about = {{"attempt", number}};
    const auto with = [&](Json facts) {
        facts.update(about);
        return facts;
    };
    const std::string text = std::to_string(number);
    return {
        record("attempt_start", with({{"operator", "explore"}, {"lineage", number % 3}, {"parents", Json::array()}})),
        record("proposal", with({{"class", "ok"}, {"tokens", {{"in", 10}, {"out", 5}}}})),
        record("snapshot", with({{"commit", "c" + text}, {"mutable_key", "k" + text}, {"patch_id", "p" + text}})),
        record("eval_stage",
               with({{"stage", "target"},
                     {"eval_id", number + 1},
                     {"verdict", "pass"},
                     {"device_s", 1.0},
                     {"metrics", {{"verdict", "keep"}, {"champion", 0}, {"gate", gain}, {"fresh", gain}}}})),
        record("verdict", with({{"verdict", verdict}, {"gain", gain}, {"gate", gain}}))};
}

std::vector<Json> run_of(int attempts) {
    std::vector<Json> out = {
        record("run_start", {{"run", "r1"}, {"base", "b0"}, {"seed", 3}, {"config", {{"lineages", 3}}}}),
        record("eval_stage", {{"attempt", 0},
                              {"eval_id", 1},
                              {"stage", "noise"},
                              {"verdict", "pass"},
                              {"metrics", {{"sd", .001}, {"pairs", 9}}}})};
    for (int n = 1; n <= attempts; ++n) {
        for (Json& one : attempt(n, n % 5 == 1 ? "kept" : "rejected")) out.push_back(std::move(one));
    }
    return out;
}

State state_of(const std::vector<Json>& records) {
    State state;
    std::size_t line = 0;
    for (const Json& one : records) REQUIRE(state.apply(one, "journal", ++line));
    return state;
}

}  // namespace

TEST_CASE("experiment log: an entry in the template, whose numbers name their evaluations") {
    const State state = state_of(run_of(7));
    const std::string entry =
        experiment_entry(state, {1, "max-attempts", "Less time."}, *parse_iso8601("2026-02-13T10:00:00Z"));
    for (const char* part :
         {"## 2026-02-13 - Evolve run r1, attempts 1 to 7", "### Goal\nLess time.", "### Hypothesis",
          "### Action\n- Attempts 1 to 7: 2 kept, 5 rejected.", "### Outcome\n- Kept: attempt 6", "(eval 7)",
          "### Breakthrough / Insight\n- Noise: a pair has a standard deviation of 0.10 % (eval 1).",
          "### Next Step\nThe session ended with `max-attempts`."}) {
        CAPTURE(part);
        CHECK(entry.find(part) != std::string::npos);
    }
    CHECK(check_log(entry, {1, 2, 7}).problems.empty());
    CHECK(check_log(entry, {1, 2, 7}).numbers >= 4);
    CHECK(check_log(entry, {1, 2}).problems.size() >= 1);
    const std::string none = experiment_entry(state, {7, "stop-file", ""}, *parse_iso8601("2026-02-13T10:00:00Z"));
    CHECK(none.find("- No improvement. The standing best is attempt 6") != std::string::npos);
}

TEST_CASE("experiment log: a number without an evaluation, or with one that is not there") {
    const auto found = check_log(
        "It is 3 times, on 2026-02-13, attempt 4.\n"
        "From 12.5 ms to 10 ms, a gain of +20 % (eval 3).\n"
        "1.25x (eval 9)\n"
        "```\n5 %\n```\n"
        "then 7 us more\n",
        {3});
    CHECK(found.numbers == 5);
    REQUIRE(found.problems.size() == 2);
    CHECK(found.problems[0].line == 3);
    CHECK(found.problems[1].line == 7);
    CHECK(found.problems[1].number == "7 us");
}

TEST_CASE("evolve views: the gain that decided, in the words of the climb, with the attempt's technique") {
    auto records = run_of(0);
    auto one = attempt(1, "kept");
    one[1]["technique"] = "fuse\x1B[2J\u202E";
    one.back()["gain"] = {{"est", 1.03}, {"lo", -.62}, {"hi", 2.67}, {"n", 3}};
    one.back()["gate"] = {{"est", .9}, {"lo", .6}, {"hi", 1.2}, {"n", 5}};
    records.insert(records.end(), one.begin(), one.end());
    const RunView view{{}, state_of(records), false};
    const std::string gain = "2.46x faster (1.82-3.32x, 5 pairs)", technique = "fuse\\x1b[2J\\u202e";
    CHECK(log_text(view.state).find(technique + ": " + gain) != std::string::npos);
    CHECK(status_text(view).find("attempt 1 (" + technique + "), commit c1: 2.46x faster than the base\n") !=
          std::string::npos);
    CHECK(status_text(view).find("last step " + gain) != std::string::npos);
    CHECK(report_markdown(view).find("| " + technique + " | 1 | kept | " + gain + " |") != std::string::npos);
    CHECK(report_html(view).find(technique) != std::string::npos);
    CHECK(log_json(view.state)[1]["gain"]["lo"] == -.62);
    const std::string entry =
        experiment_entry(view.state, {1, "stop-file", ""}, *parse_iso8601("2026-02-13T10:00:00Z"));
    CHECK(entry.find("attempt 1 (" + technique + "), commit `c1`: " + gain + " (eval 2)") != std::string::npos);
    CHECK(check_log(entry, {1, 2}).problems.empty());
    CHECK(insights(view.state).find("(" + technique + "): " + gain) != std::string::npos);
}

TEST_CASE("status index: as the journal says, and void when the journal goes on") {
    const test::TempDir folder;
    auto journal = EvolveJournal::open(folder.path());
    REQUIRE(journal);
    const WallTime now = *parse_iso8601("2026-01-01T00:00:00Z");
    for (Json one : run_of(6)) {
        const std::string type = one["type"];
        one.erase("type");
        one.erase("ts");
        REQUIRE(journal->add(type, one, now));
    }
    auto index = read_index(folder.path(), false);
    REQUIRE(index);
    const RunView view{folder.path(), journal->state(), false};
    CHECK(index->status == gdnctl::to_text(status_json(view)));
    CHECK(index->text == status_text(view));
    CHECK(read_index(folder.path(), true)->status.find(R"("state":"running")") != std::string::npos);
    std::ofstream(folder.path() / "journal.jsonl", std::ios::app) << "{\"v\":1}\n";
    CHECK_FALSE(read_index(folder.path(), false));
    std::ofstream(folder.path() / "state.json") << "nothing";
    CHECK_FALSE(read_index(folder.path(), false));
}

// 10,000 with GDNCTL_SLOW=1: then what a fold takes is bounded too.
TEST_CASE("evolve state: many attempts fold fast, and their number changes no answer") {
    const bool slow = std::getenv("GDNCTL_SLOW") != nullptr;
    const int attempts = slow ? 10'000 : 300;
    const auto records = run_of(attempts);
    const auto begun = std::chrono::steady_clock::now();
    const State state = state_of(records);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    if (slow) CHECK(seconds < 20);  // with sanitizers; a release build takes a tenth
    CHECK(state.verdicts().at("kept") == attempts / 5);
    CHECK(state.find_same_content("k77", attempts) == 77);
    CHECK(state.find_same_content("k77", 77) == 0);
    Attempt like = state.at(78);
    like.number = attempts;
    CHECK(state.find_same_patch(like) == 78);
    like.parents = {1};
    CHECK(state.find_same_patch(like) == 0);
}

}  // namespace gdnctl::loop::evolve
