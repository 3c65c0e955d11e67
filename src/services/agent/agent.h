// The coding agent of one attempt: a program that gets a prompt and changes a working tree. The loop gets plain values
// back. This code decides what they mean for retries; the loop decides when to retry.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
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

// Set in the environment of the agent and everything it starts, to find these processes even if all else is lost.
inline constexpr std::string_view k_loop_id_variable = "GDNCTL_LOOP_ID";

// How an attempt ended. The word in brackets appears in records (word_of).
enum class AgentClass {
    ok,                // [ok]
    configuration,     // [config] rejected before or by the first request: argv, configuration, model, effort
    authentication,    // [auth]
    quota,             // [quota] not covered by the plan or the credit; waiting does not help
    usage_limit,       // [usage-limit] resets at a known or unknown time
    rate_limit,        // [rate-limit]
    overloaded,        // [overloaded] the model has no capacity
    server_error,      // [server-error] 5xx
    unreachable,       // [unreachable] no connection
    stream_cut,        // [stream] the answer was cut off
    context_full,      // [context] the thread outgrew the model's window
    thread_missing,    // [no-thread] there is nothing to resume, or another thread was resumed
    invalid_prompt,    // [invalid-prompt] the model rejects the prompt
    incomplete,        // [incomplete] the answer reached its own length limit
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
    proceed,       // the work can be examined
    stop_loop,     // no retry can help; `stop_reason` says why
    back_off,      // wait (provider_pause, at least `retry_after`) and repeat; does not count as a failed iteration
    wait_until,    // wait until `not_before` and repeat (if absent: provider_pause); does not count as a failed
                   // iteration
    retry,         // retry, counted against the iteration's retries
    retry_once,    // the same, once
    fresh_thread,  // like retry, but never by resuming the thread
    count,         // a failed iteration, without retry
};
std::string_view word_of(AgentAction action);

struct AgentTokens {
    std::int64_t input = 0;         // including cached ones
    std::int64_t cached_input = 0;  // of `input`
    std::int64_t output = 0;        // including reasoning
    std::int64_t reasoning = 0;     // of `output`
    std::int64_t total() const { return input + output; }
    bool operator==(const AgentTokens&) const = default;
};

struct AgentLimits {
    std::chrono::milliseconds wall{std::chrono::hours(2)};  // 0: no limit; the same for the next three
    std::chrono::milliseconds idle{std::chrono::minutes(15)};
    // Replaces `idle` while a command of the agent is open or something that it started runs: device jobs can be silent
    // for an hour.
    std::chrono::milliseconds idle_while_busy{std::chrono::minutes(90)};
    std::int64_t tokens = 50'000'000;                 // of one attempt, including cached input
    int compactions = 10;                             // more than this end the attempt; < 0: no limit
    int requests = 2000;                              // to the model; more than this end the attempt; 0: no limit
    std::chrono::milliseconds interrupt_grace{5000};  // between SIGINT and SIGTERM
    std::chrono::milliseconds grace{2000};            // between SIGTERM and SIGKILL
};

// Files that an attempt writes; an empty path: none. Secrets are masked in the first three. Existing files are
// replaced.
struct AgentFiles {
    std::filesystem::path events;        // codex: one {"t":"<UTC time>","event":{...}} per line; otherwise the output
                                         // unchanged
    std::filesystem::path stderr_log;    // codex: its standard error
    std::filesystem::path rollout;       // codex: copy of the thread's rollout
    std::filesystem::path last_message;  // the final message; that of an earlier attempt is removed at the start
};

