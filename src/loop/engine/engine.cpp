#include "loop/engine/engine.h"

#include <algorithm>
#include <fstream>

#include <fmt/format.h>

#include "core/for_people.h"
#include "core/json.h"
#include "core/log.h"
#include "core/redact.h"
#include "core/text.h"
#include "loop/engine/messages.h"
#include "loop/engine/prompt.h"
#include "platform/fs.h"
#include "platform/signals.h"
#include "runlog/records/record.h"

namespace gdnctl::loop {

using std::chrono::milliseconds;

namespace {

bool is_stop(const Error& error) { return error.kind == ErrorKind::interrupted || error.kind == ErrorKind::terminated; }

std::vector<const Record*> ends_of(std::span<const Record> records) {
    std::vector<const Record*> ends;
    for (const Record& record : records) {
        if (record.type == RecordType::iteration_end) ends.push_back(&record);
    }
    return ends;
}

// Records of the current session: those after the last `run` or `resume`.
std::span<const Record> this_session(std::span<const Record> records) {
    for (std::size_t i = records.size(); i-- > 0;) {
        if (records[i].type == RecordType::run || records[i].type == RecordType::resume) return records.subspan(i);
    }
    return records;
}

// Total wall time of earlier sessions, each from its first to its last record.
std::int64_t wall_of_sessions(std::span<const Record> records) {
    std::int64_t sum = 0;
    std::optional<WallTime> first;
    std::optional<WallTime> last;
    const auto close = [&] {
        if (first && last && *last > *first) sum += (*last - *first).count();
        first.reset();
    };
    for (const Record& record : records) {
        const auto time = parse_iso8601(record.time);
        if (!time) continue;
        if (record.type == RecordType::run || record.type == RecordType::resume) close();
        if (!first) first = time;
        last = time;
    }
    close();
    return sum;
}

// State changes that an observer should see at once; others are written along with the next of these.
bool shows_in_state(RecordType type) {
    return type == RecordType::run || type == RecordType::resume || type == RecordType::iteration ||
           type == RecordType::attempt_end || type == RecordType::decision || type == RecordType::iteration_end ||
           type == RecordType::stop;
}

void say_where_the_stash_is(std::span<const Record> open, std::string_view hint) {
    const Record* stash = last_of(open, RecordType::stashed);
    if (stash != nullptr && !stash->word("commit").empty()) {
        log::warning("your uncommitted work is in the stash {}: {}", stash->word("commit"), hint);
    }
}

constexpr int k_local_io = static_cast<int>(ExitCode::local_io);

}  // namespace

Budget budget_of(const LoopOptions& options) {
    Budget budget;
    budget.wall_s = options.max_wall_s;
    budget.tpu_minutes = options.max_tpu_minutes;
    budget.tokens = options.max_tokens;
    if (options.plateau) budget.plateau = static_cast<int>(std::min<std::int64_t>(*options.plateau, 1'000'000));
    return budget;
}

Result<std::optional<ResumePoint>> resume_point(std::span<const Record> records) {
    if (records.empty()) return std::optional<ResumePoint>();
    const Record& run = records.front();
    if (run.type != RecordType::run) {
        return fail(ErrorKind::conflict, "the journal does not begin with a run",
                    "restore it, or start a new run with another --log-dir");
    }
    ResumePoint point;
    point.run = run.word("run");
    point.loop_id = run.word("loop_id");
    point.isolation = run.word("isolation") == "worktree" ? Isolation::worktree : Isolation::inplace;
    // If this cannot be read, nothing is trusted. The current configuration may come from the agent of the killed run,
    // and git would run the programs it names. An unused filter only makes files look changed, which is reported.
    const Json trusted = Json::parse(run.word("trusted"), nullptr, false);
    if (trusted.is_array()) {
        for (const Json& seal : trusted) {
            if (seal.is_string()) point.trusted.insert(seal.get<std::string>());
        }
    }
    return std::optional(std::move(point));
}

RunEnd end_by_signal(ErrorKind kind, int iteration) {
    return {kind == ErrorKind::terminated ? "terminated" : "interrupted", iteration,
            static_cast<int>(exit_code_of(kind))};
}

Engine::Engine(EngineSettings settings, EngineParts parts)
    : m_settings(std::move(settings)),
      m_parts(std::move(parts)),
      m_total(static_cast<int>(m_settings.options.iterations)),
      m_begun(m_parts.clock.monotonic()) {}

bool Engine::stashes() const {
    return m_settings.isolation == Isolation::inplace && !m_settings.options.allow_dirty &&
           m_settings.options.dirty_policy == DirtyPolicy::stash;
}

bool Engine::clean_tree() const {
    return m_settings.isolation == Isolation::inplace && !m_settings.options.allow_dirty;
}

Status Engine::add(RecordType type, int iteration, std::map<std::string, std::string> text,
                   std::map<std::string, std::int64_t> number) {
    // Words from commands and their output; all other words are our own.
    for (const char* key : {"config", "reason", "sign", "fact.command"}) {
        if (const auto at = text.find(key); at != text.end()) at->second = redact(at->second);
    }
    Status done = m_parts.journal.append({type, iteration, std::move(text), std::move(number)}, m_parts.clock.wall());
    if (done && shows_in_state(type)) done = write_state(m_parts.artefacts.folder() / "state.json", state());
    m_journal_failed = m_journal_failed || !done;
    return done;
}

int Engine::last_iteration() const {
    const Record* last = last_of(records(), RecordType::iteration);
    return last == nullptr ? 0 : last->iteration;
}

// Work that was judged, even if rejected, is not a failure of the run.
int Engine::failures_in_a_row() const {
    const auto ends = ends_of(records());
    const auto worked = std::find_if(ends.rbegin(), ends.rend(), [](const Record* end) {
        return !calls_for_a_pause(parse_outcome(end->word("outcome")).value_or(Outcome::error));
    });
    return static_cast<int>(worked - ends.rbegin());
}

std::vector<PastIteration> Engine::past() const {
    std::vector<PastIteration> past;
    const Record* attempt = nullptr;
    for (const Record& record : this_session(records())) {
        if (record.type == RecordType::attempt_end) attempt = &record;
        if (record.type != RecordType::iteration_end) continue;
        PastIteration one{parse_outcome(record.word("outcome")).value_or(Outcome::error), record.word("sign")};
        const bool explained = attempt != nullptr && attempt->count("explained") > 0;
        if (explained && one.outcome == Outcome::agent_error) {
            one.said = said_of(attempt->word("class"), attempt->word("reason"));
        }
        past.push_back(std::move(one));
        attempt = nullptr;
    }
    return past;
}

Status Engine::sleep(milliseconds time) const {
    // In slices, to notice a STOP file.
    constexpr milliseconds k_slice{5000};
    while (time.count() > 0 && !m_parts.artefacts.stop_requested()) {
        const milliseconds slice = std::min(time, k_slice);
        if (!m_parts.clock.sleep_for(slice, m_parts.stop)) return tl::unexpected(stopped_error());
        time -= slice;
    }
    return {};
}

Status Engine::begin(bool resumed) {
    m_interrupted = resumed;
    m_wall_before_ms = wall_of_sessions(records());
    std::map<std::string, std::string> words = {{"loop_id", m_settings.loop_id}};
    if (!m_settings.perf_state.empty()) words["perf_state"] = m_settings.perf_state;
    if (!m_settings.words.empty()) words["options"] = m_settings.words;
    if (resumed) return add(RecordType::resume, 0, std::move(words), {{"total", m_total}});
    GDNCTL_TRY_ASSIGN(const auto seals, m_parts.git.trusted());
    const Json trusted(seals);
    words.insert({{"run", m_settings.run},
                  {"isolation", m_settings.isolation == Isolation::worktree ? "worktree" : "inplace"},
                  {"config", m_settings.config},
                  {"trusted", gdnctl::to_text(trusted)}});
    return add(RecordType::run, 0, std::move(words), {{"total", m_total}});
}

std::optional<RunEnd> Engine::asked_to_stop() const {
    if (m_parts.stop.stop_requested()) return end_by_signal(stopped_error().kind, last_iteration());
    if (m_parts.artefacts.stop_requested()) {
        log::warning("{}", message::stop_file(m_parts.artefacts.folder() / "STOP"));
        return RunEnd{"stop-file", last_iteration(), 0};
    }
    return std::nullopt;
}

std::optional<RunEnd> Engine::end_of_budget() const {
    const RunState now = state();
    Spent spent;
    const auto session = std::chrono::duration_cast<milliseconds>(m_parts.clock.monotonic() - m_begun);
    spent.wall_s = (m_wall_before_ms + session.count()) / 1000;
    spent.tpu_s = now.tpu_ms / 1000;
    spent.tokens = now.tokens;
    spent.since_promotion = now.since_promotion;
    if (const auto reason = budget_end(m_settings.budget, spent)) {
        return RunEnd{std::string(*reason), last_iteration(), 0};
    }
    if (const auto sign = circuit_breaker(past())) {
        log::error("further iterations cannot fix this: {}", *sign);
        return RunEnd{"circuit-breaker", last_iteration(), static_cast<int>(ExitCode::infrastructure)};
    }
    return std::nullopt;
}

// The pause between iterations, including failed ones.
std::optional<RunEnd> Engine::rest() {
    if (m_rested) return std::nullopt;
    m_rested = true;
    const std::int64_t pause = pause_seconds(m_settings.options.sleep_seconds, failures_in_a_row());
    if (pause > 0) log::debug("next iteration in {} s", pause);
    set_doing("the pause between iterations is cut short; no further iteration starts");
    if (Status slept = sleep(std::chrono::seconds(pause)); !slept) return asked_to_stop();
    return asked_to_stop();
}

std::optional<RunEnd> Engine::end_before(const Step& step) {
    const Record* ended = last_of(records(), RecordType::iteration_end);
    const Record* stopped = last_of(records(), RecordType::stop);
    const bool stops = ended != nullptr && ended->count("stops") > 0;
    if (stops && (stopped == nullptr || stopped < ended)) {
        return RunEnd{ended->word("stop_reason"), ended->iteration, static_cast<int>(ended->count("rc"))};
    }
    if (step.kind == StepKind::finished) {
        if (stops) {
            log::warning("no iteration is left to resume, and the last one ended the run: {}",
                         ended->word("stop_reason"));
            log::warning("hint: --iterations {} adds one", m_total + 1);
        }
        const RunState now = state();
        const auto accepted = now.outcomes.find("accepted");
        if (m_settings.fail_if_no_win && accepted == now.outcomes.end()) {
            return RunEnd{"no-win", last_iteration(), static_cast<int>(ExitCode::nothing_done)};
        }
        return RunEnd{"completed", last_iteration(), 0};
    }
    if (step.kind != StepKind::begin_iteration) {
        return m_parts.stop.stop_requested() ? asked_to_stop() : std::nullopt;
    }
    if (auto end = asked_to_stop()) return end;
    if (auto end = end_of_budget()) return end;
    return rest();
}

Status Engine::take(const Step& step) {
    const int i = step.iteration;
    set_doing(step.kind);
    switch (step.kind) {
        case StepKind::start_run: return begin(false);
        case StepKind::begin_iteration:
            m_candidate.reset();
            m_held_before = m_parts.held_ms ? m_parts.held_ms() : 0;
            if (m_parts.show) m_parts.show("");
            log::write_as_it_is(log::Level::info, message::heading(i, m_total));
            return add(RecordType::iteration, i);
        case StepKind::set_aside: return set_aside(step);
        case StepKind::take_base: return take_base(step);
        case StepKind::put_away: return put_away(step);
        case StepKind::run_attempt: return run_attempt(i, step.attempt);
        case StepKind::collect: return collect(i);
        case StepKind::judge: return judge(i);
        case StepKind::settle: return settle(step);
        case StepKind::write_log: return write_log(step);
        case StepKind::restore_stash: return restore(step);
        case StepKind::end_iteration: return end_iteration(i);
        case StepKind::finished: break;
    }
    return {};
}

// nullopt: the error ended the iteration, and the run continues.
std::optional<RunEnd> Engine::on_error(const Error& error) {
    const auto iterations = open();
    const int iteration = iterations.empty() ? last_iteration() : iterations.front().iteration;
    if (is_stop(error)) return end_by_signal(error.kind, iteration);
    if (error.kind != ErrorKind::local_io) {
        // Not every error on a full disk says so.
        if (const Status full = room(); !full) {
            log::error("error: {}", error.text());
            return on_error(full.error());
        }
    }
    // Nothing is reliable in this state; the iteration stays open, and --resume finishes it.
    if (m_journal_failed || error.kind == ErrorKind::local_io || iterations.empty()) {
        log::error("error: {}", error.text());
        if (!error.hint.empty()) log::warning("hint: {}", error.hint);
        const bool disk = m_journal_failed || error.kind == ErrorKind::local_io;
        return RunEnd{disk ? "local-io" : "error", iteration, static_cast<int>(exit_code_of(error.kind))};
    }
    const Policy policy = m_settings.options.iteration_error_policy;
    Decision decision = failed(Outcome::error, policy, "iteration-error", error.text(), 2);
    decision.sign = error.message;
    say_raised(iteration, error.text(), policy, decision);
    if (!error.hint.empty()) log::warning("hint: {}", error.hint);
    if (Status given = give_back(iteration); !given) {
        log::error("{}", given.error().text());
        // It stays open, so that --resume restores the work.
        if (given.error().kind == ErrorKind::local_io) return RunEnd{"local-io", iteration, k_local_io};
        say_where_the_stash_is(open(), "git stash apply restores it");
    }
    if (Status closed = close(iteration, decision); !closed) {
        log::error("error: {}", closed.error().text());
        return RunEnd{"local-io", iteration, static_cast<int>(exit_code_of(closed.error().kind))};
    }
    return std::nullopt;
}

// Says where the work of an open iteration is. In place, its commits may be on the branch.
void Engine::say_what_is_kept(int iteration) const {
    const auto kept = m_parts.git.kept(iteration);
    if (kept && !kept->empty()) log::info("its work is kept at {}", text::join(*kept, ", "));
    const Record* candidate = last_of(open(), RecordType::candidate);
    const bool on_branch = m_settings.isolation == Isolation::inplace && candidate != nullptr &&
                           last_of(open(), RecordType::settled) == nullptr;
    const Base from = first_base();
    if (!on_branch || candidate->word("head") == from.sha) return;
    log::warning("{} has its commits up to {}, which are not judged yet; git reset --keep {} removes them",
                 from.branch.empty() ? "the checkout" : from.branch, candidate->word("head").substr(0, 12),
                 from.sha.substr(0, 12));
}

RunEnd Engine::finish(RunEnd end) {
    const auto iterations = open();
    if (Status back = m_parts.git.restore_setup(); !back) log::warning("{}", back.error().text());
    if (!iterations.empty() && !m_journal_failed) {
        log::info("iteration {} is unfinished: --resume finishes or repeats it", iterations.front().iteration);
        say_what_is_kept(iterations.front().iteration);
        const Record* attempt = last_of(iterations, RecordType::attempt);
        const Record* ended = last_of(iterations, RecordType::attempt_end);
        if (attempt != nullptr && (ended == nullptr || ended < attempt)) {
            // The agent's work is still in the tree; the next stash would take it for the user's.
            say_where_the_stash_is(iterations, "--resume restores it");
        } else if (Status given = give_back(iterations.front().iteration); !given) {
            log::error("{}", given.error().text());
            say_where_the_stash_is(iterations, "--resume restores it");
        }
    }
    if (iterations.empty()) {
        if (Status left = m_parts.git.leave_names(); !left) log::warning("{}", left.error().text());
    }
    if (!m_journal_failed) {
        if (Status added =
                add(RecordType::stop, 0, {{"reason", end.reason}}, {{"rc", end.rc}, {"last_iteration", end.iteration}});
            !added) {
            log::error("{}", added.error().text());
        }
    } else if (!iterations.empty()) {
        say_where_the_stash_is(iterations, "--resume restores it");
    }
    return end;
}

RunEnd Engine::run(bool resumed) {
    if (resumed) {
        if (Status begun = begin(true); !begun) {
            log::error("error: {}", begun.error().text());
            return {"local-io", last_iteration(), static_cast<int>(exit_code_of(begun.error().kind))};
        }
        // A kill or a full disk between the end of an iteration and what follows it.
        if (const Record* ended = last_of(records(), RecordType::iteration_end); ended != nullptr && open().empty()) {
            Status tidied = tidy(ended->iteration);
            if (!tidied) {
                if (auto end = on_error(tidied.error())) return finish(std::move(*end));
            }
        }
    }
    for (;;) {
        const Step step = next_step(records(), m_total, stashes(), m_interrupted);
        if (auto end = end_before(step)) return finish(std::move(*end));
        m_interrupted = false;
        Status done = take(step);
        if (done) continue;
        if (auto end = on_error(done.error())) return finish(std::move(*end));
    }
}

// Prepares the tree for the agent: sets the user's work aside, pins the base, puts away what an earlier attempt left.

std::map<std::string, std::string> facts_of(const Candidate& candidate) {
    std::map<std::string, std::string> facts = {{"head", candidate.head},
                                                {"diff", std::string(to_text(candidate.diff))}};
    if (!candidate.subject.empty()) facts["title"] = text::visible(candidate.subject);
    if (candidate.leftovers) {
        facts["leftovers"] = candidate.leftovers->commit;
        if (!candidate.leftovers->patch.empty()) facts["patch"] = candidate.leftovers->patch.filename().string();
    }
    const auto put = [&](const char* key, const std::vector<std::string>& list) {
        if (!list.empty()) facts[key] = text::join(list, "\n");
    };
    put("protected", candidate.protected_changes);
    put("hidden", candidate.hidden);
    put("config_changes", candidate.config_changes);
    put("bare_links", candidate.bare_links);
    put("local_links", candidate.local_links);
    put("submodules", candidate.submodules);
    put("gone", candidate.gone);
    if (!candidate.broken.empty()) facts["broken"] = candidate.broken;
    return facts;
}

Base Engine::first_base() const {
    const Record* base = last_of(open(), RecordType::base);
    return base == nullptr ? Base() : Base{base->word("sha"), base->word("branch")};
}

// A candidate that followed a moved branch has its own base.
Base Engine::base() const {
    Base base = first_base();
    const Record* candidate = last_of(open(), RecordType::candidate);
    if (candidate != nullptr && !candidate->word("base").empty()) base.sha = candidate->word("base");
    return base;
}

Status Engine::set_aside(const Step& step) {
    std::string message = step.stash_message;
    if (!step.again) {
        const auto now = std::chrono::duration_cast<std::chrono::seconds>(m_parts.clock.wall().time_since_epoch());
        message = message::stash(step.iteration, now.count());
        GDNCTL_TRY(add(RecordType::stash_intent, step.iteration, {{"message", message}}));
    }
    const auto stash = m_parts.git.set_aside(step.iteration, message, step.again);
    if (!stash) {
        // Interrupted halfway: the stash exists, and some of its files may already be gone from the tree.
        if (const auto made = m_parts.git.stash_named(message); made && *made) {
            log::warning("your uncommitted work is in the stash {}: --resume restores it", **made);
        }
        return tl::unexpected(stash.error());
    }
    if (*stash)
        log::info("your uncommitted work is in the stash {} until this iteration ends", (*stash)->substr(0, 12));
    return add(RecordType::stashed, step.iteration, {{"commit", stash->value_or("")}});
}

// The user has to put that away.
Status Engine::refuse_dirty() {
    if (!clean_tree() || m_settings.options.dirty_policy != DirtyPolicy::fail) return {};
    return m_parts.git.check_clean();
}

Status Engine::take_base(const Step& step) {
    const Record* first = first_of(records(), RecordType::base);
    const std::string branch = first == nullptr ? std::string() : first->word("branch");
    GDNCTL_TRY(m_parts.git.check_branch(branch));
    // Files that an interrupted merge left are not the user's.
    const bool merging = last_of(open(), RecordType::merge_intent) != nullptr;
    if (!merging) GDNCTL_TRY(refuse_dirty());
    if (m_parts.prepare) GDNCTL_TRY(m_parts.prepare(branch, open()));
    if (merging) GDNCTL_TRY(refuse_dirty());
    GDNCTL_TRY_ASSIGN(const Base base, m_parts.git.begin(step.iteration, step.again, branch));
    return add(RecordType::base, step.iteration, {{"sha", base.sha}, {"branch", base.branch}});
}

Status Engine::put_away(const Step& step) {
    const Record* ended = last_of(open(), RecordType::attempt_end);
    const bool done = ended != nullptr && ended->count("attempt") == step.attempt && ended->count("put_away") > 0;
    if (!done) {
        GDNCTL_TRY(m_parts.git.put_away(step.iteration, step.attempt, first_base()));
        if (clean_tree()) GDNCTL_TRY(m_parts.git.clear(step.iteration, first_base()));
        say_what_is_kept(step.iteration);
    } else {
        GDNCTL_TRY(refuse_dirty());
    }
    return run_attempt(step.iteration, step.attempt + 1);
}

// The iteration stays open or ends with an error: restores the user's work now.
Status Engine::give_back(int iteration) {
    if (!stashes()) return {};
    const auto records = open();
    const Record* stashed = last_of(records, RecordType::stashed);
    const Record* restored = last_of(records, RecordType::restored);
    if (stashed == nullptr || (restored != nullptr && restored > stashed)) return {};
    if (stashed->word("commit").empty()) return add(RecordType::restored, iteration, {{"result", "none"}});
    return restore({StepKind::restore_stash, iteration});
}

Status Engine::restore(const Step& step) {
    const std::string stash = last_of(open(), RecordType::stashed)->word("commit");
    GDNCTL_TRY_ASSIGN(const GitRestore result, m_parts.git.bring_back(stash));
    const bool back = result == GitRestore::restored || result == GitRestore::was_there;
    if (result == GitRestore::unproven) {
        log::warning("your uncommitted work is restored, but not completely; it also stays in the stash {}", stash);
    } else if (!back) {
        log::warning("your uncommitted work conflicts with the iteration's result; it stays in the stash {}", stash);
    }
    return add(RecordType::restored, step.iteration, {{"result", back ? "restored" : "kept"}});
}

// One attempt of the agent: its prompt, its cost, and what comes next.

namespace fs = std::filesystem;
using std::chrono::milliseconds;

namespace {

// Attempts of the open iteration that count against the retries.
std::int64_t failed_attempts(std::span<const Record> open) {
    return std::count_if(open.begin(), open.end(), [](const Record& record) {
        return record.type == RecordType::attempt_end && record.word("class") != "ok" && record.count("free") == 0;
    });
}

// Consecutive waits for the provider at the end of the open iteration's attempts, and their total duration.
std::pair<int, std::int64_t> waits_in_a_row(std::span<const Record> open) {
    int waits = 0;
    std::int64_t ms = 0;
    for (const Record& record : open) {
        if (record.type != RecordType::attempt_end || record.word("class") == "stopped") continue;
        waits = record.count("free") > 0 ? waits + 1 : 0;
        ms += record.count("pause_ms");
    }
    return {waits, ms};
}

// Whether the prompt of the previous iteration was refused too.
bool refused_before(std::span<const Record> records) {
    const auto open = open_iteration(records);
    const Record* before = last_of(records.first(records.size() - open.size()), RecordType::attempt_end);
    return before != nullptr && before->word("class") == word_of(AgentClass::invalid_prompt);
}

bool was_retried_once(std::span<const Record> open, std::string_view kind) {
    return std::any_of(open.begin(), open.end(), [&](const Record& record) {
        return record.type == RecordType::attempt_end && record.word("class") == kind;
    });
}

// Ended by us, or by a signal: its git may have had no time to remove its locks.
bool was_killed(const AgentOutcome& outcome) {
    switch (outcome.kind) {
        case AgentClass::hang:
        case AgentClass::wall_limit:
        case AgentClass::token_limit:
        case AgentClass::compaction_limit:
        case AgentClass::request_limit:
        case AgentClass::stopped:
        case AgentClass::crashed: return true;
        default: return !outcome.survivors.empty();
    }
}

}  // namespace

// The recipe defines the name. The prompt of an earlier attempt is kept if it differs.
Result<std::string> Engine::write_prompt(int iteration) {
    std::vector<std::string> directives = m_settings.directives;
    for (const auto& more : m_parts.directives) {
        auto list = trimmed_directives(more(records()));
        directives.insert(directives.end(), list.begin(), list.end());
    }
    std::string prompt =
        assemble_prompt(m_settings.prompt_template, {iteration, m_total, first_base().sha}, directives);
    const fs::path file = m_parts.artefacts.path(iteration, "prompt.txt");
    GDNCTL_TRY_ASSIGN(const auto before, read_file_if_exists(file));
    if (before == prompt) return prompt;
    if (before) {
        std::error_code problem;
        fs::rename(file, m_parts.artefacts.unused(iteration, "prompt.earlier", ".txt"), problem);
        if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "move", file, problem.value()));
    }
    GDNCTL_TRY(replace_whole(file, prompt, 0600));
    return prompt;
}

