#include "loop/engine/engine.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/log.h"
#include "core/log_timed.h"
#include "core/redact.h"
#include "core/text.h"
#include "loop/engine/messages.h"
#include "platform/signals.h"

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

}  // namespace gdnctl::loop
