// From a state to the next step and to a verdict.
#include <cmath>

#include <fmt/format.h>

#include "loop/evolve/state.h"

namespace gdnctl::loop::evolve {

Verdict verdict_of_class(std::string_view kind) {
    if (kind == "empty" || kind == "noop") return Verdict::noop;
    if (kind == "abstained") return Verdict::abstained;
    if (kind == "infra") return Verdict::infra;
    if (kind == "ok" || kind == "partial_edit") return kind == "ok" ? Verdict::none : Verdict::invalid;
    return Verdict::invalid;  // timeout, idle_timeout, over_tokens, truncated, refused, agent_error
}

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
    if (one.mutable_key == state.at(0).mutable_key) {
        return {Verdict::duplicate, "the same content as the base"};
    }
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
        if (stage.verdict == "fail") {
            return {Verdict::invalid, fmt::format("{}: {}", stage.name, stage.reason)};
        }
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
        return {Verdict::kept, {}, open.fresh, open.gate};
    }
    return {Verdict::tie, "not distinguishable from the champion", open.gate, open.gate};
}

}  // namespace gdnctl::loop::evolve
