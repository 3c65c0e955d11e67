// The coding agent of one attempt: a program that is given a prompt and changes a working tree. What the loop gets back
// is plain values; what they mean for retries is decided here, when to retry is the loop's.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/time.h"
#include "platform/process.h"

namespace gdnctl {

class Clock;
class Env;

// In the environment of the agent and of all that it starts: by it they are found when everything else is lost.
inline constexpr std::string_view k_loop_id_variable = "GDNCTL_LOOP_ID";

// How an attempt ended. The word in brackets is what records say (word_of).
enum class AgentClass {
    ok,                // [ok]
    configuration,     // [config] refused before or by the first request: argv, configuration, model, effort
    authentication,    // [auth]
    quota,             // [quota] the plan or the credit does not cover it; waiting does not help
    usage_limit,       // [usage-limit] resets at a known or unknown time
    rate_limit,        // [rate-limit]
    overloaded,        // [overloaded] the model has no capacity
    server_error,      // [server-error] 5xx
    unreachable,       // [unreachable] no connection
    stream_cut,        // [stream] the answer broke off
    context_full,      // [context] the thread outgrew the model's window
    thread_missing,    // [no-thread] there is nothing to resume, or something else was resumed
    invalid_prompt,    // [invalid-prompt] the model refuses the prompt
    incomplete,        // [incomplete] the answer met its own length limit
    hang,              // [hang] our idle limit
    wall_limit,        // [wall-limit] ours
    token_limit,       // [token-limit] ours
    compaction_limit,  // [compaction-limit] ours
    request_limit,     // [request-limit] ours
    stopped,           // [stopped] by a stop request
    crashed,           // [crashed] a signal that we did not send, or a panic
    protocol,          // [protocol] success and failure contradict each other
    failed,            // [failed] anything else
};
std::string_view word_of(AgentClass kind);

enum class AgentAction {
    proceed,       // the work may be looked at
    stop_loop,     // no retry can help; `stop_reason` says why
    back_off,      // wait (back_off_delay, at least `retry_after`) and repeat; not a failed iteration
    wait_until,    // wait until `not_before` and repeat (absent: usage_limit_delay); not a failed iteration
    retry,         // against the retries of the iteration
    retry_once,    // the same, once
    fresh_thread,  // as retry, and never by resuming the thread
    count,         // a failed iteration: no retry
};
std::string_view word_of(AgentAction action);

struct AgentTokens {
    std::int64_t input = 0;         // cached ones included
    std::int64_t cached_input = 0;  // of `input`
    std::int64_t output = 0;        // reasoning included
    std::int64_t reasoning = 0;     // of `output`
    std::int64_t total() const { return input + output; }
    bool operator==(const AgentTokens&) const = default;
};

struct AgentLimits {
    std::chrono::milliseconds wall{std::chrono::hours(2)};  // 0: none, as in the other three
    std::chrono::milliseconds idle{std::chrono::minutes(15)};
    // In place of `idle` while a command of the agent is open or something that it started runs: device jobs are silent
    // for an hour.
    std::chrono::milliseconds idle_while_busy{std::chrono::minutes(90)};
    std::int64_t tokens = 50'000'000;                 // of one attempt, cached input included
    int compactions = 10;                             // more end the attempt; < 0: no limit
    int requests = 2000;                              // of the model; more end the attempt; 0: no limit
    std::chrono::milliseconds interrupt_grace{5000};  // between SIGINT and SIGTERM
    std::chrono::milliseconds grace{2000};            // between SIGTERM and SIGKILL
};

// Where an attempt leaves its traces; an empty path: nowhere. Secrets are masked in the first three. Each file is made
// anew.
struct AgentFiles {
    std::filesystem::path events;        // codex: {"t":"<UTC time>","event":{...}} a line; else the output as it is
    std::filesystem::path stderr_log;    // codex: its standard error
    std::filesystem::path rollout;       // codex: copy of the thread's rollout
    std::filesystem::path last_message;  // the final message; what an earlier attempt left is removed at the start
};

// One happening, for the live status and for the diffs that the loop adds to file changes.
struct AgentEvent {
    enum class Kind { message, reasoning, command_started, command_ended, files_changed, web_search, notice, other };
    Kind kind = Kind::other;
    std::string text;                          // message, reasoning, command, query or notice
    std::optional<int> exit_code;              // command_ended
    std::string output;                        // command_ended: at most 64 KiB from its end
    std::chrono::milliseconds elapsed{0};      // command_ended
    std::vector<std::filesystem::path> files;  // files_changed
};

struct AgentRequest {
    std::string prompt;                              // given byte for byte on standard input
    std::filesystem::path worktree;                  // absolute
    std::string resume_thread;                       // codex: goes on with this thread; empty: a fresh one
    AgentTokens resumed_tokens;                      // what that thread had used before, for agents without a rollout
    std::string loop_id;                             // value of GDNCTL_LOOP_ID; required
    std::map<std::string, std::string> environment;  // all of it; from agent_environment()
    AgentLimits limits;
    AgentFiles files;
    bool show_file_updates = false;
    bool keep_background = false;                           // what a successful attempt leaves running goes on
    std::function<void(std::string_view line)> show;        // lines for people, filtered, not yet redacted
    std::function<void(std::string_view line)> transcript;  // all of them
    std::function<void(const AgentEvent&)> on_event;
    std::stop_token stop;
};

struct AgentRateWindow {
    double used_percent = 0;
    std::optional<WallTime> resets_at;
};

struct AgentOutcome {
    AgentClass kind = AgentClass::failed;
    AgentAction action = AgentAction::count;
    int exit_status = 0;      // the program's; 124 when a limit of ours ended it; 128+N for signal N; never 0 unless ok
    std::string reason;       // one line for people, secrets masked; empty when ok
    bool explained = false;   // codex: `reason` is its own account of why the turn failed
    std::string stop_reason;  // with stop_loop: codex-config, codex-auth, codex-quota
    std::optional<std::chrono::milliseconds> retry_after;
    std::optional<WallTime> not_before;