Result<AgentRequest> Engine::request_for(int iteration, int attempt) {
    const Artefacts& files = m_parts.artefacts;
    AgentRequest request;
    GDNCTL_TRY_ASSIGN(request.prompt, write_prompt(iteration));
    request.worktree = m_parts.git.workdir();
    if (!m_settings.subfolder.empty()) request.worktree /= m_settings.subfolder;
    request.loop_id = m_settings.loop_id;
    request.environment = m_settings.environment;
    request.limits = m_settings.limits;
    if (m_settings.budget.tokens) {
        const std::int64_t left = std::max<std::int64_t>(1, *m_settings.budget.tokens - state().tokens);
        request.limits.tokens = request.limits.tokens > 0 ? std::min(request.limits.tokens, left) : left;
    }
    request.files.events = files.path(iteration, fmt::format("attempt-{}-events.jsonl", attempt));
    request.files.stderr_log = files.path(iteration, fmt::format("attempt-{}-stderr.log", attempt));
    request.files.rollout = files.path(iteration, fmt::format("attempt-{}-rollout.jsonl", attempt));
    request.files.last_message = files.path(iteration, "last-message.txt");
    request.show_file_updates = m_settings.options.show_file_updates;
    request.keep_background = m_settings.keep_background;
    request.on_event = m_parts.on_event;
    request.stop = m_parts.stop;
    return request;
}

