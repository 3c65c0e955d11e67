#include "loop/report/model.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/redact.h"
#include "core/text.h"
#include "runlog/records/words.h"

namespace gdnctl::loop {

namespace {

constexpr std::array<std::string_view, 5> k_stage_words = {"name", "verdict", "reason", "sign", "outcome"};
constexpr std::string_view k_fact = "fact.";
constexpr std::string_view k_gate = "gate.";

// Removes the next word from the front of `rest`.
std::string_view next_word(std::string_view& rest) {
    rest = text::trim(rest);
    const auto end = std::min(rest.find(' '), rest.size());
    const std::string_view word = rest.substr(0, end);
    rest.remove_prefix(end);
    return word;
}

bool is_relation(std::string_view word) {
    return word == "<=" || word == ">=" || word == "<" || word == ">" || word == "==";
}

StageView stage_view(const Record& record) {
    StageView stage;
    stage.name = record.word("name");
    stage.verdict = record.word("verdict");
    stage.reason = record.word("reason");
    stage.sign = record.word("sign");
    stage.outcome = record.word("outcome");
    stage.tpu_ms = record.count("tpu_ms");
    stage.wall_ms = record.count("wall_ms");
    for (const auto& [key, value] : record.text) {
        if (std::find(k_stage_words.begin(), k_stage_words.end(), key) != k_stage_words.end()) continue;
        std::string_view name = key;
        if (name.starts_with(k_fact)) name.remove_prefix(k_fact.size());
        std::string_view gate_name = name;
        if (gate_name.starts_with(k_gate)) gate_name.remove_prefix(k_gate.size());
        if (auto gate = parse_gate(gate_name, value)) {
            stage.gates.push_back(std::move(*gate));
        } else {
            stage.facts.emplace_back(name, value);
        }
    }
    return stage;
}

void end_attempt(IterationView& iteration, const Record& record) {
    if (iteration.attempts.empty()) return;
    AttemptView& attempt = iteration.attempts.back();
    attempt.ended = true;
    attempt.class_word = record.word("class");
    attempt.next = record.word("next");
    attempt.reason = record.word("reason");
    attempt.rc = record.count("rc");
    attempt.wall_ms = record.count("wall_ms");
    if (record.number.contains("tokens")) attempt.tokens = record.count("tokens");
    iteration.agent_ms += attempt.wall_ms;
    if (attempt.tokens) iteration.tokens = iteration.tokens.value_or(0) + *attempt.tokens;
}

void take_candidate(IterationView& iteration, const Record& record) {
    iteration.stages.clear();  // after following a moved branch, it is judged again
    iteration.head = record.word("head");
    iteration.diff = record.word("diff");
    iteration.leftovers = record.word("leftovers");
    iteration.patch = record.word("patch");
    iteration.commits = record.count("commits");
    iteration.files = record.count("files");
    iteration.protected_paths = record.word("protected");
    if (iteration.title.empty()) iteration.title = record.word("title");
    // If the loop followed a moved branch, a later record does not repeat this.
    if (const std::string gone = record.word("gone"); !gone.empty()) iteration.gone = gone;
}

void take_decision(IterationView& iteration, const Record& record) {
    iteration.decided = true;
    iteration.outcome = record.word("outcome");
    iteration.verdict = record.word("verdict");
    iteration.sign = record.word("sign");
    iteration.reason = record.word("reason");
    // If the decision has no sign, use that of the stage that refused it.
    if (!iteration.sign.empty() || iteration.stages.empty()) return;
    if (iteration.stages.back().verdict == "fail") iteration.sign = iteration.stages.back().sign;
}

void end_iteration(IterationView& iteration, const Record& record) {
    iteration.ended = true;
    iteration.finished = record.time;
    if (!record.word("outcome").empty()) iteration.outcome = record.word("outcome");
    if (!record.word("reason").empty() && iteration.reason.empty()) iteration.reason = record.word("reason");
    iteration.counted = record.count("counted") > 0;
    iteration.promoted = record.count("promoted") > 0;
    iteration.tpu_ms += record.count("tpu_ms");
}

void take(IterationView& iteration, const Record& record) {
    switch (record.type) {
        case RecordType::base:
            iteration.base = record.word("sha");
            iteration.branch = record.word("branch");
            break;
        case RecordType::attempt:
            iteration.attempts.emplace_back();
            iteration.attempts.back().number = static_cast<int>(record.count("attempt"));
            break;
        case RecordType::attempt_end: end_attempt(iteration, record); break;
        case RecordType::candidate: take_candidate(iteration, record); break;
        case RecordType::stage:
            iteration.stages.push_back(stage_view(record));
            iteration.tpu_ms += iteration.stages.back().tpu_ms;
            break;
        case RecordType::decision: take_decision(iteration, record); break;
        case RecordType::settled:
            iteration.settled = record.word("result");
            iteration.tip = record.word("tip");
            break;
        case RecordType::logged:
            iteration.log_commit = record.word("commit");
            iteration.log_number = record.word("number");
            break;
        case RecordType::iteration_end: end_iteration(iteration, record); break;
        default: break;
    }
}

void take_numbers(RunView& view, RunState state) {
    view.run = std::move(state.run);
    view.isolation = std::move(state.isolation);
    view.total = state.total;
    view.ended = state.ended;
    view.open = state.open;
    view.next = std::move(state.next);
    view.failures = state.failures;
    view.promotions = state.promotions;
    view.since_promotion = state.since_promotion;
    view.outcomes = std::move(state.outcomes);
    view.agent_ms = state.agent_ms;
    view.tpu_ms = state.tpu_ms;
    view.stop_reason = std::move(state.stop_reason);
    view.records = state.records;
}

}  // namespace

std::optional<GateView> parse_gate(std::string_view id, std::string_view fact) {
    std::string_view rest = fact;
    GateView gate{std::string(id), std::string(next_word(rest))};
    if (gate.result != "pass" && gate.result != "fail" && gate.result != "skip") return std::nullopt;
    std::string_view ahead = rest;
    const auto value = text::parse_double(next_word(ahead));
    const std::string_view relation = next_word(ahead);
    const auto limit = text::parse_double(next_word(ahead));
    if (value && limit && is_relation(relation)) {
        gate.value = value;
        gate.relation = relation;
        gate.limit = limit;
        rest = ahead;
    }
    gate.words = text::trim(rest);
    return gate;
}

std::optional<std::chrono::milliseconds> between(std::string_view earlier, std::string_view later) {
    const auto from = parse_iso8601(earlier);
    const auto to = parse_iso8601(later);
    if (!from || !to) return std::nullopt;
    return std::max(*to - *from, std::chrono::milliseconds(0));  // the clock may have been set back
}

RunState state_of(std::span<const Record> records) {
    std::int64_t total = 0;
    bool stashes = false;
    for (const Record& record : records) {
        const bool names_total = record.type == RecordType::run || record.type == RecordType::resume;
        if (names_total && record.number.contains("total")) total = record.count("total");
        stashes = stashes || record.type == RecordType::stash_intent;
    }
    return summarise(records, static_cast<int>(std::min<std::int64_t>(total, 1'000'000'000)), stashes);
}

RunView view_of(std::span<const Record> records) {
    RunView view;
    take_numbers(view, state_of(records));
    std::string_view before;
    for (const Record& record : records) {
        // For a resumed run, the time in between does not count.
        const auto spent =
            record.type == RecordType::resume || before.empty() ? std::nullopt : between(before, record.time);
        before = record.time;
        if (record.type == RecordType::run || record.type == RecordType::resume) {
            view.loop_id = record.word("loop_id");
            view.stop_rc.reset();
        }
        if (record.type == RecordType::run) {
            view.config = record.word("config");
            view.started = record.time;
        }
        if (record.type == RecordType::stop) view.stop_rc = record.count("rc");
        if (record.type == RecordType::iteration) {
            view.iterations.emplace_back();
            view.iterations.back().number = record.iteration;
            view.iterations.back().started = record.time;
        }
        if (record.type == RecordType::attempt_end && record.number.contains("tokens")) {
            view.tokens = view.tokens.value_or(0) + record.count("tokens");
        }
        const std::int64_t ms = spent ? spent->count() : 0;
        view.wall_ms += ms;
        if (record.iteration == 0 || view.iterations.empty()) continue;
        IterationView& iteration = view.iterations.back();
        if (iteration.number != record.iteration) continue;
        if (record.type != RecordType::iteration) iteration.wall_ms += ms;
        take(iteration, record);
    }
    // The records' times are whole seconds, the agent's are not.
    for (IterationView& iteration : view.iterations) {
        iteration.wall_ms = std::max(iteration.wall_ms, iteration.agent_ms);
    }
    view.wall_ms = std::max(view.wall_ms, view.agent_ms);
    if (!records.empty()) view.last = records.back().time;
    return view;
}

const IterationView* RunView::find(int number) const {
    const auto at =
        std::find_if(iterations.begin(), iterations.end(), [&](const auto& i) { return i.number == number; });
    return at == iterations.end() ? nullptr : &*at;
}

std::string RunView::step_text() const {
    if (iterations.empty() || iterations.back().ended) return "between two iterations";
    const IterationView& current = iterations.back();
    if (current.decided) return fmt::format("decided: {}; {}", shown(runlog::outcome_phrase(current.outcome)), next);
    if (!current.stages.empty()) {
        const StageView& stage = current.stages.back();
        return fmt::format("stage {} has ended: {}", shown(stage.name, 40), shown(stage.verdict, 10));
    }
    if (!current.head.empty()) return "the candidate is collected";
    if (current.attempts.empty()) return "the tree is made ready";
    const AttemptView& attempt = current.attempts.back();
    return fmt::format("attempt {} of the agent{}", attempt.number, attempt.ended ? " has ended" : "");
}

}  // namespace gdnctl::loop
