// What happens to the agent's work: its candidate passes the stages and lands, or is kept on its ref.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/json_fields.h"
#include "core/log.h"
#include "core/log_timed.h"
#include "core/text.h"
#include "loop/engine/engine.h"
#include "loop/engine/messages.h"
#include "platform/fs.h"
#include "platform/signals.h"
#include "runlog/records/words.h"

namespace gdnctl::loop {

namespace {

constexpr int k_no_new_commit = 3;
constexpr int k_iteration_error = 2;

// Records of the current candidate: one that followed a moved branch starts over.
std::span<const Record> since_candidate(std::span<const Record> open) {
    const Record* candidate = last_of(open, RecordType::candidate);
    return candidate == nullptr ? open : open.subspan(static_cast<std::size_t>(candidate - open.data()));
}

const Record* stage_record(std::span<const Record> records, std::string_view name) {
    const auto at = std::find_if(records.begin(), records.end(), [&](const Record& record) {
        return record.type == RecordType::stage && record.word("name") == name;
    });
    return at == records.end() ? nullptr : &*at;
}

// The title in the agent's report; empty: none. The rest of the report does not concern the engine.
std::string reported_title(const std::filesystem::path& report) {
    constexpr std::size_t k_report_limit = std::size_t{64} << 10;
    constexpr std::size_t k_longest_title = 200;
    const auto text = read_file_if_exists(report, k_report_limit);
    const auto json = text && *text ? parse_json(**text, "report") : Result<Json>(Json());
    if (!json || !json->is_object()) return {};
    std::string title(text::trim(json::text(*json, "title")));
    std::replace(title.begin(), title.end(), '\n', ' ');
    return text::visible(title.substr(0, k_longest_title));
}

}  // namespace

Status Engine::collect(int iteration) {
    GDNCTL_TRY_ASSIGN(Candidate candidate, m_parts.git.collect(iteration, first_base()));
    if (candidate.leftovers && !candidate.leftovers->commit.empty()) {
        const auto& patch = candidate.leftovers->patch;
        log::info("not committed: {} file(s), kept as {}{}", candidate.leftovers->paths.size(),
                  m_parts.git.ref(iteration, "leftovers"), patch.empty() ? "" : " and " + patch.string());
    }
    if (!candidate.protected_changes.empty()) {
        GDNCTL_TRY(atomic_replace(m_parts.artefacts.path(iteration, "protected.diff"), candidate.protected_diff, 0600));
    }
    std::map<std::string, std::int64_t> counts = {{"commits", static_cast<std::int64_t>(candidate.commits.size())},
                                                  {"files", static_cast<std::int64_t>(candidate.files.size())}};
    auto facts = facts_of(candidate);
    if (std::string title = reported_title(m_parts.artefacts.path(iteration, "report.json")); !title.empty()) {
        facts["title"] = std::move(title);
    }
    GDNCTL_TRY(add(RecordType::candidate, iteration, std::move(facts), std::move(counts)));
    m_candidate = std::move(candidate);
    return {};
}

// After a kill it is read from the refs, and what they lack from the record.
Result<Candidate> Engine::candidate(int iteration) {
    if (!m_candidate) {
        GDNCTL_TRY_ASSIGN(m_candidate, m_parts.git.recall(iteration, base()));
        const Record* record = last_of(open(), RecordType::candidate);
        if (!record->word("broken").empty()) m_candidate->broken = record->word("broken");
    }
    return *m_candidate;
}

Engine::Decision Engine::failed(Outcome outcome, Policy policy, std::string code, std::string reason, int rc) const {
    const OutcomeRule rule = rule_of(outcome);
    Decision decision;
    decision.outcome = outcome;
    decision.verdict = rule.fate == Fate::rejected ? "reject" : rule.fate == Fate::none ? "none" : "park";
    decision.code = std::move(code);
    decision.reason = std::move(reason);
    decision.rc = rc == 0 ? 1 : rc;
    decision.counted = policy != Policy::go_on && rule.counts != Counts::no;
    const std::int64_t failures = state().failures + (decision.counted ? 1 : 0);
    decision.stops =
        policy == Policy::fail || (decision.counted && too_many_failures(failures, m_settings.options.max_failures));
    return decision;
}

void Engine::say_raised(int iteration, std::string_view what, Policy policy, const Decision& decision) {
    log::write_as_it_is(log::Level::error, fmt::format("{}{}", message::iteration_raised(iteration, what),
                                                       message::going_on(policy, decision.stops)));
}

std::optional<Engine::Decision> Engine::without_stages(int iteration, const Candidate& candidate) const {
    const LoopOptions& options = m_settings.options;
    if (!candidate.broken.empty()) {
        const Policy policy = options.iteration_error_policy;
        Decision decision = failed(Outcome::error, policy, "iteration-error", candidate.broken, k_iteration_error);
        say_raised(iteration, candidate.broken, policy, decision);
        return decision;
    }
    if (!candidate.protected_changes.empty()) {
        const std::string names = text::join(candidate.protected_changes, ", ");
        const Policy policy = m_settings.protected_policy;
        Decision decision = failed(Outcome::rejected, policy, "protected", "protected files were changed: " + names,
                                   static_cast<int>(ExitCode::conflict));
        log::error("{}.{}", decision.reason, message::going_on(policy, decision.stops));
        log::info("the change: {}", m_parts.artefacts.path(iteration, "protected.diff").string());
        return decision;
    }
    if (!candidate.bare_links.empty()) {
        const std::string reason = fmt::format(
            "{} was committed as a link to a nested repository that .gitmodules does not name; other checkouts would "
            "lack its files",
            text::join(candidate.bare_links, ", "));
        log::error("{}", reason);
        return failed(Outcome::rejected, Policy::go_on, "bare-link", reason, static_cast<int>(ExitCode::conflict));
    }
    if (!candidate.local_links.empty()) {
        const std::string reason = fmt::format(
            "the new submodule {} is committed at a commit that its remote does not have: "
            "`git submodule update --init` would fail",
            text::join(candidate.local_links, ", "));
        log::error("{}", reason);
        return failed(Outcome::rejected, Policy::go_on, "local-link", reason, static_cast<int>(ExitCode::conflict));
    }
    const Record* attempt = last_of(open(), RecordType::attempt_end);
    const bool committed = candidate.head != first_base().sha;
    if (attempt != nullptr && attempt->word("class") != "ok" && (!committed || candidate.leftovers)) {
        const int rc = static_cast<int>(attempt->count("rc"));
        const std::string& kind = attempt->word("class");
        const bool late = kind == word_of(AgentClass::hang) || kind == word_of(AgentClass::wall_limit);
        log::write_as_it_is(log::Level::error, message::agent_failed(rc));
        if (!attempt->word("reason").empty()) log::error("{}: {}", kind, attempt->word("reason"));
        const std::string code = late ? "timeout" : "agent-error";
        Decision decision = failed(late ? Outcome::timeout : Outcome::agent_error, Policy::count_failure, code,
                                   attempt->word("reason"), rc);
        if (!attempt->word("stop_reason").empty()) {
            decision.code = attempt->word("stop_reason");
            decision.stops = true;
        }
        decision.sign = kind;
        return decision;
    }
    const bool nothing = !committed || (m_settings.gates && candidate.diff == DiffClass::no_op);
    if (nothing && !options.allow_no_commit) {
        const Policy policy = options.no_commit_policy;
        Decision decision = failed(Outcome::no_op, policy, "no-commit", "no new commit", k_no_new_commit);
        log::write_as_it_is(log::Level::error,
                            fmt::format("{}{}", message::k_no_commit, message::going_on(policy, decision.stops)));
        return decision;
    }
    return std::nullopt;
}

Status Engine::run_stage(Stage& stage, int iteration, const Candidate& candidate) {
    const auto begun = m_parts.clock.monotonic();
    const Base from = base();
    const StageContext context{iteration,         from,           candidate,   m_parts.git.workdir(),
                               m_parts.artefacts, m_settings.run, m_parts.stop};
    const WallTime begun_at = m_parts.clock.wall();
    GDNCTL_TRY_ASSIGN(StageResult result, stage.run(context));
    if (result.exit_status == static_cast<int>(ExitCode::timeout)) {
        // Jobs and measurements work elsewhere.
        const bool here = stage.name() == "post-check";
        GDNCTL_TRY(m_parts.git.clear_locks_of_killed(begun_at, m_parts.clock.wall(), here));
    }
    if (result.verdict == StageVerdict::fail) GDNCTL_TRY(room());
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(m_parts.clock.monotonic() - begun);
    std::map<std::string, std::string> words = {{"name", std::string(stage.name())},
                                                {"verdict", std::string(to_text(result.verdict))}};
    if (!result.reason.empty()) words["reason"] = result.reason;
    if (result.verdict == StageVerdict::fail) {
        words["outcome"] = to_text(result.outcome);
        if (!result.sign.empty()) words["sign"] = result.sign;
        if (result.policy) words["policy"] = to_text(*result.policy);
    }
    for (auto& [key, value] : result.facts) words["fact." + key] = value;
    return add(RecordType::stage, iteration, std::move(words),
               {{"exit_status", result.exit_status},
                {"promoted", result.promoted ? 1 : 0},
                {"tpu_ms", result.tpu_ms},
                {"wall_ms", took.count()}});
}

Engine::Decision Engine::after_stage(const Stage& stage, const Record& record) const {
    const Outcome outcome = parse_outcome(record.word("outcome")).value_or(Outcome::rejected);
    const std::string& word = record.word("policy");
    const Policy policy = word == to_text(Policy::count_failure) ? Policy::count_failure
                          : word == to_text(Policy::go_on)       ? Policy::go_on
                          : word == to_text(Policy::fail)        ? Policy::fail
                                                                 : stage.policy();
    Decision decision = failed(outcome, policy, std::string(stage.name()), record.word("reason"),
                               static_cast<int>(record.count("exit_status")));
    decision.sign = record.word("sign");
    return decision;
}

Result<Engine::Decision> Engine::through_stages(int iteration, const Candidate& candidate) {
    Decision decision;
    if (!m_parts.stages.empty()) GDNCTL_TRY(m_parts.git.remember_setup());  // stages run what the agent wrote
    for (const auto& stage : m_parts.stages) {
        const DiffClass diff = candidate.diff;
        if (!stage->wants(diff)) continue;
        if (stage_record(since_candidate(open()), stage->name()) == nullptr) {
            GDNCTL_TRY(run_stage(*stage, iteration, candidate));
        }
        const Record& record = *stage_record(since_candidate(open()), stage->name());
        if (record.word("verdict") == to_text(StageVerdict::fail)) {
            log::error("{}: {}", stage->name(), record.word("reason"));
            return after_stage(*stage, record);
        }
        decision.promoted = decision.promoted || record.count("promoted") > 0;
    }
    if (candidate.head == first_base().sha) {
        decision.outcome = Outcome::no_op;  // --allow-no-commit
    } else if (m_settings.gates && candidate.diff != DiffClass::change) {
        decision.outcome = Outcome::no_op;
        decision.reason = candidate.diff == DiffClass::no_op ? "no file was changed" : "only logs were changed";
        decision.counted = m_settings.options.no_commit_policy == Policy::count_failure;
        const std::int64_t failures = state().failures + (decision.counted ? 1 : 0);
        decision.stops = decision.counted && too_many_failures(failures, m_settings.options.max_failures);
        decision.code = "no-commit";
        decision.rc = k_no_new_commit;
    }
    return decision;
}

Result<Engine::Decision> Engine::decide(int iteration, const Candidate& candidate) {
    if (auto decision = without_stages(iteration, candidate)) return std::move(*decision);
    return through_stages(iteration, candidate);
}

Status Engine::judge(int iteration) {
    GDNCTL_TRY_ASSIGN(const Candidate found, candidate(iteration));
    GDNCTL_TRY_ASSIGN(const Decision decision, decide(iteration, found));
    std::map<std::string, std::string> words = {{"outcome", std::string(to_text(decision.outcome))},
                                                {"verdict", decision.verdict}};
    if (!decision.reason.empty()) words["reason"] = decision.reason;
    if (!decision.sign.empty()) words["sign"] = decision.sign;
    if (!decision.code.empty()) words["code"] = decision.code;
    return add(RecordType::decision, iteration, std::move(words),
               {{"counted", decision.counted ? 1 : 0},
                {"promoted", decision.promoted ? 1 : 0},
                {"stops", decision.stops ? 1 : 0},
                {"rc", decision.rc}});
}

Engine::Decision Engine::decided() const {
    const Record& record = *last_of(open(), RecordType::decision);
    Decision decision;
    decision.outcome = parse_outcome(record.word("outcome")).value_or(Outcome::error);
    decision.verdict = record.word("verdict");
    decision.code = record.word("code");
    decision.reason = record.word("reason");
    decision.sign = record.word("sign");
    decision.counted = record.count("counted") > 0;
    decision.promoted = record.count("promoted") > 0;
    decision.stops = record.count("stops") > 0;
    decision.rc = static_cast<int>(record.count("rc"));
    return decision;
}

// "landed", "already", "blocked", or "": the candidate follows the branch and is judged again.
Result<std::string> Engine::land(const Step& step, const Candidate& candidate) {
    const Base from = base();
    GDNCTL_TRY_ASSIGN(const GitLanding landing, m_parts.git.accept(from, candidate, step.again));
    switch (landing.kind) {
        case GitLanding::Kind::landed: return std::string("landed");
        case GitLanding::Kind::already: return std::string("already");
        case GitLanding::Kind::blocked:
            log::error("accepted work cannot land: {}", landing.why);
            for (const auto& path : landing.in_the_way) log::error("  in the way: {}", path);
            return std::string("blocked");
        case GitLanding::Kind::moved: break;
    }
    if (landing.tip.empty()) {
        log::error("accepted work cannot land: {} was deleted or renamed", from.branch);
        return std::string("blocked");
    }
    log::warning("the branch moved to {}; rebasing the work and judging it again", landing.tip.substr(0, 12));
    GDNCTL_TRY_ASSIGN(const auto followed, m_parts.git.follow(step.iteration, from, candidate, landing.tip));
    if (!followed) {
        log::error("accepted work conflicts with the current branch");
        return std::string("blocked");
    }
    auto facts = facts_of(*followed);
    facts["base"] = landing.tip;
    GDNCTL_TRY(add(RecordType::candidate, step.iteration, std::move(facts)));
    m_candidate = *followed;
    return std::string();
}

Status Engine::settle(const Step& step) {
    const int i = step.iteration;
    if (!step.again) GDNCTL_TRY(add(RecordType::settle_intent, i));
    GDNCTL_TRY_ASSIGN(const Candidate found, candidate(i));
    const std::string verdict = last_of(open(), RecordType::decision)->word("verdict");
    std::string result = verdict == "park" ? "parked" : verdict == "reject" ? "rejected" : "none";
    if (verdict == "keep") {
        GDNCTL_TRY_ASSIGN(result, land(step, found));
        if (result.empty()) return {};
    } else {
        const Status taken_back = m_parts.git.reject(base(), found);
        if (!taken_back && taken_back.error().kind != ErrorKind::conflict) return taken_back;
        if (!taken_back) {
            log::error("{}", taken_back.error().text());
            log::warning("hint: {}", taken_back.error().hint);
            result = "blocked";
        } else if (clean_tree() && found.broken.empty()) {
            GDNCTL_TRY(m_parts.git.clear(i, first_base()));
        }
        if (found.head != first_base().sha) {
            log::info("its commits stay at {}", m_parts.git.ref(i, "head"));
        }
        const Record* performance = stage_record(since_candidate(open()), "performance");
        const std::string champion = performance == nullptr ? "" : performance->word("fact.champion").substr(0, 12);
        if (taken_back && !champion.empty()) log::info("{}", message::reverted(champion));
    }
    return add(RecordType::settled, i, {{"result", result}});
}

Status Engine::end_iteration(int iteration) {
    Decision decision = decided();
    const Policy policy = m_settings.options.iteration_error_policy;
    const Record* settled = last_of(open(), RecordType::settled);
    if (settled->word("result") == "blocked" && decision.verdict == "keep") {
        const std::string why = "accepted work could not land";
        decision = failed(Outcome::error, policy, "landing", why, k_iteration_error);
        say_raised(iteration, why, policy, decision);
        log::info("it stays at {}", m_parts.git.ref(iteration, "head"));
    }
    const Record* restored = last_of(open(), RecordType::restored);
    if (restored != nullptr && restored->word("result") == "kept" &&
        m_settings.options.stash_restore_policy == StashRestorePolicy::fail && !decision.stops) {
        const std::string why = "the stash could not be restored";
        Decision error = failed(Outcome::error, policy, "stash-restore", why, k_iteration_error);
        say_raised(iteration, why, policy, error);
        error.outcome = decision.outcome;
        error.promoted = decision.promoted;
        decision = std::move(error);
    }
    return close(iteration, decision);
}

Status Engine::close(int iteration, const Decision& decision) {
    const std::int64_t failures = state().failures + (decision.counted ? 1 : 0);
    std::map<std::string, std::string> words = {{"outcome", std::string(to_text(decision.outcome))}};
    if (!decision.reason.empty()) words["reason"] = decision.reason;
    if (!decision.sign.empty()) words["sign"] = decision.sign;
    if (decision.stops) words["stop_reason"] = decision.code;
    const std::int64_t held = m_parts.held_ms ? std::max<std::int64_t>(0, m_parts.held_ms() - m_held_before) : 0;
    const Record* logged = last_of(open(), RecordType::logged);
    const std::string number = logged == nullptr ? std::string() : logged->word("number");
    const Record* candidate = last_of(open(), RecordType::candidate);
    const std::string title = candidate == nullptr ? std::string() : candidate->word("title");
    log::info("iteration {}: {}{}{}{}", iteration, runlog::outcome_phrase(to_text(decision.outcome)),
              title.empty() ? "" : ": " + title,
              decision.reason.empty() ? "" : " (" + runlog::reason_words(decision.reason) + ")",
              number.empty() || number == std::to_string(iteration) ? "" : "; iteration " + number + " of the log");
    GDNCTL_TRY(add(RecordType::iteration_end, iteration, std::move(words),
                   {{"counted", decision.counted ? 1 : 0},
                    {"failures", failures},
                    {"promoted", decision.promoted ? 1 : 0},
                    {"stops", decision.stops ? 1 : 0},
                    {"rc", decision.stops ? decision.rc : 0},
                    {"tpu_ms", held}}));
    m_candidate.reset();
    m_rested = false;
    return tidy(iteration);
}

Status Engine::tidy(int iteration) { return m_parts.tidy ? m_parts.tidy(iteration) : Status(); }

}  // namespace gdnctl::loop