// What a signal would interrupt from now on.
void Engine::set_doing(const char* doing) {
    if (m_parts.doing != nullptr) m_parts.doing->store(doing);
}

void Engine::set_doing(StepKind kind) {
    const char* doing = "the current step is finished first";
    if (kind == StepKind::run_attempt) doing = "the agent is being stopped, and what it did so far is kept";
    if (kind == StepKind::judge) doing = "the current check or job is being stopped; its candidate is kept";
    if (kind == StepKind::begin_iteration) doing = "no further iteration starts";
    set_doing(doing);
}

Status Engine::wait_for_provider() {
    if (const milliseconds wait = m_starts.wait(m_parts.clock.monotonic()); wait.count() > 0) {
        log::info("the provider has failed three starts in a row; waiting {}", format_duration(wait));
        set_doing("the wait for the provider is cut short; the attempt has not started");
        GDNCTL_TRY(sleep(wait));
    }
    if (!m_provider_free || *m_provider_free <= m_parts.clock.wall()) return {};
    log::info("the provider's usage limit is reached; waiting until {}", local_time(*m_provider_free));
    set_doing("the wait for the provider is cut short; the attempt has not started");
    return sleep(std::chrono::duration_cast<milliseconds>(*m_provider_free - m_parts.clock.wall()));
}

