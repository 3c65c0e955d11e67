// The agent's part of an attempt: its prompt, its run, what it left, and the records of that.
#include <algorithm>
#include <random>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/last_lines.h"
#include "core/log.h"
#include "core/text.h"
#include "loop/engine/outcome.h"
#include "loop/evolve/driver.h"
#include "loop/evolve/edits.h"
#include "loop/evolve/names.h"
#include "loop/evolve/prompt.h"
#include "loop/evolve/trace.h"
#include "platform/fs.h"
#include "platform/hash.h"
#include "platform/signals.h"

namespace gdnctl::loop::evolve {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t k_failure_tail = 4096, k_most_diff = 20'000;

// Of evolve.md's classes; empty: the work is looked at.
std::string_view class_of(AgentClass kind) {
    switch (kind) {
        case AgentClass::ok: return "ok";
        case AgentClass::hang: return "idle_timeout";
        case AgentClass::wall_limit: return "timeout";
        case AgentClass::token_limit:
        case AgentClass::compaction_limit:
        case AgentClass::request_limit:
        case AgentClass::context_full: return "over_tokens";
        case AgentClass::invalid_prompt: return "refused";
        case AgentClass::incomplete: return "truncated";
        case AgentClass::configuration:
        case AgentClass::authentication:
        case AgentClass::quota:
        case AgentClass::usage_limit:
        case AgentClass::rate_limit:
        case AgentClass::overloaded:
        case AgentClass::server_error:
        case AgentClass::unreachable:
        case AgentClass::stream_cut: return "infra";
        default: return "agent_error";
    }
}

std::string tail_of(const fs::path& file, std::size_t bytes) {
    const auto text = read_file_if_exists(file, std::size_t{64} << 20);
    if (!text || !*text) return {};
    return text::repair_utf8(text::end_within(**text, bytes));
}

Json tokens_of(const std::optional<AgentTokens>& tokens) {
    if (!tokens) return nullptr;
    return {{"in", tokens->input},
            {"cached", tokens->cached_input},
            {"out", tokens->output},
            {"reasoning", tokens->reasoning}};
}

}  // namespace

struct Driver::Answer {
    AgentOutcome outcome;
    std::string kind;
    TracedReply reply;
    Work work;
    std::vector<EditResult> edits;
    bool asked_twice = false;
    std::vector<std::string> put_back;  // names and settings of the user's that it had changed
};

