// A run of the loop: repeats the step that the journal calls for until all iterations have ended or something ends the
// run. An undisturbed and a resumed run share this code.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "loop/engine/journal.h"
#include "loop/engine/log_dir.h"
#include "loop/engine/options.h"
#include "loop/engine/outcome.h"
#include "loop/engine/transaction.h"
#include "platform/clock.h"
#include "services/agent/agent.h"

namespace gdnctl::loop {

Budget budget_of(const LoopOptions& options);

struct EngineSettings {
    LoopOptions options;  // after --resilient was applied
    std::string run, loop_id;
    Isolation isolation = Isolation::inplace;
    std::string config = "{}";  // JSON text for the `run` record: what people may want to know about the run later
    std::string words;          // JSON text for the `run` and `resume` records: to_text(RunWords); empty: none
    std::string perf_state;     // path of the performance state, relative to the log directory; empty: there is none
    std::string prompt_template;
    std::vector<std::string> directives;             // given by the user: presets, files, inline, in this order;
                                                     // trimmed
    std::map<std::string, std::string> environment;  // for the agent
    AgentLimits limits;
    Budget budget;
    std::int64_t longest_wait_s = 21'600;    // for the model's provider, within one iteration
    Policy protected_policy = Policy::fail;  // fail, count_failure
    bool gates = false;                      // a change of logs only counts as no change, and there is a log commit
    bool fail_if_no_win = false;
    bool keep_background = false;
    std::filesystem::path subfolder;  // folder in the tree where the agent works; empty: its root
};

// What a run works with. An empty part is skipped.
struct EngineParts {
    Agent& agent;
    Transactions& git;
    const Artefacts& artefacts;
    LoopJournal& journal;
    Clock& clock;
    std::stop_token stop = {};
    std::span<const std::unique_ptr<Stage>> stages = {};  // in this order, cheap ones first

    // Called before an iteration's base is taken: sync-main. Its errors are errors of the iteration. `branch`: the
    // run's branch, if known; `records`: as below.
    std::function<Status(const std::string& branch, std::span<const Record> records)> prepare = {};
    // Directives added after the user's. Evaluated before every attempt, since they may change; trimmed.
    std::vector<std::function<std::vector<std::string>(std::span<const Record>)>> directives = {};
    // The log commit; nullopt: none for this iteration. `records`: those of the open iteration.
    std::function<Result<std::optional<LogEntry>>(int iteration, std::span<const Record> records)> log_entry = {};
    std::function<std::int64_t()> held_ms = {};            // how long a TPU has been held so far
    std::function<void(std::string_view line)> show = {};  // shows the agent's output to people
    std::function<void(const AgentEvent&)> on_event = {};
    std::function<std::string(const AgentRequest&)> command = {};  // the agent's command line, to be shown
    std::function<Status(int iteration)> tidy = {};                // called after an iteration
    std::function<Status()> room = {};                             // error local_io: a disk is full
    std::atomic<const char*>* doing = nullptr;                     // what a signal would interrupt, see
                                                                   // message::ending()
};

struct RunEnd {
    std::string reason;  // "completed", "no-commit", "max-wall", ...
    int iteration = 0;   // the last one that started
    int rc = 0;
};

// The end of a run by SIGINT or SIGTERM; `kind` comes from stopped_error().
RunEnd end_by_signal(ErrorKind kind, int iteration);

// What --resume learns from a journal about the run that wrote it.
struct ResumePoint {
    std::string run, loop_id;
    Isolation isolation = Isolation::inplace;
    std::set<std::string> trusted;
};
// nullopt: no run has started. Error conflict: the first record is not a run.
Result<std::optional<ResumePoint>> resume_point(std::span<const Record> records);

// What the journal stores about a candidate.
std::map<std::string, std::string> facts_of(const Candidate& candidate);

class Engine {
public:
    Engine(EngineSettings settings, EngineParts parts);
    // Runs to the end and returns why it ended. `resumed`: the journal belongs to a run that was interrupted.
    RunEnd run(bool resumed);
    RunState state() const { return summarise(records(), m_total, stashes()); }

private:
    // What follows from an iteration, however it went.
    struct Decision {
        Outcome outcome = Outcome::accepted;
        std::string verdict = "keep";  // keep, reject, park, none
        std::string code;              // the run's reason, if this ends it
        std::string reason, sign;      // for people; identical for the same kind of trouble
        bool counted = false, promoted = false;
        bool stops = false;
        int rc = 0;
    };
    struct RetryDecision {
        bool retry = false;
        bool free = false;  // not counted against the retries
        std::chrono::milliseconds pause{0};
        bool ends_run = false;  // further iterations would fail the same way
    };