Status Engine::run_attempt(int iteration, int attempt) {
    GDNCTL_TRY(wait_for_provider());
    set_doing(StepKind::run_attempt);  // also when an attempt is repeated, which begins as another step
    GDNCTL_TRY_ASSIGN(AgentRequest request, request_for(iteration, attempt));
    std::ofstream transcript(m_parts.artefacts.path(iteration, "transcript.log"), std::ios::app);
    request.transcript = [&](std::string_view line) { transcript << redact(line) << '\n'; };
    request.show = m_parts.show;
    GDNCTL_TRY(add(RecordType::attempt, iteration, {}, {{"attempt", attempt}}));
    if (m_parts.command) log::write_as_it_is(log::Level::info, fmt::format("$ {}", m_parts.command(request)));
    GDNCTL_TRY(m_parts.git.remember_setup());
    const Clock::Monotonic started = m_parts.clock.monotonic();
    const WallTime begun = m_parts.clock.wall();
    auto ran = m_parts.agent.run(request);
    const WallTime ended = m_parts.clock.wall();
    set_doing(StepKind::collect);
    if (!ran) return break_off(iteration, attempt, ran.error());
    const AgentOutcome outcome = std::move(*ran);
    if (is_providers(outcome.kind)) {
        m_starts.failed(started);
    } else {
        m_starts.succeeded();
    }
    log::info("{} attempt {}: {}", m_parts.agent.name(), attempt, summary_of(outcome));
    for (const auto& survivor : outcome.survivors) {
        log::warning("ended a process that outlived the agent: {} ({})", survivor.command, survivor.id.pid);
    }
    if (was_killed(outcome) && !m_settings.keep_background) {
        GDNCTL_TRY(m_parts.git.clear_locks_of_killed(begun, ended, true));
    }
    m_provider_free.reset();
    constexpr double k_used_up = 95;
    for (const auto& window : outcome.rate_windows) {
        if (window.used_percent < k_used_up || !window.resets_at) continue;
        m_provider_free = std::max(m_provider_free.value_or(*window.resets_at), *window.resets_at);
    }
    if (Status room_left = room(); !room_left && outcome.kind != AgentClass::stopped) {
        // The attempt may have failed only at this, or the agent may believe that it has committed.
        GDNCTL_TRY_ASSIGN(const bool committed, m_parts.git.committed(first_base()));
        if (!outcome.ok() || !committed) return break_off(iteration, attempt, room_left.error());
    }
    GDNCTL_TRY_ASSIGN(const RetryDecision retry_decision, retry_decision_after(outcome));
    if (outcome.kind == AgentClass::stopped) {
        // Its work so far is kept; --resume repeats the attempt.
        GDNCTL_TRY(m_parts.git.put_away(iteration, attempt, first_base()));
        if (clean_tree()) GDNCTL_TRY(m_parts.git.clear(iteration, first_base()));
    }
    GDNCTL_TRY(end_attempt(iteration, attempt, outcome, retry_decision));
    if (outcome.kind == AgentClass::stopped) return tl::unexpected(stopped_error());
    if (!retry_decision.retry) return {};
    const std::int64_t attempts = m_settings.options.codex_retries + 1;
    if (retry_decision.free) {
        log::warning("{}: {}; waiting {}", word_of(outcome.kind), outcome.reason,
                     format_duration(retry_decision.pause));
    } else {
        log::write_as_it_is(log::Level::warning, message::agent_retry(static_cast<int>(failed_attempts(open())),
                                                                      static_cast<int>(attempts), outcome.exit_status));
    }
    set_doing("the pause before the next attempt is cut short; the attempt does not start");
    return sleep(retry_decision.pause);
}

