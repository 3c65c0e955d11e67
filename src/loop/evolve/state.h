// The state of an evolve run: its budget, its records folded one by one, the next step, and its journal on disk.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "core/time.h"
#include "loop/engine/journal.h"
#include "loop/evolve/selection.h"
#include "loop/measure/pairs.h"

namespace gdnctl::loop::evolve {

struct Budget {
    std::optional<std::int64_t> attempts, wall_s, tokens, no_improve;
    std::optional<double> usd, device_s;
    double reserve = 0.10;  // of wall and device time: for the final verification alone
    bool any() const { return attempts || wall_s || tokens || no_improve || usd || device_s; }
};

struct Spent {
    std::int64_t attempts = 0;  // that have a verdict; abandoned ones do not count
    double wall_s = 0;
    std::int64_t tokens = 0;
    double usd = 0;
    double device_s = 0;
    std::int64_t since_kept = 0;  // attempts
    bool operator==(const Spent&) const = default;
};

// Why no further attempt begins: "max-attempts", "max-wall", "max-tokens", "max-usd", "max-device-seconds",
// "max-no-improve"; empty: one may.
std::string_view ended_by(const Budget& budget, const Spent& spent);
// What is left of each limit that is set, by its word above with `_` ("wall_s", "device_s": the reserve aside).
std::map<std::string, double> left_of(const Budget& budget, const Spent& spent);

// Whether a limit of wall or device time is used up, the reserve included.
bool used_up(const Budget& budget, const Spent& spent);

struct Price {  // USD for a million tokens
    double in = 0, cached = 0, out = 0;
};
// `in` counts the cached ones, too.
double cost_of(const Price& price, std::int64_t in, std::int64_t cached, std::int64_t out);

// What the records of an evolve run say, folded one by one, and what comes next. The same function drives an
// undisturbed run and one that goes on after a kill. Pure.
//
// Types and payloads are those of docs/evolve.md. `attempt` is in every record from attempt_start to verdict; attempt 0
// is the base.

// What a candidate has to pass, in this order; the first that fails ends it.
inline constexpr std::array<std::string_view, 8> k_stages = {"paths",     "build", "test",   "oracle",
                                                             "anticheat", "bench", "target", "recheck"};

struct Gain {  // ln(T_champion / T_candidate)
    double est = 0, lo = 0, hi = 0;
    int n = 0;
    bool operator==(const Gain&) const = default;
};
Json json_of(const Gain& gain);
Gain read_gain(const Json& json);

struct Attempt : Member {
    std::string started;  // UTC
    std::string kind;     // class of the proposal
    std::string commit, mutable_key, patch_id, code_key, reason;
    std::optional<Gain> measured;  // against the champion of its time
    // What decided, and what people see: of a kept one, `measured` is from three pairs taken afterwards.
    std::optional<Gain> gate;
    double gate_gain = 0;  // ln(T_base / T) by what decided
    std::optional<std::int64_t> tokens;
    double usd = 0, wall_s = 0, device_s = 0;
    double roofline = 0;  // share of what is physically possible; 0: not known
    int like = 0;         // of a duplicate: the attempt that has its verdict
    int eval = 0;         // the evaluation that its gain is from
    // For a candidate that another program made: its origin, and that program's results; empty: ours.
    std::string origin, imported;
    double imported_speedup = 0;
};

struct StageResult {
    std::string name, verdict, reason;  // pass, fail, infra, skip
};

// The attempt that has no verdict yet, or one that is quarantined and not yet measured again.
struct OpenAttempt {
    int number = 0;  // 0: none
    bool proposed = false, has_snapshot = false;
    bool tampered = false;
    std::vector<std::string> refused, forbidden;
    std::vector<StageResult> stages;
    // What stage `target` found.
    std::string pair_verdict;  // keep, refuse, tie
    int champion = 0;
    Gain gate, fresh;             // that decided; of three pairs taken afterwards
    bool quarantined = false;     // has that verdict
    bool impossible = false;      // a profile is beyond what is physically possible
    bool slower_by_wall = false;  // although it is faster on the device
    std::string slower_shape;     // why it was refused although it is faster; empty: it is not
    std::string rerun_verdict;    // of the independent measurement after that; empty: not yet
};

struct State {
    std::string run, base, loop_id;
    std::string branch;  // that was checked out at the start; empty: HEAD was detached
    std::uint64_t seed = 0;
    std::string config, evaluator;              // JSON text of the resolved configuration; hash of what judges
    std::map<std::string, std::string> guards;  // protected path -> blob
    SelectionRules rules;
    std::vector<Attempt> attempts;  // by number, the base first
    int best = 0;
    OpenAttempt open;
    std::vector<int> to_judge;  // imported ones that are judged before anything new is tried
    std::string device;         // where the noise was measured, and everything since
    bool noise_measured = false;
    double noise_sd = 0;
    int noise_pairs = 0, noise_eval = 0;
    bool oracle_off = false;    // the base is not OK, so the target's oracle judges no attempt
    bool prints_nonce = false;  // the base's result has the nonce of its launch: so must all others
    Spent spent;
    std::map<std::string, double> left;  // of the budgets, when `spent` was `left_at`; see left_now()
    Spent left_at;
    std::string verified;  // JSON text of the last finished `verify` that no change of the configuration followed
    int infra_in_a_row = 0;
    int last_eval = 0;
    std::string stopped;  // reason of the last `stop` that no `resume` followed
    int logged = 0;       // the last attempt that experiment-log.md tells of
    std::string last_time;
    std::uint64_t records = 0;
    // Attempts by content and by patch, in order: for the two below.
    std::unordered_map<std::string, std::vector<int>> by_content, by_patch;

