// Takes the step that the journal calls for, until a budget or a user ends the run. Undisturbed and resumed runs use
// the same code.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "loop/evolve/evaluate.h"
#include "loop/evolve/ref_guard.h"
#include "loop/evolve/state.h"
#include "loop/evolve/store.h"
#include "platform/clock.h"
#include "services/agent/agent.h"

namespace gdnctl::loop::evolve {

// What the first record says.
struct RunStart {
    std::string run, loop_id;
    std::uint64_t seed = 0;
    std::string base;    // commit
    std::string config;  // JSON text of the resolved configuration
    std::string evaluator;
    std::string words = {};  // EvolveRequest::words; empty: not kept
};
// Refs `base` and `best`, then the record.
Status begin_run(EvolveJournal& journal, const Store& store, const RunStart& start, WallTime now);

struct DriverSettings {
    RunStart start;
    Budget budget;
    PairRule pairs;                 // the keep gate
    double target_gain = .02;       // a run whose noise hides this much does not begin
    double shape_regression = .01;  // the largest slowdown on any of several shapes with which a candidate is kept
    bool edits = false;             // EDIT v1
    std::string goal;               // for prompts
    std::string model, effort;
    std::optional<Price> price;
    std::vector<std::string> directives;
    std::map<std::string, std::string> environment;  // of the agent
    AgentLimits limits;
    std::chrono::seconds infra_max_wait{std::chrono::hours(6)};
    std::chrono::milliseconds sleep{0};  // between attempts
    std::filesystem::path empty_folder;  // where an agent of EDIT v1 works
    std::filesystem::path log_dir;
};

struct DriverDeps {
    Store& store;
    EvolveJournal& journal;
    Evaluator& evaluator;
    Agent& agent;
    Clock& clock;
    std::stop_token stop = {};
    std::function<void(std::string_view)> show = {};  // lines of the agent, for people
    std::function<Status()> room = {};                // error local_io: a disk is full
};

struct DriverEnd {
    std::string reason;
    int attempt = 0;  // the last one that began
    int rc = 0;
};

class Driver {
public:
    Driver(DriverSettings settings, DriverDeps deps) : m_settings(std::move(settings)), m_deps(std::move(deps)) {}
    // `resumed`: the journal is that of a run that was broken off or has ended.
    DriverEnd run(bool resumed);

private:
    const State& state() const { return m_deps.journal.state(); }
    Status add(std::string_view type, Json facts);
    Result<DriverEnd> loop(bool resumed);
    int worth() const;  // exit code of a run that ends by itself
    std::optional<DriverEnd> ends_before(const Step& step) const;
    Result<DriverEnd> finish(std::string_view reason, int rc);
    void tidy();
    Status write_experiment(std::string_view reason);
    DriverEnd end_of(std::string_view reason, int rc) const;
    Status hold_while_paused();
    Result<bool> wait_for_infrastructure(const Step& step);  // false: the longest wait is over
    Status rest(std::chrono::milliseconds time) const;
    Status run_step(const Step& step);
    Status start_run();
    Status measure_noise();
    Result<Launch> ask_oracle_of_base(const std::string& base);
    Status begin_attempt();
    Status run_stage(std::string_view stage, bool rerun);
    Status settle();
    Status verify_best();

    // ---- the agent
    Status run_agent();
    Result<std::string> prompt();
    Result<AgentOutcome> ask(const std::string& prompt, const std::filesystem::path& worktree, std::string_view suffix);
    struct Answer;
    std::filesystem::path names_file() const;  // while an agent works: the names that it may have to put back
    Result<std::vector<std::string>> put_names_back(const RefGuard& names, bool after_a_kill);
    Status abandon();
    Result<Answer> through_tools(const std::string& prompt);
    Result<Answer> through_edits(const std::string& prompt);
    Status record_answer(Answer answer);
    void note_failure(const Answer& answer, bool nothing);

    std::filesystem::path folder(int attempt) const { return m_settings.log_dir / attempt_folder(attempt); }
    const std::string& parent_commit() const;
    Status sleep(std::chrono::milliseconds time) const;

    DriverSettings m_settings;
    DriverDeps m_deps;
    std::chrono::milliseconds m_waited{0};  // for infrastructure, in a row
    int m_first = 1;                        // attempt that experiment-log.md lacks
    std::string m_directives_seen;
    StartLimit m_starts;
    std::chrono::milliseconds m_provider_pause{0};  // that the last attempt asks for
    int m_provider_waits = 0, m_agent_row = 0;      // in a row: pauses; attempts that failed in the same way
    std::string m_agent_said;                       // how
    DriverEnd m_agent_stop;  // why no agent can work any more: its login, its quota, its configuration
};

// Directive files <log_dir>/session_directives/*.md, by name.
std::vector<std::string> directive_files(const std::filesystem::path& log_dir);

}  // namespace gdnctl::loop::evolve