// Handles an attempt that a full disk ended; --resume repeats it. Its work so far is kept if there is space. Otherwise
// the attempt stays open, and --resume first does that.
Status Engine::break_off(int iteration, int attempt, const Error& error) {
    if (error.kind != ErrorKind::local_io) return tl::unexpected(error);
    Status kept = m_parts.git.put_away(iteration, attempt, first_base());
    if (kept && clean_tree()) kept = m_parts.git.clear(iteration, first_base());
    if (kept) {
        AgentOutcome stopped;
        stopped.kind = AgentClass::stopped;
        stopped.reason = error.message;
        [[maybe_unused]] const Status ended = end_attempt(iteration, attempt, stopped, RetryDecision());
    }
    return tl::unexpected(error);
}

Status Engine::end_attempt(int iteration, int attempt, const AgentOutcome& outcome,
                           const RetryDecision& retry_decision) {
    const bool stopped = outcome.kind == AgentClass::stopped;
    std::map<std::string, std::string> words = {{"class", std::string(word_of(outcome.kind))},
                                                {"next", retry_decision.retry || stopped ? "retry" : "collect"},
                                                {"reason", outcome.reason}};
    if (!outcome.thread_id.empty()) words["thread"] = outcome.thread_id;
    if (!outcome.model.empty()) words["model"] = outcome.model;
    if (!outcome.effort.empty()) words["effort"] = outcome.effort;
    if (!outcome.stop_reason.empty()) words["stop_reason"] = outcome.stop_reason;
    if (retry_decision.ends_run) words["stop_reason"] = "agent-error";
    std::map<std::string, std::int64_t> numbers = {{"attempt", attempt},
                                                   {"rc", outcome.exit_status},
                                                   {"wall_ms", outcome.elapsed.count()},
                                                   {"survivors", static_cast<std::int64_t>(outcome.survivors.size())}};
    if (outcome.tokens) {
        numbers["tokens"] = outcome.tokens->total();
        numbers["tokens_input"] = outcome.tokens->input;
        numbers["tokens_cached"] = outcome.tokens->cached_input;
        numbers["tokens_output"] = outcome.tokens->output;
    }
    if (retry_decision.free || stopped) numbers["free"] = 1;
    if (retry_decision.pause.count() > 0) numbers["pause_ms"] = retry_decision.pause.count();
    if (stopped) numbers["put_away"] = 1;
    if (outcome.explained) numbers["explained"] = 1;
    return add(RecordType::attempt_end, iteration, std::move(words), std::move(numbers));
}