    std::string thread_id;              // empty: the agent has none
    std::string model, effort;          // in force, as far as the agent says
    std::string final_message;          // of this attempt, empty when it failed before one
    std::optional<AgentTokens> tokens;  // of this attempt alone; nullopt: not known
    int requests = 0;                   // model responses, as far as the rollout tells; 0 where unknown
    int compactions = 0;
    std::vector<AgentRateWindow> rate_windows;  // 95 % used: wait for resets_at before the next attempt

    int commands = 0;
    int left_open = 0;                               // commands that began and never ended
    int unknown_events = 0;                          // kept in the events file
    int text_lines = 0;                              // lines of the event stream that were none
    std::vector<ProcessResult::Survivor> survivors;  // outlived the agent; ended unless keep_background spared them
    std::chrono::milliseconds elapsed{0};
    AgentFiles files;
    bool ok() const { return kind == AgentClass::ok; }
};
// "class=ok rc=0 thread=… tokens=6000/5000/170 secs=4.1 survivors=0": the end of the line that the loop logs.
std::string summary_of(const AgentOutcome& outcome);

class Agent {
public:
    virtual ~Agent() = default;
    virtual std::string_view name() const = 0;
    // Runs one attempt to its end; nothing that it started lives on, save what keep_background spares. Errors: usage
    // (the request itself), local_io (program cannot be started, a file cannot be written). What becomes of the attempt
    // is never an error.
    virtual Result<AgentOutcome> run(const AgentRequest& request) = 0;
};

// Any program that reads a prompt on standard input and edits its working directory. Its last 64 KiB of standard output
// are the final message; exit code 0 is ok, any other is `failed`.
std::unique_ptr<Agent> make_command_agent(std::vector<std::string> argv, Process& process, Clock& clock);

// Secrets of `env`, told by their names, are masked from here on in what is logged.
// What of `env` an agent gets: the documented allow-list (docs/agents.md), the names in `also`, and the marker. Nothing
// whose name speaks of a secret, save the keys of the model provider and what `also` names. Errors: usage, `also` names
// HF_TOKEN, WANDB_API_KEY or RAY_AUTH_TOKEN, or is no name.
Result<std::map<std::string, std::string>> agent_environment(const Env& env, const std::vector<std::string>& also,
                                                             std::string_view loop_id);

// Ends every process that carries the loop's marker, until two looks find none: what a run that was killed has left.
// This program and those above it are spared. Returns those that were found, ended.
std::vector<ProcessResult::Survivor> sweep_loop(std::string_view loop_id, Clock& clock);

// 30 s, 60 s, … 15 min for the `waits`-th wait in a row (from 0), ±20 % by `u` in [0, 1).
std::chrono::milliseconds back_off_delay(int waits, double u);
// A usage limit that does not say when it resets: 15 min, 30 min, … 2 h.
std::chrono::milliseconds usage_limit_delay(int waits);

// Hides what an agent prints of its file updates: a line `file update: PATH` (create, add, delete, rename) and the diff
// after it. Feed it every line.
class OutputFilter {
public:
    explicit OutputFilter(bool show_file_updates) : m_show_all(show_file_updates) {}
    bool shows(std::string_view line);

private:
    bool continues_diff(std::string_view line);
    bool m_show_all;
    bool m_suppressing = false;
    bool m_counted = false;             // a hunk with line counts was seen: bare prefixes end with it
    std::int64_t m_old = 0, m_new = 0;  // lines that the hunk still has
};

}  // namespace gdnctl
