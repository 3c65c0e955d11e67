#include "loop/evolve/state.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <fmt/format.h>

#include "core/json.h"
#include "loop/evolve/views.h"

namespace gdnctl::loop::evolve {

std::string_view ended_by(const Budget& budget, const Spent& spent) {
    const double share = 1.0 - budget.reserve;
    if (budget.attempts && spent.attempts >= *budget.attempts) return "max-attempts";
    if (budget.wall_s && spent.wall_s >= static_cast<double>(*budget.wall_s) * share) return "max-wall";
    if (budget.tokens && spent.tokens >= *budget.tokens) return "max-tokens";
    if (budget.usd && spent.usd >= *budget.usd) return "max-usd";
    if (budget.device_s && spent.device_s >= *budget.device_s * share) return "max-device-seconds";
    if (budget.no_improve && spent.since_kept >= *budget.no_improve) return "max-no-improve";
    return {};
}

std::map<std::string, double> left_of(const Budget& budget, const Spent& spent) {
    std::map<std::string, double> out;
    const auto put = [&out](const char* name, const auto& limit, double share, auto gone) {
        if (limit) out[name] = std::max(static_cast<double>(*limit) * share - static_cast<double>(gone), 0.0);
    };
    put("attempts", budget.attempts, 1, spent.attempts);
    put("wall_s", budget.wall_s, 1 - budget.reserve, spent.wall_s);
    put("tokens", budget.tokens, 1, spent.tokens);
    put("usd", budget.usd, 1, spent.usd);
    put("device_s", budget.device_s, 1 - budget.reserve, spent.device_s);
    put("no_improve", budget.no_improve, 1, spent.since_kept);
    return out;
}

bool used_up(const Budget& budget, const Spent& spent) {
    return (budget.wall_s && spent.wall_s >= static_cast<double>(*budget.wall_s)) ||
           (budget.device_s && spent.device_s >= *budget.device_s);
}

double cost_of(const Price& price, std::int64_t in, std::int64_t cached, std::int64_t out) {
    const auto fresh = static_cast<double>(std::max<std::int64_t>(in - cached, 0));
    return (fresh * price.in + static_cast<double>(cached) * price.cached + static_cast<double>(out) * price.out) / 1e6;
}

namespace fs = std::filesystem;

namespace {

double number(const Json& record, const char* key) { return json::number(record, key).value_or(0); }

int whole(const Json& record, const char* key) {
    const double value = number(record, key);
    return std::abs(value) < 1e9 ? static_cast<int>(value) : 0;
}

constexpr const char* k_slower_by_wall = "faster on the device, but slower by wall time";

bool truth(const Json& record, const char* key) { return json::boolean(record, key).value_or(false); }

void apply_run_start(State& state, const Json& record) {
    state.run = json::text(record, "run");
    state.base = json::text(record, "base");
    state.loop_id = json::text(record, "loop_id");
    state.branch = json::text(record, "branch");
    state.evaluator = json::text(record, "evaluator");
    const Json& seed = json::field(record, "seed");
    state.seed = seed.is_number_unsigned() ? seed.get<std::uint64_t>() : 0;
    const Json& guards = json::field(record, "protected");
    for (const auto& [path, blob] : guards.items()) {
        if (blob.is_string()) state.guards[path] = blob.get<std::string>();
    }
    Attempt base;
    base.verdict = Verdict::kept;
    base.commit = state.base;
    base.mutable_key = json::text(record, "mutable_key");
    base.measured = base.gate = Gain{};
    state.attempts = {base};
}

void apply_config(State& state, const Json& config) {
    if (!config.is_object()) return;
    state.config = gdnctl::to_text(config);
    state.rules.seed = state.seed;
    state.rules.lineages = std::max(whole(config, "lineages"), 1);
    state.rules.stagnation = std::max(whole(config, "stagnation"), 1);
    if (auto mix = parse_mix(json::text(config, "operator_mix"))) state.rules.mix = *mix;
}

void apply_attempt_start(State& state, const Json& record) {
    Attempt one;
    one.number = whole(record, "attempt");
    one.op = parse_operator(json::text(record, "operator")).value_or(Operator::explore);
    one.lineage = whole(record, "lineage");
    one.restart = truth(record, "restart");
    one.started = json::text(record, "ts");
    for (const auto& parent : json::field(record, "parents")) {
        const int parent_number = whole(parent, "attempt");
        if (parent_number >= 0 && parent_number < one.number) one.parents.push_back(parent_number);
    }
    if (one.parents.empty()) one.parents.push_back(0);
    state.open = {};
    state.open.number = one.number;
    state.attempts.push_back(std::move(one));
}

void apply_left(State& state, const Json& left) {
    state.left.clear();
    state.left_at = state.spent;
    for (const auto& [name, value] : left.items()) {
        if (value.is_number()) state.left[name] = value.get<double>();
    }
}

// Noise that other clusters or another evaluator have measured says nothing.
void apply_config_change(State& state, const Json& record) {
    const auto clusters_of = [](const std::string& text) {
        const Json config = Json::parse(text, nullptr, false);
        return config.is_object() ? json::texts(config, "clusters") : std::vector<std::string>();
    };
    const std::string config = state.config, judged_by = state.evaluator;
    apply_config(state, json::field(record, "config"));
    if (record.contains("evaluator")) state.evaluator = json::text(record, "evaluator");
    const bool others = state.evaluator != judged_by || clusters_of(state.config) != clusters_of(config);
    if (record.contains("device") || others) state.noise_measured = false;
    state.verified.clear();
}

// The candidates that are missing now; without the best one, the best of the others is.
void apply_missing(State& state, const Json& numbers) {
    for (Attempt& one : state.attempts) one.gone = false;
    for (const auto& number : numbers) {
        const auto at = number.is_number_integer() ? number.get<std::int64_t>() : 0;
        if (at > 0 && at < std::ssize(state.attempts)) state.attempts[static_cast<std::size_t>(at)].gone = true;
    }
    state.best = best_of(state.members());
}

void apply_verification(State& state, const Json& record) {
    const Json& gates = json::field(record, "gates");
    const bool finished = std::none_of(gates.begin(), gates.end(),
                                       [](const Json& gate) { return json::text(gate, "verdict") == "infra"; });
    if (finished) state.verified = gdnctl::to_text(record);
    state.spent.wall_s += number(record, "wall_s");
    state.spent.device_s += number(record, "device_s");
}

void apply_proposal(State& state, Attempt& one, const Json& record) {
    state.open.proposed = true;
    state.open.forbidden = json::texts(record, "forbidden_paths");
    state.open.tampered = truth(record, "tampered");
    one.kind = json::text(record, "class");
    if (one.kind != "infra") state.infra_in_a_row = 0;
    one.technique = json::text(record, "technique");
    one.wall_s = number(record, "wall_s");
    one.usd = number(record, "cost");
    state.spent.usd += one.usd;
    const Json& tokens = json::field(record, "tokens");
    const auto total = [](const Json& t) { return static_cast<std::int64_t>(number(t, "in") + number(t, "out")); };
    if (tokens.is_object()) {
        one.tokens = total(tokens);
        state.spent.tokens += *one.tokens;
        return;
    }
    // A killed agent reports none: the largest of recent attempts is charged.
    std::int64_t largest = 0;
    const std::size_t recent = state.attempts.size() > 9 ? state.attempts.size() - 9 : 0;
    for (std::size_t i = recent; i < state.attempts.size(); ++i) {
        largest = std::max(largest, state.attempts[i].tokens.value_or(0));
    }
    state.spent.tokens += largest;
}

bool has_verdict(const Attempt& one) { return one.verdict != Verdict::abandoned && one.verdict != Verdict::infra; }

void remember(State& state, const Attempt& one) {
    if (!one.mutable_key.empty()) state.by_content[one.mutable_key].push_back(one.number);
    if (!one.patch_id.empty()) state.by_patch[one.patch_id].push_back(one.number);
    if (!one.code_key.empty()) state.by_patch[one.code_key].push_back(one.number);
}

void apply_snapshot(State& state, Attempt& one, const Json& record) {
    state.open.has_snapshot = true;
    state.open.refused = json::texts(record, "refused");
    one.commit = json::text(record, "commit");
    one.mutable_key = json::text(record, "mutable_key");
    one.patch_id = json::text(record, "patch_id");
    one.code_key = json::text(record, "code_key");
    remember(state, one);
    one.lines = whole(record, "added") + whole(record, "removed");
    for (const auto& file : json::texts(record, "files")) one.place += (one.place.empty() ? "" : ",") + file;
}

void apply_stage(State& state, const Json& record) {
    const std::string verdict = json::text(record, "verdict"), stage = json::text(record, "stage");
    const double device_s = number(record, "device_s");
    state.spent.device_s += device_s;
    const int about = whole(record, "attempt");
    if (about > 0) state.attempts[static_cast<std::size_t>(about)].device_s += device_s;
    state.infra_in_a_row = verdict == "infra" ? state.infra_in_a_row + 1 : verdict == "skip" ? state.infra_in_a_row : 0;
    const Json& metrics = json::field(record, "metrics");
    if (stage == "noise") {
        if (verdict == "infra") return;
        state.noise_measured = true;
        state.device = json::text(record, "device");
        if (state.device == "local") state.device.clear();  // of before machines had names
        state.noise_sd = number(metrics, "sd");
        state.noise_pairs = whole(metrics, "pairs");
        state.noise_eval = whole(record, "eval_id");
        state.oracle_off = json::text(record, "oracle_use") == "off";
        state.attempts.front().roofline = number(metrics, "roofline");
        state.prints_nonce = truth(metrics, "nonce");
        return;
    }
    if (verdict == "infra" || about == 0) return;  // it is taken again
    if (stage == "target") state.attempts[static_cast<std::size_t>(about)].eval = whole(record, "eval_id");
    if (truth(record, "rerun")) {
        state.open.rerun_verdict = verdict == "pass" ? json::text(metrics, "verdict") : "fail";
        if (truth(metrics, "slower_by_wall")) state.open.rerun_verdict = k_slower_by_wall;
        if (verdict == "pass") state.open.fresh = read_gain(json::field(metrics, "fresh"));
        return;
    }
    state.open.impossible = truth(record, "impossible");
    state.open.stages.push_back({stage, verdict, json::text(record, "reason")});
    if (stage != "target" || !metrics.is_object()) return;
    state.attempts[static_cast<std::size_t>(about)].roofline = number(metrics, "roofline");
    state.open.pair_verdict = json::text(metrics, "verdict");
    state.open.champion = whole(metrics, "champion");
    state.open.slower_shape = json::text(metrics, "slower_shape");
    state.open.slower_by_wall = truth(metrics, "slower_by_wall");
    state.open.gate = read_gain(json::field(metrics, "gate"));
    state.open.fresh = metrics.contains("fresh") ? read_gain(json::field(metrics, "fresh")) : state.open.gate;
}

void apply_verdict(State& state, Attempt& one, const Json& record) {
    const auto verdict = parse_verdict(json::text(record, "verdict"));
    const bool second = one.verdict == Verdict::quarantined;
    one.verdict = verdict.value_or(Verdict::invalid);
    one.reason = json::text(record, "reason");
    one.like = whole(record, "like");
    one.broken = one.verdict == Verdict::invalid && state.open.has_snapshot && state.open.refused.empty();
    if (record.contains("gain")) {
        one.measured = read_gain(json::field(record, "gain"));
        const int champion = std::clamp(state.open.champion, 0, static_cast<int>(state.attempts.size()) - 1);
        one.gain = state.at(champion).gain + one.measured->est;
        one.gate = record.contains("gate") ? read_gain(json::field(record, "gate")) : *one.measured;
        one.gate_gain = state.at(champion).gate_gain + one.gate->est;
    }
    if (!second && one.verdict != Verdict::abandoned && one.verdict != Verdict::infra) {
        ++state.spent.attempts;
        ++state.spent.since_kept;
    }
    if (one.verdict == Verdict::infra) ++state.infra_in_a_row;
    if (one.verdict == Verdict::kept) {
        state.spent.since_kept = 0;
        state.best = one.number;
    }
    if (one.verdict == Verdict::quarantined && !truth(record, "final")) {
        state.open.quarantined = true;
        return;
    }
    state.open = {};
}

// A candidate that another program made. Its score is not ours, so it is judged again, unless it failed there.
void apply_import(State& state, const Json& record) {
    Attempt one;
    one.number = whole(record, "attempt");
    one.lineage = one.number % state.rules.lineages;
    one.started = json::text(record, "ts");
    one.origin = json::text(record, "origin");
    one.imported = json::text(record, "status");
    one.imported_speedup = number(record, "speedup");
    one.commit = json::text(record, "commit");
    one.mutable_key = json::text(record, "mutable_key");
    one.patch_id = json::text(record, "patch_id");
    one.code_key = json::text(record, "code_key");
    one.kind = "ok";
    for (const auto& parent : json::field(record, "parents")) {
        const int parent_number = whole(parent, "attempt");
        if (parent_number >= 0 && parent_number < one.number) one.parents.push_back(parent_number);
    }
    if (one.parents.empty()) one.parents.push_back(0);
    if (one.imported == "noop") {
        one.verdict = Verdict::noop;
    } else if (one.imported == "compile_failed" || one.imported == "incorrect") {
        one.verdict = Verdict::invalid;
        one.broken = !one.commit.empty();
    } else {
        state.to_judge.push_back(one.number);
    }
    if (one.verdict != Verdict::none) one.reason = "imported: " + one.imported;
    remember(state, one);
    state.attempts.push_back(std::move(one));
}

// The best of the imported ones that are still to be judged.
void open_import(State& state) {
    if (state.open.number != 0 || !state.noise_measured) return;
    const auto rank = [&](int number) { return std::pair(!state.at(number).gone, state.at(number).imported_speedup); };
    const auto best =
        std::max_element(state.to_judge.begin(), state.to_judge.end(), [&](int a, int b) { return rank(a) < rank(b); });
    if (best == state.to_judge.end() || state.at(*best).gone) return;
    state.open = {};
    state.open.number = *best;
    state.open.proposed = state.open.has_snapshot = true;
    state.to_judge.erase(best);
}

// What a class of proposal means by itself; none: its work is judged.
Verdict verdict_of_class(std::string_view kind) {
    if (kind == "empty" || kind == "noop") return Verdict::noop;
    if (kind == "abstained") return Verdict::abstained;
    if (kind == "infra") return Verdict::infra;
    if (kind == "ok" || kind == "partial_edit") return kind == "ok" ? Verdict::none : Verdict::invalid;
    return Verdict::invalid;  // timeout, idle_timeout, over_tokens, truncated, refused, agent_error
}

}  // namespace

Json json_of(const Gain& gain) {
    return {{"est", gain.est}, {"lo", gain.lo}, {"hi", gain.hi}, {"n", gain.n}, {"unit", "ln"}};
}

Gain read_gain(const Json& json) {
    return {number(json, "est"), number(json, "lo"), number(json, "hi"), whole(json, "n")};
}

std::map<std::string, double> State::left_now() const {
    const std::pair<const char*, double> gone[] = {
        {"attempts", static_cast<double>(spent.attempts - left_at.attempts)},
        {"wall_s", spent.wall_s - left_at.wall_s},
        {"tokens", static_cast<double>(spent.tokens - left_at.tokens)},
        {"usd", spent.usd - left_at.usd},
        {"device_s", spent.device_s - left_at.device_s},
        {"no_improve", static_cast<double>(spent.since_kept - left_at.since_kept)},
    };
    std::map<std::string, double> out = left;
    for (const auto& [name, value] : gone) {
        if (const auto at = out.find(name); at != out.end()) at->second = std::max(at->second - value, 0.0);
    }
    return out;
}

std::vector<Member> State::members() const { return {attempts.begin(), attempts.end()}; }

std::map<std::string, int> State::verdicts() const {
    std::map<Verdict, int> counts;
    for (std::size_t i = 1; i < attempts.size(); ++i) ++counts[attempts[i].verdict];
    counts.erase(Verdict::none);
    std::map<std::string, int> out;
    for (const auto& [verdict, count] : counts) out[std::string(to_text(verdict))] = count;
    return out;
}

int State::find_same_content(std::string_view mutable_key, int before) const {
    const auto found = by_content.find(std::string(mutable_key));
    if (found == by_content.end()) return 0;
    for (const int number : found->second) {
        if (number < before && has_verdict(at(number))) return number;
    }
    return 0;
}

int State::find_same_patch(const Attempt& one) const {
    for (const std::string& key : {one.patch_id, one.code_key}) {
        const auto found = by_patch.find(key);
        if (found == by_patch.end()) continue;
        for (const int number : found->second) {
            const Attempt& other = at(number);
            if (number < one.number && other.parents.front() == one.parents.front() && has_verdict(other))
                return number;
        }
    }
    return 0;
}

Status State::apply(const Json& record, std::string_view journal, std::size_t line) {
    const std::string type = json::text(record, "type");
    const int about = whole(record, "attempt");
    const auto misplaced = [&] { return damaged_journal(journal, line, fmt::format("{} is out of place", type)); };
    if (type == "run_start") {
        if (begun()) return misplaced();
        apply_run_start(*this, record);
        apply_config(*this, json::field(record, "config"));
    } else if (!begun()) {
        return misplaced();
    } else if (type == "config_change") {
        apply_config_change(*this, record);
    } else if (type == "attempt_start") {
        if (open.number != 0 || about != static_cast<int>(attempts.size())) return misplaced();
        apply_attempt_start(*this, record);
    } else if (type == "proposal" || type == "snapshot" || type == "verdict") {
        if (about == 0 || about != open.number) return misplaced();
        Attempt& one = attempts[static_cast<std::size_t>(about)];
        if (type == "proposal") apply_proposal(*this, one, record);
        if (type == "snapshot") apply_snapshot(*this, one, record);
        if (type == "verdict") apply_verdict(*this, one, record);
    } else if (type == "eval_start" || type == "eval_stage") {
        if (about != 0 && about != open.number) return misplaced();
        last_eval = std::max(last_eval, whole(record, "eval_id"));
        if (type == "eval_stage") apply_stage(*this, record);
    } else if (type == "import") {
        if (open.number != 0 || about != static_cast<int>(attempts.size())) return misplaced();
        apply_import(*this, record);
    } else if (type == "stop") {
        stopped = json::text(record, "reason");
        logged = record.contains("logged") ? whole(record, "logged") : static_cast<int>(attempts.size()) - 1;
    } else if (type == "resume") {
        stopped.clear();
        infra_in_a_row = 0;
    } else if (type == "repair") {
        if (record.contains("missing")) apply_missing(*this, json::field(record, "missing"));
    } else if (type == "verify") {
        apply_verification(*this, record);
    } else {
        constexpr std::array<std::string_view, 6> k_noted = {"edit_report", "promote", "infra_error",
                                                             "budget",      "steer",   "pause"};
        if (std::find(k_noted.begin(), k_noted.end(), type) == k_noted.end()) {
            return unknown_record(journal, line, "a record of this type");
        }
    }
    const std::string now = json::text(record, "ts");
    if (record.contains("budget_left")) apply_left(*this, json::field(record, "budget_left"));
    // The time before a session, and that of other commands, does not count.
    constexpr std::array<std::string_view, 5> k_apart = {"resume", "config_change", "repair", "verify", "promote"};
    if (now != last_time && std::find(k_apart.begin(), k_apart.end(), type) == k_apart.end()) {
        const auto before = parse_iso8601(last_time), after = parse_iso8601(now);
        if (before && after && *after > *before)
            spent.wall_s += std::chrono::duration<double>(*after - *before).count();
    }
    last_time = now;
    open_import(*this);
    records = line;
    return {};
}

// From a state to the next step and to a verdict.

Step next(const State& state, bool interrupted) {
    if (!state.begun()) return {StepKind::start_run};
    if (!state.noise_measured) return {StepKind::measure_noise};
    const OpenAttempt& open = state.open;
    if (open.number == 0) return {StepKind::begin_attempt};
    if (state.at(open.number).gone) return {StepKind::abandon};
    if (open.quarantined) return {open.rerun_verdict.empty() ? StepKind::measure_again : StepKind::decide};
    if (!open.proposed) return {interrupted ? StepKind::abandon : StepKind::run_agent};
    const Attempt& one = state.at(open.number);
    if (open.tampered || verdict_of_class(one.kind) != Verdict::none) return {StepKind::decide};
    if (!open.has_snapshot) return {StepKind::abandon};  // killed before its commit was on record
    const bool same = state.find_same_content(one.mutable_key, one.number) != 0 || state.find_same_patch(one) != 0 ||
                      one.mutable_key == state.at(0).mutable_key;
    if (!open.refused.empty() || same) return {StepKind::decide};
    for (const StageResult& stage : open.stages) {
        if (stage.verdict == "fail") return {StepKind::decide};
    }
    // What is not kept has nothing to check again.
    const bool judged = !open.pair_verdict.empty() && open.pair_verdict != "keep";
    if (judged || open.stages.size() >= k_stages.size()) return {StepKind::decide};
    return {StepKind::run_stage, k_stages[open.stages.size()]};
}

Decision decide(const State& state) {
    const OpenAttempt& open = state.open;
    const Attempt& one = state.at(open.number);
    if (open.quarantined) {
        if (open.rerun_verdict == "keep") return {Verdict::kept, "an independent run agrees", open.fresh, open.gate};
        return {Verdict::rejected, "an independent run does not agree: " + open.rerun_verdict};
    }
    if (open.tampered) return {Verdict::tampered, "protected files were changed"};
    if (const Verdict by_class = verdict_of_class(one.kind); by_class != Verdict::none) return {by_class, one.kind};
    if (!open.refused.empty()) return {Verdict::invalid, "refused: " + open.refused.front()};
    if (one.mutable_key == state.at(0).mutable_key) return {Verdict::duplicate, "the same content as the base"};
    int same = state.find_same_content(one.mutable_key, one.number);
    if (same == 0) same = state.find_same_patch(one);
    if (same != 0) {
        return {Verdict::duplicate,
                fmt::format("the same change as attempt {}: {}", same, to_text(state.at(same).verdict)), std::nullopt,
                std::nullopt, same};
    }
    for (const StageResult& stage : open.stages) {
        if (stage.verdict == "fail" && open.impossible) {
            return {.verdict = Verdict::quarantined,
                    .reason = fmt::format("{}: {}", stage.name, stage.reason),
                    .last = true};
        }
        if (stage.verdict == "fail") return {Verdict::invalid, fmt::format("{}: {}", stage.name, stage.reason)};
    }
    if (!open.slower_shape.empty()) {
        return {Verdict::rejected, "slower on shape " + open.slower_shape, open.gate, open.gate};
    }
    if (open.pair_verdict == "refuse") return {Verdict::rejected, "slower than the champion", open.gate, open.gate};
    if (open.pair_verdict == "keep") {
        // A gain above 2x in one step is not believed without an independent run.
        if (open.gate.est > std::log(2.0)) {
            return {Verdict::quarantined, "a gain above 2x: measured again", open.fresh, open.gate};
        }
        if (open.slower_by_wall) {
            return {Verdict::quarantined, fmt::format("{}: measured again", k_slower_by_wall), open.fresh, open.gate};
        }
        return {Verdict::kept, {}, open.fresh, open.gate};
    }
    return {Verdict::tie, "not distinguishable from the champion", open.gate, open.gate};
}

std::string attempt_folder(int attempt) { return fmt::format("attempt-{:04}", attempt); }

Result<EvolveJournal> EvolveJournal::open(const fs::path& log_dir) {
    const fs::path file = log_dir / k_journal;
    State state;
    GDNCTL_TRY_ASSIGN(ChainJournal chain, ChainJournal::open(file, [&](const Json& record, std::size_t line) {
                          return state.apply(record, file.string(), line);
                      }));
    return EvolveJournal(std::move(chain), std::move(state), file.string());
}

Status EvolveJournal::add(std::string_view type, Json facts, WallTime now) {
    const std::string time = format_iso8601(now);
    GDNCTL_TRY(m_chain.append(type, facts, time));
    facts["type"] = type;
    facts["ts"] = time;
    GDNCTL_TRY(m_state.apply(facts, m_name, m_chain.records()));
    write_index(fs::path(m_name).parent_path(), m_state, m_chain.last_line());
    return {};
}

Status each_record(const fs::path& log_dir, const UseRecord& use) {
    const fs::path file = log_dir / k_journal;
    std::error_code problem;
    if (!fs::exists(file, problem)) {
        return fail(ErrorKind::remote_missing, fmt::format("no evolve run in {}", log_dir.string()),
                    "start one with `gdnctl codex-loop --mode evolve`, or name another directory with --log-dir");
    }
    GDNCTL_TRY_ASSIGN(const std::string last, read_chain_file(file, use));
    return last.empty() ? check_never_begun(file) : Status();
}

Result<State> load_state(const fs::path& log_dir) {
    State state;
    const std::string name = (log_dir / k_journal).string();
    GDNCTL_TRY(
        each_record(log_dir, [&](const Json& record, std::size_t line) { return state.apply(record, name, line); }));
    return state;
}

}  // namespace gdnctl::loop::evolve