// The provider has been down for two iterations: --resilient waits in the third.
bool Engine::is_waited_out(const AgentOutcome& outcome) const {
    const bool passes = outcome.kind == AgentClass::server_error || outcome.kind == AgentClass::stream_cut;
    if (!m_settings.options.resilient || !passes || !outcome.explained) return false;
    std::vector<PastIteration> with_this = past();
    with_this.push_back({Outcome::agent_error, "", said_of(word_of(outcome.kind), outcome.reason)});
    return circuit_breaker(with_this).has_value();
}

// A failed attempt may leave half an edit or a finished commit. Finished work is judged, never repeated.
Result<Engine::RetryDecision> Engine::retry_decision_after(const AgentOutcome& outcome) {
    RetryDecision retry_decision;
    if (outcome.ok() || outcome.kind == AgentClass::stopped) return retry_decision;
    GDNCTL_TRY_ASSIGN(const bool produced, m_parts.git.produced(first_base()));
    if (produced) {
        log::warning("the attempt failed ({}) after it had committed; judging the commit", outcome.reason);
        return retry_decision;
    }
    const auto retry_sleep = std::chrono::seconds(m_settings.options.retry_sleep_seconds);
    const bool left = failed_attempts(open()) < m_settings.options.codex_retries;
    const bool gone_on = outcome.action == AgentAction::retry && !left && is_waited_out(outcome);
    const AgentAction action = gone_on ? AgentAction::back_off : outcome.action;
    switch (action) {
        case AgentAction::back_off:
        case AgentAction::wait_until: {
            const auto [waits, waited_ms] = waits_in_a_row(open());
            std::uniform_real_distribution<double> share(0, 1);
            AgentOutcome asked = outcome;
            asked.action = action;
            const milliseconds pause = provider_pause(asked, waits, share(m_random), m_parts.clock.wall());
            const bool fits = waited_ms + pause.count() <= m_settings.longest_wait_s * 1000;
            if (fits) return RetryDecision{true, true, pause};
            log::error("{} for longer than --codex-max-wait", word_of(outcome.kind));
            // The limit's end is known and far away: every iteration until then would fail at once.
            const bool known =
                outcome.retry_after || (outcome.not_before && *outcome.not_before > m_parts.clock.wall());
            retry_decision.ends_run = known && pause.count() > m_settings.longest_wait_s * 1000;
            return retry_decision;
        }
        case AgentAction::retry:
        case AgentAction::fresh_thread:
            if (left) retry_decision = {true, false, retry_sleep};
            return retry_decision;
        case AgentAction::retry_once:
            if (left && !was_retried_once(open(), word_of(outcome.kind))) retry_decision = {true, false, retry_sleep};
            return retry_decision;
        default:
            retry_decision.ends_run = outcome.kind == AgentClass::invalid_prompt && refused_before(records());
            if (retry_decision.ends_run) log::error("the model refused the prompt in two iterations in a row");
            return retry_decision;
    }
}