// One event, for the live status and for the diffs that the loop adds to file changes.
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
    std::string prompt;                              // passed unchanged on standard input
    std::filesystem::path worktree;                  // absolute
    std::string resume_thread;                       // codex: continues this thread; empty: a new one
    AgentTokens resumed_tokens;                      // tokens that the thread had used before, for agents without a
                                                     // rollout
    std::string loop_id;                             // value of GDNCTL_LOOP_ID; required
    std::map<std::string, std::string> environment;  // the complete environment, from agent_environment()
    AgentLimits limits;
    AgentFiles files;
    bool show_file_updates = false;
    bool keep_background = false;                           // background processes of a successful attempt keep running
    std::function<void(std::string_view line)> show;        // lines for people, filtered but not yet redacted
    std::function<void(std::string_view line)> transcript;  // all lines
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
    int exit_status = 0;      // the program's; 124 if one of our limits ended it; 128+N for signal N; never 0 unless ok
    std::string reason;       // one line for people, secrets masked; empty if ok
    bool explained = false;   // codex: `reason` is its own explanation of the failed turn
    std::string stop_reason;  // for stop_loop: codex-config, codex-auth, codex-quota
    std::optional<std::chrono::milliseconds> retry_after;
    std::optional<WallTime> not_before;

    std::string thread_id;              // empty: the agent has none
    std::string model, effort;          // those in use, if the agent reports them
    std::string final_message;          // of this attempt; empty if it failed before one
    std::optional<AgentTokens> tokens;  // of this attempt only; nullopt: unknown
    int requests = 0;                   // model responses, according to the rollout; 0: unknown
    int compactions = 0;
    std::vector<AgentRateWindow> rate_windows;  // 95 % used: wait for resets_at before the next attempt

    int commands = 0;
    int left_open = 0;                               // commands that started but never ended
    int unknown_events = 0;                          // they are kept in the events file
    int text_lines = 0;                              // lines of the event stream that were not events
    std::vector<ProcessResult::Survivor> survivors;  // outlived the agent; ended unless keep_background spared them
    std::chrono::milliseconds elapsed{0};
    AgentFiles files;
    bool ok() const { return kind == AgentClass::ok; }
};
// "class=ok rc=0 thread=… tokens=6000/5000/170 secs=4.1 survivors=0": the end of the loop's log line.
std::string summary_of(const AgentOutcome& outcome);

class Agent {
public:
    virtual ~Agent() = default;
    virtual std::string_view name() const = 0;
    // Runs one attempt to its end and ends everything that it started, except what keep_background spares. Errors:
    // usage (the request itself), local_io (the program cannot be started, or a file cannot be written). A failed
    // attempt is not an error.
    virtual Result<AgentOutcome> run(const AgentRequest& request) = 0;
};

// Any program that reads a prompt from standard input and edits its working directory. The last 64 KiB of its standard
// output are the final message. Exit code 0 is ok, any other is `failed`.
std::unique_ptr<Agent> make_command_agent(std::vector<std::string> argv, Process& process, Clock& clock);

// Returns the part of `env` that an agent gets: the documented allow-list (docs/agents.md), the names in `also`, and
// the marker. Names that suggest a secret are excluded, except the keys of the model provider and the names in `also`.
// From here on, log output masks the secrets of `env`, recognised by their names. Errors: usage, `also` names HF_TOKEN,
// WANDB_API_KEY or RAY_AUTH_TOKEN, or is not a valid name.
Result<std::map<std::string, std::string>> agent_environment(const Env& env, const std::vector<std::string>& also,
                                                             std::string_view loop_id);

// Ends every process with the loop's marker, left by a killed run, until two passes find none. Spares this program and
// its ancestors. Returns the processes that were found and ended.
std::vector<ProcessResult::Survivor> sweep_loop(std::string_view loop_id, Clock& clock);

// The pause that `back_off` and `wait_until` ask for, as the consecutive wait number `waits` (0-based): until the
// limit's known end, else 30 s, 60 s, … 15 min, ±20 % depending on `u` in [0, 1), and 15 min, 30 min, … 2 h. 0 for
// other actions.
std::chrono::milliseconds provider_pause(const AgentOutcome& outcome, int waits, double u, WallTime now);

// Limits how often a program is started whose starts fail: three a minute.
class StartLimit {
public:
    void failed(std::chrono::steady_clock::time_point started);
    void succeeded() { m_failed.clear(); }
    // How long the next start has to wait; 0: not at all.
    std::chrono::milliseconds wait(std::chrono::steady_clock::time_point now) const;

private:
    std::deque<std::chrono::steady_clock::time_point> m_failed;  // the last starts, in a row
};
// Whether the model's provider, or the way to it, is to blame: other attempts would fail alike until that changes.
bool is_providers(AgentClass kind);

// Hides an agent's output about file updates: a line `file update: PATH` (create, add, delete, rename) and the diff
// after it. Feed it every line.
class OutputFilter {
public:
    explicit OutputFilter(bool show_file_updates) : m_show_all(show_file_updates) {}
    bool shows(std::string_view line);

private:
    bool continues_diff(std::string_view line);
    bool m_show_all;
    bool m_suppressing = false;
    bool m_counted = false;             // a hunk with line counts was seen, so its end is known
    std::int64_t m_old = 0, m_new = 0;  // remaining lines of the hunk
};

}  // namespace gdnctl