    bool begun() const { return !attempts.empty(); }
    const Attempt& at(int number) const { return attempts[static_cast<std::size_t>(number)]; }
    std::vector<Member> members() const;
    std::map<std::string, int> verdicts() const;  // by word, those that occur
    // The first attempt with a verdict that has the same content, or made the same patch; 0: none.
    int find_same_content(std::string_view mutable_key, int before) const;
    int find_same_patch(const Attempt& one) const;  // or the same but for comments, against the same parent
    // What is left of the budgets by now.
    std::map<std::string, double> left_now() const;
    // Takes one record. Errors: config (a type that is not known), conflict (it does not fit to those before).
    Status apply(const Json& record, std::string_view journal, std::size_t line);
};

enum class StepKind {
    start_run,      // no journal yet: `run_start`
    measure_noise,  // the base against itself
    begin_attempt,  // `attempt_start`
    run_agent,      // the agent, `proposal`, `snapshot`
    abandon,        // the agent was interrupted: a verdict without work
    run_stage,      // `eval_start`, `eval_stage`
    measure_again,  // a quarantined one, by itself
    decide,         // `verdict`
};

struct Step {
    StepKind kind = StepKind::start_run;
    std::string_view stage{};  // of run_stage
    bool operator==(const Step&) const = default;
};
// `interrupted`: the process that wrote the last record no longer runs.
Step next(const State& state, bool interrupted);

struct Decision {
    Verdict verdict = Verdict::none;
    std::string reason{};
    std::optional<Gain> gain{}, gate{};
    int like = 0;
    bool last = false;  // of quarantined: nothing is measured again
};
// The verdict on the open attempt. Call it once next() says decide.
Decision decide(const State& state);

// The journal of an evolve run: records on the climb's chain, folded into a State as they come.

inline constexpr std::string_view k_journal = "journal.jsonl";
// "attempt-0007": the folder of an attempt in the log directory.
std::string attempt_folder(int attempt);

class EvolveJournal {
public:
    // Errors: those of ChainJournal and State::apply().
    static Result<EvolveJournal> open(const std::filesystem::path& log_dir);
    const State& state() const { return m_state; }
    const std::string& cut_off() const { return m_chain.cut_off(); }
    // Returns when it is on the disk.
    Status add(std::string_view type, Json facts, WallTime now);

private:
    EvolveJournal(ChainJournal chain, State state, std::string name)
        : m_chain(std::move(chain)), m_state(std::move(state)), m_name(std::move(name)) {}
    ChainJournal m_chain;
    State m_state;
    std::string m_name;
};

// A run as its log directory has it, for views. Errors: remote_missing (exit 6: no journal there), those of open().
Result<State> load_state(const std::filesystem::path& log_dir);
// Every record of it, in order.
Status each_record(const std::filesystem::path& log_dir, const UseRecord& use);

}  // namespace gdnctl::loop::evolve