std::vector<std::string> directive_files(const fs::path& log_dir) {
    std::vector<fs::path> files;
    std::error_code problem;
    for (const auto& entry : fs::directory_iterator(log_dir / "session_directives", problem)) {
        if (entry.path().extension() == ".md") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    std::vector<std::string> out;
    for (const auto& file : files) {
        const auto text = read_file_if_exists(file);
        if (text && *text && !text::trim(**text).empty()) out.emplace_back(text::trim(**text));
    }
    return out;
}

Result<std::string> Driver::prompt() {
    const State& now = state();
    const Attempt& one = now.at(now.open.number);
    const GitCheckout& git = m_parts.store.repository();
    PromptParts parts;
    parts.goal = m_settings.goal;
    parts.kernel = m_parts.store.rules().kernel;
    parts.guarded = m_parts.store.rules().guarded;
    parts.edits = m_settings.edits;
    parts.directives = m_settings.directives;
    const auto steering = directive_files(m_settings.log_dir);
    parts.directives.insert(parts.directives.end(), steering.begin(), steering.end());
    GDNCTL_TRY_ASSIGN(const std::string seen, hash_hex(HashKind::sha256, text::join(steering, "\n\n")));
    if (!steering.empty() && seen != m_directives_seen) {
        GDNCTL_TRY(add("steer", {{"attempt", one.number}, {"directives", steering.size()}, {"sha256", seen}}));
        m_directives_seen = seen;
    }
    const auto diff = [&](int number) -> Result<std::string> {
        GDNCTL_TRY_ASSIGN(std::string text, git.patch(now.base, now.at(number).commit, {}));
        if (text.size() > k_most_diff) text.resize(k_most_diff);
        return text::repair_utf8(text);
    };
    if (now.best != 0) {
        GDNCTL_TRY_ASSIGN(parts.best_diff, diff(now.best));
    }
    if (one.parents.size() > 1) {
        GDNCTL_TRY_ASSIGN(parts.second_parent, diff(one.parents[1]));
    }
    for (const int number : pick(now.members(), one.number, now.rules).inspirations) {
        GDNCTL_TRY_ASSIGN(std::string text, diff(number));
        parts.inspirations.push_back(std::move(text));
    }
    const int failed = one.op == Operator::repair ? one.parents.front() : 0;
    if (failed != 0) {
        const std::string& reason = now.at(failed).reason;
        parts.failure =
            tail_of(folder(failed) / fmt::format("stage-{}.log", reason.substr(0, reason.find(':'))), k_failure_tail);
    }
    if (m_settings.edits) {
        GDNCTL_TRY_ASSIGN(parts.files, m_parts.store.mutable_text(parent_commit()));
    }
    return attempt_prompt(now, parts);
}

Result<AgentOutcome> Driver::ask(const std::string& prompt, const fs::path& worktree, std::string_view suffix) {
    const fs::path place = folder(state().open.number);
    AgentRequest request;
    request.prompt = prompt;
    request.worktree = worktree;
    request.loop_id = m_settings.start.loop_id;
    request.environment = m_settings.environment;
    request.limits = m_settings.limits;
    request.files.events = place / fmt::format("agent{}.jsonl", suffix);
    request.files.stderr_log = place / fmt::format("agent{}-stderr.log", suffix);
    request.files.last_message = place / fmt::format("last-message{}.txt", suffix);
    request.show = m_parts.show;
    request.stop = m_parts.stop;
    GDNCTL_TRY(m_parts.store.remember_setup());
    GDNCTL_TRY_ASSIGN(AgentOutcome outcome, m_parts.agent.run(request));
    std::error_code ignored;
    fs::remove(request.files.last_message, ignored);  // response.txt has it
    if (fs::is_empty(request.files.stderr_log, ignored)) fs::remove(request.files.stderr_log, ignored);
    if (outcome.kind == AgentClass::stopped || m_parts.stop.stop_requested()) return tl::unexpected(stopped_error());
    return outcome;
}

fs::path Driver::names_file() const { return folder(state().open.number) / "names.json"; }

Result<std::vector<std::string>> Driver::put_names_back(const NameGuard& names, bool after_a_kill) {
    GDNCTL_TRY_ASSIGN(std::set<std::string> made, m_parts.store.leave_branch());
    made.erase(state().base);  // the user's own commit: who moves a branch there is not known
    GDNCTL_TRY_ASSIGN(auto undone, names.put_back(made, after_a_kill));
    for (const auto& what : undone) log::warning("undid changes by the agent: {}", what);
    std::error_code ignored;
    fs::remove(names_file(), ignored);
    return undone;
}

Status Driver::abandon() {
    std::error_code problem;
    if (fs::exists(names_file(), problem)) {
        GDNCTL_TRY_ASSIGN(const NameGuard names, NameGuard::read(m_parts.store.repository(), names_file()));
        GDNCTL_TRY(put_names_back(names, true));
    }
    const bool gone = state().at(state().open.number).gone;
    GDNCTL_TRY(
        add("verdict", {{"attempt", state().open.number},
                        {"verdict", to_text(Verdict::abandoned)},
                        {"reason", gone ? "its commit is missing" : "the run ended while the agent was working"}}));
    return {};
}

Result<Driver::Answer> Driver::through_tools(const std::string& prompt) {
    Answer answer;
    GDNCTL_TRY_ASSIGN(const fs::path worktree, m_parts.store.prepare(parent_commit()));
    GDNCTL_TRY_ASSIGN(const NameGuard names, NameGuard::take(m_parts.store.repository()));
    GDNCTL_TRY(names.write(names_file()));
    auto outcome = ask(prompt, worktree, "");
    auto put_back = m_parts.store.restore_setup();
    auto undone = put_names_back(names, false);
    if (!outcome) return tl::unexpected(std::move(outcome).error());
    answer.outcome = std::move(*outcome);
    GDNCTL_TRY_ASSIGN(answer.put_back, std::move(undone));
    GDNCTL_TRY(put_back);
    answer.put_back.insert(answer.put_back.end(), put_back->begin(), put_back->end());
    answer.reply = split_trace(answer.outcome.final_message);
    GDNCTL_TRY_ASSIGN(answer.work, m_parts.store.collect(parent_commit()));
    return answer;
}

Result<Driver::Answer> Driver::through_edits(const std::string& prompt) {
    Answer answer;
    GDNCTL_TRY_ASSIGN(const auto files, m_parts.store.mutable_text(parent_commit()));
    std::string asked = prompt;
    AppliedEdits applied;
    for (const std::string_view suffix : {"", "-retry"}) {
        GDNCTL_TRY(make_private_directory(m_settings.empty_folder));
        auto outcome = ask(asked, m_settings.empty_folder, suffix);
        GDNCTL_TRY_ASSIGN(const auto put_back, m_parts.store.restore_setup());
        answer.put_back.insert(answer.put_back.end(), put_back.begin(), put_back.end());
        GDNCTL_TRY_ASSIGN(answer.outcome, std::move(outcome));
        answer.reply = split_trace(answer.outcome.final_message);
        if (!answer.outcome.ok() || abstains(answer.reply.reply)) return answer;
        const EditReply parsed = parse_edits(answer.reply.reply);
        if (parsed.edits.empty() && parsed.problems.empty()) return answer;
        applied = apply_edits(parsed, files);
        answer.edits = applied.results;
        if (applied.all) break;
        answer.asked_twice = true;
        asked = retry_prompt(prompt, applied.near_misses);
    }
    if (!applied.all) {
        answer.kind = "partial_edit";
        return answer;
    }
    GDNCTL_TRY_ASSIGN(const fs::path worktree, m_parts.store.prepare(parent_commit()));
    for (const auto& [path, content] : applied.files) {
        GDNCTL_TRY_ASSIGN(const fs::path place, join_inside(worktree, path));
        GDNCTL_TRY(atomic_replace(place, content));
    }
    GDNCTL_TRY_ASSIGN(answer.work, m_parts.store.collect(parent_commit()));
    return answer;
}

Status Driver::run_agent() {
    const fs::path place = folder(state().open.number);
    GDNCTL_TRY(make_private_directory(place));
    GDNCTL_TRY_ASSIGN(const std::string text, prompt());
    GDNCTL_TRY(atomic_replace(place / "prompt.md", text, 0600));
    GDNCTL_TRY_ASSIGN(Answer answer, m_settings.edits ? through_edits(text) : through_tools(text));
    // What it wrote onto a full disk is not what it meant.
    if (m_parts.room) GDNCTL_TRY(m_parts.room());
    // Why the program itself failed counts more than what it left.
    if (answer.kind.empty()) answer.kind = class_of(answer.outcome.kind);
    const bool nothing = answer.work.changes.empty() && answer.work.refused.empty() && answer.work.tampered.empty();
    if (answer.kind == "ok" && nothing) {
        answer.kind = abstains(answer.reply.reply)                         ? "abstained"
                      : answer.work.forbidden.empty() && !m_settings.edits ? "empty"
                                                                           : "noop";
    }
    return record_answer(std::move(answer));
}

// What the next attempts can expect of the agent.
void Driver::note_failure(const Answer& answer, bool nothing) {
    constexpr int k_row = 5;
    const AgentOutcome& outcome = answer.outcome;
    // Waiting does not help. The attempt does not count against anything, and the next session tries again.
    if (!outcome.stop_reason.empty()) {
        log::error("{}", outcome.reason);
        m_agent_stop = {outcome.stop_reason, state().open.number, outcome.exit_status};
    }
    if (answer.kind == "infra" && outcome.stop_reason.empty()) {
        std::random_device random;
        const double share = std::uniform_real_distribution<double>(0, 1)(random);
        m_provider_pause = provider_pause(outcome, m_provider_waits++, share, m_parts.clock.wall());
        log::warning("{}: {}", word_of(outcome.kind), outcome.reason);
    } else {
        m_provider_waits = 0;
    }
    const bool failed = answer.kind == "agent_error" && nothing;
    if (failed || answer.kind == "infra") {
        m_starts.failed(m_parts.clock.monotonic() - outcome.elapsed);
    } else {
        m_starts.succeeded();
    }
    const std::string said = failed ? said_of(word_of(outcome.kind), outcome.reason) : std::string();
    m_agent_row = failed && said == m_agent_said ? m_agent_row + 1 : failed ? 1 : 0;
    m_agent_said = said;
    if (m_agent_row < k_row) return;
    log::error("the agent failed in {} attempts in a row, each time in the same way: {}", m_agent_row, outcome.reason);
    m_agent_stop = {"circuit-breaker", state().open.number, static_cast<int>(ExitCode::infrastructure)};
}

namespace {

Json snapshot_of(int number, const Candidate& it, const Work& work) {
    return {{"attempt", number},
            {"commit", it.commit},
            {"tree", it.tree},
            {"patch_id", it.patch_id},
            {"code_key", it.code_key},
            {"mutable_key", it.mutable_key},
            {"files", it.files},
            {"added", it.added},
            {"removed", it.removed},
            {"ignored_files", work.ignored},
            {"forbidden_paths", work.forbidden},
            {"refused", work.refused}};
}

}  // namespace

Status Driver::record_answer(Answer answer) {
    const int number = state().open.number;
    const Attempt& one = state().at(number);
    const fs::path place = folder(number);
    GDNCTL_TRY(atomic_replace(place / "response.txt", answer.reply.reply, 0600));
    if (answer.reply.trace) GDNCTL_TRY(atomic_replace(place / "trace.json", *answer.reply.trace + "\n", 0600));
    const auto when = parse_iso8601(one.started).value_or(m_parts.clock.wall());
    const std::string message =
        fmt::format("Attempt {}: {}\n\nGdnctl-Run: {}\nGdnctl-Attempt: {}\nGdnctl-Operator: {}\n", number,
                    to_text(one.op), state().run, number, to_text(one.op));
    std::vector<std::string> parents;
    for (const int parent : one.parents) parents.push_back(state().at(parent).commit);
    GDNCTL_TRY_ASSIGN(const auto made, m_parts.store.commit(answer.work, parents, message, when));
    // A merge of two whose result is the first one changes nothing either.
    const bool same = made && made->mutable_key == state().at(one.parents.front()).mutable_key;
    if (same && answer.kind == "ok") answer.kind = "noop";
    if (made && !same) GDNCTL_TRY(m_parts.store.pin(fmt::format("cand/{}", number), made->commit));
    GDNCTL_TRY(m_parts.store.write_patch(parent_commit(), made ? made->commit : parent_commit(), place / "diff.patch"));
    const auto& tokens = answer.outcome.tokens;
    const double cost = tokens && m_settings.price
                            ? cost_of(*m_settings.price, tokens->input, tokens->cached_input, tokens->output)
                            : 0;
    Json proposal = {{"attempt", number},
                     {"class", answer.kind},
                     {"rc", answer.outcome.exit_status},
                     {"wall_s", std::chrono::duration<double>(answer.outcome.elapsed).count()},
                     {"tokens", tokens_of(tokens)},
                     {"cost", cost},
                     {"agent_commits", answer.work.agent_commits},
                     {"technique", answer.reply.technique},
                     {"tampered", !answer.work.tampered.empty()},
                     {"forbidden_paths", answer.work.forbidden}};
    if (!answer.put_back.empty()) proposal["put_back"] = answer.put_back;
    if (!answer.outcome.reason.empty()) proposal["reason"] = answer.outcome.reason;
    GDNCTL_TRY(add("proposal", proposal));
    note_failure(answer, !made);
    if (m_settings.edits) {
        Json edits = Json::array();
        for (const EditResult& edit : answer.edits) {
            edits.push_back({{"file", edit.file}, {"applied", edit.applied}, {"reason", edit.reason}});
        }
        GDNCTL_TRY(add("edit_report", {{"attempt", number}, {"edits", edits}, {"retried", answer.asked_twice}}));
    }
    const bool has_something = (made && !same) || !answer.work.refused.empty();
    if (!has_something) return {};
    const Candidate none;
    const Candidate& it = made && !same ? *made : none;
    return add("snapshot", snapshot_of(number, it, answer.work));
}

}  // namespace gdnctl::loop::evolve