    // ---- engine.cpp: the run
    std::span<const Record> records() const { return m_parts.journal.records(); }
    std::span<const Record> open() const { return open_iteration(records()); }
    bool stashes() const;
    bool clean_tree() const;  // in place, without the user's work in it
    Status add(RecordType type, int iteration, std::map<std::string, std::string> text = {},
               std::map<std::string, std::int64_t> number = {});
    Status begin(bool resumed);
    std::optional<RunEnd> end_before(const Step& step);
    std::optional<RunEnd> asked_to_stop() const;
    std::optional<RunEnd> end_of_budget() const;
    std::optional<RunEnd> rest();
    Status take(const Step& step);
    std::optional<RunEnd> on_error(const Error& error);
    RunEnd finish(RunEnd end);
    int last_iteration() const;
    int failures_in_a_row() const;
    std::vector<PastIteration> past() const;  // in this session
    Status sleep(std::chrono::milliseconds time) const;
    Status room() const { return m_parts.room ? m_parts.room() : Status(); }

    // ---- before the agent
    Status set_aside(const Step& step);
    void say_what_is_kept(int iteration) const;
    Status refuse_dirty();
    Status take_base(const Step& step);
    Status put_away(const Step& step);
    Status give_back(int iteration);  // the user's work, when an iteration stays open
    Status restore(const Step& step);
    Base base() const;  // of the candidate, else of the iteration
    Base first_base() const;

    // ---- the agent
    Status run_attempt(int iteration, int attempt);
    Result<AgentRequest> request_for(int iteration, int attempt);
    Result<std::string> write_prompt(int iteration);
    Result<RetryDecision> retry_decision_after(const AgentOutcome& outcome);
    bool is_waited_out(const AgentOutcome& outcome) const;
    Status break_off(int iteration, int attempt, const Error& error);
    Status end_attempt(int iteration, int attempt, const AgentOutcome& outcome, const RetryDecision& retry_decision);
    Status wait_for_provider();

    // ---- judging the result
    Status collect(int iteration);
    Result<Candidate> candidate(int iteration);
    Status judge(int iteration);
    Result<Decision> decide(int iteration, const Candidate& candidate);
    std::optional<Decision> without_stages(int iteration, const Candidate& candidate) const;
    Result<Decision> through_stages(int iteration, const Candidate& candidate);
    Status run_stage(Stage& stage, int iteration, const Candidate& candidate);
    Decision after_stage(const Stage& stage, const Record& record) const;
    Decision failed(Outcome outcome, Policy policy, std::string code, std::string reason, int rc) const;
    static void say_raised(int iteration, std::string_view what, Policy policy, const Decision& decision);
    Decision decided() const;
    Status settle(const Step& step);
    Result<std::string> land(const Step& step, const Candidate& candidate);
    Result<GitLanding> log_commit(const Step& step);
    Status write_log(const Step& step);
    Status end_iteration(int iteration);
    Status close(int iteration, const Decision& decision);
    Status tidy(int iteration);
    void set_doing(StepKind kind);
    void set_doing(const char* doing);

    EngineSettings m_settings;
    EngineParts m_parts;
    int m_total;
    bool m_interrupted = false;
    bool m_journal_failed = false;
    bool m_rested = true;                  // nothing has run yet that would require a pause
    std::optional<Candidate> m_candidate;  // of the open iteration, if known
    std::string m_log_number;              // of the entry that log_commit() made
    StartLimit m_starts;
    std::optional<WallTime> m_provider_free;  // earliest time at which the provider will answer again
    std::int64_t m_held_before = 0;           // held_ms at the start of the iteration
    Clock::Monotonic m_begun{};
    std::int64_t m_wall_before_ms = 0;  // from the run's earlier sessions
    std::mt19937 m_random{std::random_device{}()};
};

}  // namespace gdnctl::loop