// What happens to the agent's work: its candidate passes the stages and lands, or is kept on its ref.

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
    decision.verdict = rule.disposition == Disposition::rejected ? "reject"
                       : rule.disposition == Disposition::none   ? "none"
                                                                 : "park";
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

// The entry of an iteration in the running log.

namespace {

constexpr int k_log_tries = 3;

void say(const LogEntry& entry) {
    if (entry.stamped) return log::write_as_it_is(log::Level::info, entry.said);
    log::info("{}", entry.said);
}

}  // namespace

// Without a tip, no entry is due.
Result<GitLanding> Engine::log_commit(const Step& step) {
    m_log_number.clear();
    const std::string branch = first_base().branch;
    GitLanding landing;
    if (step.again) {
        GDNCTL_TRY_ASSIGN(const auto made, m_parts.git.landed_log(step.iteration, branch));
        landing.kind = GitLanding::Kind::already;
        landing.tip = made.value_or("");
        if (made) return landing;
    }
    // Whoever just moved the branch may have changed the log: prepare the entry again on top of it.
    for (int tries = 0; tries < k_log_tries; ++tries) {
        GDNCTL_TRY_ASSIGN(const auto entry, m_parts.log_entry(step.iteration, open()));
        landing.kind = GitLanding::Kind::already;
        if (!entry) return landing;
        if (!entry->noted.empty()) {
            GDNCTL_TRY(m_parts.git.repository().add_note(entry->noted, entry->message));
            say(*entry);
            return landing;
        }
        GDNCTL_TRY_ASSIGN(landing, m_parts.git.commit_log(step.iteration, branch, *entry, step.again));
        m_log_number = entry->number;
        if (landing.kind == GitLanding::Kind::landed) say(*entry);
        if (landing.kind != GitLanding::Kind::moved) return landing;
    }
    return landing;
}

