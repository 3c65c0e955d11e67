// The entry of an iteration in the running log.
#include "loop/memory/running_log.h"

#include <doctest/doctest.h>

#include "core/json.h"
#include "ledger_world.h"
#include "runlog/parse/log.h"
#include "runlog/records/record.h"
#include "validation_world.h"

namespace gdnctl::loop {

namespace {

const char* const k_empty_log =
    "# Log\n\n## Entry Template\n\n```markdown\n### Iteration <N> - x\n```\n\n## Iterations\n";
const char* const k_sha = "ccccccccccccccccccccccccccccccccccccccc1";

Json record_of(int iteration, LogFacts log = {"logs/", {"Batch them\n\nOne pass less.\nIt pays.\n\nGdnctl-X: y\n"}}) {
    const auto run = scripted_run(3);
    const auto measured = measured_run();
    LedgerFacts facts = facts_for_test(&measured);
    facts.report = {};
    facts.commits = {std::string(39, 'c') + std::to_string(iteration)};
    return log_record(records_of(run, iteration), facts, log);
}

LogSources sources(const std::string& text, const std::string& records = {}) {
    return {"log.md", text, records, text, text, records};
}

ComposedLog composed(const LogSources& from, const Json& record, bool landed = true) {
    const auto done = ok(compose_log(from, record, landed, WallTime{}));
    REQUIRE(done);
    return *done;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string by_hand(const char* commit) {
    return std::string("### Iteration 4 - mine\n\n- Date: 2026-03-10\n- Commit: ") + commit +
           "\n- Hypothesis: I think so\n- Change summary: all of it\n- Next hypothesis: more\n";
}

}  // namespace

TEST_CASE("gate log: words of the commits where the agent reported none, checks apart from profile and policy") {
    RunScript script(3);
    script.begin(1);
    script.attempt(1, 1, "ok", "collect");
    script.add(RecordType::candidate, 1, {{"head", k_sha}, {"diff", "change"}});
    script.add(RecordType::stage, 1,
               {{"name", "validation-tests"},
                {"verdict", "pass"},
                {"reason", "validation tests on local: verdict OK (job j-1)"},
                {"fact.verdict", "OK"},
                {"fact.job", "j-1"},
                {"fact.command", "gdnctl oracle verify gdn"},
                {"fact.log", "iteration-001-validation-tests.log"}});
    script.add(RecordType::stage, 1,
               {{"name", "validation-profile"},
                {"verdict", "pass"},
                {"fact.job", "j-2"},
                {"fact.log", "iteration-001-validation-profile.log"}});
    script.add(RecordType::stage, 1,
               {{"name", "performance"}, {"verdict", "pass"}, {"fact.gain", "1.05x faster (1.04-1.06x, 3 pairs)"}});
    script.end(1, "accepted", "keep", "", true);
    LedgerFacts facts = facts_for_test();
    facts.report = {};
    const Json record = log_record(records_of(script.records(), 1), facts,
                                   {"logs/", {"First\n", "Second\n\nWhy it\nworks.\n\nA: b\n"}});
    ok(runlog::check_record(record, "record"));
    CHECK(record["title"] == "Second");
    CHECK(record["idea"]["hypothesis"] == "Why it works.");
    CHECK(record["changes"] == Json({"First", "Second"}));
    CHECK(record["next_hypothesis"] == "none was stated");
    CHECK(record["decision"] == "accepted");
    REQUIRE(record["checks"].size() == 1);
    CHECK(record["checks"][0]["verdict"] == "OK");
    CHECK(record["checks"][0]["job_id"] == "j-1");
    CHECK(record["checks"][0]["evidence"] == "logs/iteration-001-validation-tests.log");
    REQUIRE(record["profiles"].size() == 1);
    CHECK(record["profiles"][0]["job_id"] == "j-2");
    CHECK(record["profiles"][0]["output"] == "logs/iteration-001-validation-profile.log");
    CHECK(record["interpretation"].empty());
    // What it calls its idea for the ledger is the agent's alone.
    CHECK(iteration_record(records_of(script.records(), 1), facts)["title"].is_null());
}

TEST_CASE(
    "gate log: what a profile was asked for and what took effect are in its record, where they differ, in the entry") {
    RunScript script(3);
    script.begin(1);
    script.attempt(1, 1, "ok", "collect");
    script.add(RecordType::candidate, 1, {{"head", k_sha}, {"diff", "change"}});
    script.add(RecordType::stage, 1,
               {{"name", "validation-profile"},
                {"verdict", "pass"},
                {"fact.job", "j-2"},
                {"fact.requested.ce_implementation", "pallas_tpu"},
                {"fact.effective.ce_implementation", "pallas_tpu"},
                {"fact.requested.gdn_layer_fraction", "0.750000"},
                {"fact.effective.gdn_layer_fraction", "0.833333"},
                {"fact.effective.gdn_block_size", "6"}});
    script.end(1, "accepted", "keep", "", true);
    const Json record = log_record(records_of(script.records(), 1), facts_for_test(), {"logs/", {"First\n"}});
    ok(runlog::check_record(record, "record"));
    REQUIRE(record["profiles"].size() == 1);
    CHECK(record["profiles"][0]["requested"] ==
          Json({{"ce_implementation", "pallas_tpu"}, {"gdn_layer_fraction", 0.75}}));
    CHECK(record["profiles"][0]["effective"] ==
          Json({{"ce_implementation", "pallas_tpu"}, {"gdn_block_size", 6}, {"gdn_layer_fraction", 0.833333}}));
    const std::string entry = composed(sources(k_empty_log), record).text;
    CHECK(has(entry, "  - Setting: `gdn_layer_fraction`, requested `0.75`, effective `0.833333`\n"));
    CHECK_FALSE(has(entry, "ce_implementation"));
    CHECK_FALSE(has(entry, "gdn_block_size"));
}

TEST_CASE("gate log: outcomes in the words of a log") {
    const auto decision = [](const char* outcome, const char* verdict, const char* command = "") {
        RunScript script(1);
        script.begin(1);
        script.attempt(1, 1, "ok", "collect");
        script.add(RecordType::candidate, 1, {{"head", k_sha}, {"diff", "change"}});
        script.add(RecordType::stage, 1,
                   {{"name", "validation-tests"}, {"verdict", "fail"}, {"fact.command", command}});
        script.end(1, outcome, verdict, "why");
        return log_record(records_of(script.records(), 1), facts_for_test(), {});
    };
    CHECK(decision("test-fail", "reject")["decision"] == "rejected");
    CHECK(decision("test-fail", "reject")["commit_status"] == "none");
    CHECK(decision("no-op", "none")["decision"] == "none");
    CHECK(decision("agent-error", "park")["decision"] == "none");
    const Json blocked = decision("infra", "park", "gdnctl ray-test");
    CHECK(blocked["decision"] == "infra-blocked");
    CHECK(blocked["infra"][0]["command"] == "gdnctl ray-test");
    CHECK(blocked["commit_status"] == "none");
    CHECK(blocked["commit_reason"] == "kept at refs/gdnctl/r1/iter-001/head");
    CHECK(blocked["commits"].empty());
}

TEST_CASE("gate log: an entry at the end with the next number, once, however often it is asked for") {
    const ComposedLog first = composed(sources(k_empty_log), record_of(1));
    CHECK(first.iteration == "1");
    CHECK(has(first.text, "### Iteration 1 - Batch them\n"));
    CHECK(has(first.text, "- Commit: " + std::string(k_sha)));
    CHECK(has(first.text, "- Codex loop iteration: 1 / 10\n"));
    CHECK(has(first.text, "- Hypothesis: One pass less. It pays.\n"));
    CHECK(has(first.text, "`4.398 ms -> 4.2 ms`"));
    const ComposedLog again = composed(sources(first.text, first.records), record_of(1));
    CHECK(again.text == first.text);
    CHECK(again.records == first.records);
    CHECK(again.id == first.id);
    const ComposedLog second = composed(sources(first.text, first.records), record_of(2), false);
    CHECK(second.iteration == "2");
    CHECK(has(second.text, "none (failed attempt, kept at refs/gdnctl/r1/iter-002/head)"));
    CHECK(ok(runlog::parse_document(second.text)).entries.size() == 2);
    // A torn last line of the records is dropped, not continued.
    const ComposedLog torn = composed(sources(first.text, first.records + "{\"schema\""), record_of(2), false);
    CHECK(torn.records == second.records);
}

TEST_CASE("gate log: an entry that the agent wrote gets its commit, and nothing else changes (defect: older entry)") {
    for (const char* waiting : {"this commit", "(pending)", "`this commit`"}) {
        std::string old = k_empty_log + std::string("\n### Iteration 3 - old\n\n- Commit: (pending)\n\n");
        LogSources from = sources(old);
        from.head_text = from.text = old + by_hand(waiting);
        const ComposedLog done = composed(from, record_of(1));
        CHECK(done.stamped);
        CHECK(done.iteration == "4");
        CHECK(done.text == old + by_hand(k_sha));
        CHECK(done.records.empty());
        // Without an entry of its own, an older one is none of its business.
        CHECK(has(composed(sources(old), record_of(1)).text, "- Commit: (pending)\n"));
        // Somebody's decision stays.
        from.head_text = from.text = old + by_hand("none (failed attempt)");
        CHECK_FALSE(ok(compose_log(from, record_of(1), true, WallTime{})));
    }
}

TEST_CASE("gate log: an older entry whose title the agent mended is not its own (defect: older entry)") {
    const std::string old = k_empty_log + std::string("\n") + by_hand("(pending)");
    std::string mended = old;
    mended.replace(mended.find("- mine"), 6, "- ours");
    LogSources from = sources(old);
    from.text = from.head_text = mended;
    const ComposedLog done = composed(from, record_of(1));
    CHECK_FALSE(done.stamped);
    CHECK(has(done.text, "### Iteration 4 - ours\n"));
    CHECK(has(done.text, "- Commit: (pending)\n"));
    CHECK(has(done.text, "### Iteration 5 - Batch them\n"));
}

TEST_CASE("gate log: an entry that the agent made of a record gets what was measured") {
    const LogSources before = sources(k_empty_log);
    Json agents = runlog::empty_record("x", {}, WallTime{});
    agents["title"] = "mine";
    agents["commit_status"] = "self";
    agents["idea"]["hypothesis"] = "I think so";
    agents["metrics"]["step_duration_ms"] = {{"before", 2.0}, {"after", 1.0}};
    const ComposedLog written = composed(before, agents);
    LogSources after = before;
    after.text = after.head_text = written.text;
    after.records = after.head_records = written.records;
    const ComposedLog done = composed(after, record_of(1));
    CHECK(done.stamped);
    CHECK(ok(runlog::parse_document(done.text)).entries.size() == 1);
    CHECK(has(done.text, "### Iteration 1 - mine\n"));
    CHECK(has(done.text, "- Hypothesis: I think so\n"));
    CHECK(has(done.text, "- Commit: " + std::string(k_sha)));
    CHECK(has(done.text, "- Decision: promoted"));
    CHECK(has(done.text, "`4.398 ms -> 4.2 ms`"));
    CHECK_FALSE(has(done.text, "- step duration"));
    CHECK(done.records.starts_with(written.records));
    const ComposedLog again =
        composed({"log.md", done.text, done.records, k_empty_log, written.text, written.records}, record_of(1));
    CHECK(again.text == done.text);
}

TEST_CASE("gate log: what an agent wrote of its idea survives the refusal of its commit (defect 6)") {
    LogSources from = sources(k_empty_log);
    from.head_text = k_empty_log + std::string("\n") + by_hand("this commit");
    const ComposedLog done = composed(from, record_of(2), false);
    CHECK(has(done.text, "### Iteration 1 - mine\n"));
    CHECK(has(done.text, "- Hypothesis: I think so\n"));
    CHECK(has(done.text, "- Change summary: all of it\n"));
    CHECK(has(done.text, "- Next hypothesis: more\n"));
    CHECK(has(done.text, "- Decision: rejected (case t_long: WRONG)\n"));
    CHECK_FALSE(has(done.text, "this commit"));
}

TEST_CASE("gate log: a log that hides its end, or records that are none, are refused") {
    LogSources from = sources(std::string("# Log\n```\n"));
    CHECK(compose_log(from, record_of(1), true, WallTime{}).error().kind == ErrorKind::bad_input);
    from = sources(k_empty_log, "nonsense\n");
    CHECK(compose_log(from, record_of(1), true, WallTime{}).error().kind == ErrorKind::bad_input);
    // An experiment log gets its own kind of entry.
    CHECK(has(composed(sources("# Experiment Log\n"), record_of(1)).text, "- Batch them\n"));
}

TEST_CASE("gate log: a candidate after which no entry could be added is refused, with what is wrong") {
    StageWorld world;
    const GitCheckout repository = world.open();
    // The files of a commit on top of `from`; what the stage says of it.
    const auto judge = [&](const std::string& from, const std::string& edit, std::string* head = nullptr) {
        world.sh("git checkout -q --detach " + from + " && " + edit);
        world.where.sha = from;
        world.candidate.head = world.commit("candidate");
        world.candidate.files = ok(repository.diff(from, world.candidate.head));
        if (head != nullptr) *head = world.candidate.head;
        return ok(make_log_stage("log.md", repository)->run(world.context()));
    };
    const auto refused = [&](const std::string& from, const std::string& edit, const std::string& words) {
        CAPTURE(edit);
        const StageResult result = judge(from, edit);
        CHECK(result.verdict == StageVerdict::fail);
        CHECK(result.outcome == Outcome::rejected);
        CHECK(has(result.reason, words));
    };
    std::string with_records;
    CHECK(judge(world.base, "echo x >kernel.c").verdict == StageVerdict::skip);
    CHECK(judge(world.base, "echo words >>log.md; printf '' >log.records.jsonl", &with_records).verdict ==
          StageVerdict::pass);
    refused(world.base, "echo '```' >>log.md", "log.md: the code fence that line 2 opens is never closed");
    refused(world.base, "git rm -q log.md", "log.md was deleted");
    refused(world.base, "echo nonsense >log.records.jsonl", "log.records.jsonl: record 1");
    refused(with_records, "rm log.records.jsonl", "log.records.jsonl was deleted");
    // What was wrong before is not the candidate's fault; it may be about to mend it.
    std::string broken;
    judge(world.base, "echo '```' >>log.md", &broken);
    CHECK(judge(broken, "echo more >>log.md").verdict == StageVerdict::pass);
    CHECK(judge(broken, "echo '# Log' >log.md").verdict == StageVerdict::pass);

    const auto stage = make_log_stage("log.md", repository);
    CHECK(stage->wants(DiffClass::log_only));
    CHECK_FALSE(stage->wants(DiffClass::no_op));
    CHECK(stage->policy() == Policy::count_failure);
}

TEST_CASE("gate log: a candidate's log that nobody can read does not keep its refusal from getting an entry") {
    LogSources from = sources(k_empty_log);
    from.head_text = std::string(runlog::k_max_line_bytes + 1, 'x');
    from.head_records = "nonsense\n";
    const ComposedLog done = composed(from, record_of(2), false);
    CHECK(ok(runlog::parse_document(done.text)).entries.size() == 1);
    CHECK(check_log("log.md", from.head_text, "").error().kind == ErrorKind::usage);
    ok(check_log("log.md", done.text, done.records));
}

}  // namespace gdnctl::loop