Status Engine::write_log(const Step& step) {
    const int i = step.iteration;
    if (!m_parts.log_entry) return add(RecordType::logged, i);
    if (!step.again) GDNCTL_TRY(add(RecordType::log_intent, i));
    const auto landing = log_commit(step);
    if (!landing) {
        const ErrorKind kind = landing.error().kind;
        const bool later =
            kind == ErrorKind::local_io || kind == ErrorKind::interrupted || kind == ErrorKind::terminated;
        if (later) return tl::unexpected(landing.error());
        // The judgement is valid with or without an entry.
        log::warning("no entry in the running log: {}", landing.error().text());
        if (!landing.error().hint.empty()) log::warning("hint: {}", landing.error().hint);
        return add(RecordType::logged, i, {{"result", "failed"}});
    }
    if (landing->kind == GitLanding::Kind::moved) {
        log::warning("no entry in the running log: the branch keeps moving");
        return add(RecordType::logged, i, {{"result", "failed"}});
    }
    if (landing->kind == GitLanding::Kind::blocked) {
        log::warning("the log commit cannot land: {}; it stays at {}", landing->why, m_parts.git.ref(i, "log"));
        return add(RecordType::logged, i, {{"result", "kept"}});
    }
    if (landing->tip.empty()) return add(RecordType::logged, i);
    std::map<std::string, std::string> words = {{"commit", landing->tip}};
    if (!m_log_number.empty()) words["number"] = m_log_number;
    return add(RecordType::logged, i, std::move(words));
}

}  // namespace gdnctl::loop
