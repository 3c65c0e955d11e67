#include "loop/perf/gates.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/text.h"

namespace gdnctl::loop {

namespace {

constexpr std::array k_default_limits = {
    LimitOption{"max_while_increase_ms", "--perf-max-while-increase-ms", "largest allowed growth of `while`", "5.0"},
    LimitOption{"new_conditional_ms", "--perf-new-conditional-ms", "smallest `conditional` that counts as a new bucket",
                "5.0"},
    LimitOption{"max_dispatch_shard_shell_increase_ms", "--perf-max-dispatch-shard-shell-increase-ms",
                "largest allowed growth of the dispatch/shard shell", "2.0"},
    LimitOption{"max_ad_wrapper_shell_increase_ms", "--perf-max-ad-wrapper-shell-increase-ms",
                "largest allowed growth of the AD/wrapper shell", "1.0"},
    LimitOption{"max_xprof_idle_increase_ms", "--perf-max-xprof-idle-increase-ms",
                "largest allowed growth of idle time (xprof)", "0.5"},
    LimitOption{"min_xprof_dispatch_shard_shell_drop_ms", "--perf-min-xprof-dispatch-shard-shell-drop-ms",
                "smallest drop of the dispatch/shard shell (xprof) required of a change to the sharding envelope",
                "2.0"},
    LimitOption{"max_xprof_ad_wrapper_shell_increase_ms", "--perf-max-xprof-ad-wrapper-shell-increase-ms",
                "largest allowed growth of the AD/wrapper shell (xprof)", "1.0"},
    LimitOption{"max_train_path_budget_increase_ms", "--perf-max-train-path-budget-increase-ms",
                "largest allowed growth of the train path", "5.0"},
    LimitOption{"min_train_path_drop_ms", "--perf-min-train-path-drop-ms",
                "smallest drop that counts as a shorter train path", "1.0"},
    LimitOption{"step_duration_improvement_margin_ms", "--perf-step-duration-improvement-margin-ms",
                "smallest drop that counts as a shorter step", "0.2"},
    LimitOption{"min_dispatch_shard_shell_drop_ms", "--perf-min-dispatch-shard-shell-drop-ms",
                "smallest drop that counts as a smaller dispatch/shard shell", "1.0"},
    LimitOption{"max_remainder_budget_increase_ms", "--perf-max-remainder-budget-increase-ms",
                "largest allowed growth of the remainder and the interaction remainder", "2.0"},
    LimitOption{"max_decoder_layer_shell_budget_increase_ms", "--perf-max-decoder-layer-shell-budget-increase-ms",
                "largest allowed growth of the hybrid generic shell", "2.0"},
    LimitOption{"min_decoder_layer_shell_drop_ms", "--perf-min-decoder-layer-shell-drop-ms",
                "smallest drop that counts as a smaller hybrid generic shell", "1.0"},
};

constexpr std::string_view k_step = "step_duration_ms";
constexpr std::string_view k_margin = "step_duration_improvement_margin_ms";

GateCondition condition(std::string_view metric, When when, std::string_view limit, std::string_view otherwise = {}) {
    return {std::string(metric), std::string(otherwise), when, std::string(limit)};
}

Gate rise_gate(std::string_view id, std::string_view metric, std::string_view limit, std::string_view says = {},
               std::string_view otherwise = {}) {
    constexpr std::string_view k_usual = "`{metric}` increased by {rise} ms ({before} -> {after}, limit {limit})";
    return {std::string(id),
            {condition(metric, When::rises_over, limit, otherwise)},
            {},
            std::string(says.empty() ? k_usual : says)};
}

// Gates on one bucket that must not grow, or has to shrink.
void add_bucket_gates(std::vector<Gate>& gates) {
    gates.push_back(rise_gate("while", "while_ms", "max_while_increase_ms"));
    gates.push_back({"conditional",
                     {condition("conditional_ms", When::new_bucket, "new_conditional_ms")},
                     {},
                     "`{metric}` became a new large bucket: {before} -> {after} (limit {limit})"});
    gates.push_back(rise_gate("dispatch-shard", "dispatch_shard_shell_delta_ms", "max_dispatch_shard_shell_increase_ms",
                              {}, "xprof_dispatch_shard_shell_delta_ms"));
    gates.push_back(rise_gate("ad-wrapper", "ad_wrapper_shell_delta_ms", "max_ad_wrapper_shell_increase_ms", {},
                              "xprof_ad_wrapper_shell_delta_ms"));
    gates.push_back(rise_gate("xprof-idle", "xprof_idle_attributed_ms", "max_xprof_idle_increase_ms"));
    gates.push_back({"xprof-dispatch-shard",
                     {condition("xprof_dispatch_shard_shell_delta_ms", When::drops_less_than,
                                "min_xprof_dispatch_shard_shell_drop_ms")},
                     {"branch-core sharding envelope"},
                     "matched xprof `dispatch_shard_shell_delta_ms` did not improve materially ({before} -> {after}, "
                     "least drop {limit}): the local delta is a prefilter only"});
    gates.push_back(rise_gate(
        "xprof-ad-wrapper", "xprof_ad_wrapper_shell_delta_ms", "max_xprof_ad_wrapper_shell_increase_ms",
        "matched xprof `ad_wrapper_shell_delta_ms` increased by {rise} ms ({before} -> {after}, limit {limit})"));
    gates.push_back(rise_gate("train-path", "train_path_budget_ms", "max_train_path_budget_increase_ms"));
}

// Gates on the step as a whole: it has to follow what its parts gained.
void add_step_gates(std::vector<Gate>& gates) {
    const GateCondition train = condition("train_path_budget_ms", When::drops_by, "min_train_path_drop_ms");
    const GateCondition step = condition(k_step, When::drops_less_than, k_margin);
    gates.push_back({"off-critical-path",
                     {train, step},
                     {},
                     "`{metric}` dropped by {drop} ms but `step_duration_ms` by {2.drop} ms: classify as "
                     "off-critical-path or overlap-loss"});
    gates.push_back({"waiting",
                     {step, condition("dispatch_shard_shell_delta_ms", When::drops_less_than,
                                      "min_dispatch_shard_shell_drop_ms", "xprof_dispatch_shard_shell_delta_ms")},
                     {},
                     "`step_duration_ms` dropped by {drop} ms and `{2.metric}` by {2.drop} ms: waiting/serialization "
                     "still dominant"});
    gates.push_back(rise_gate("remainder", "remainder_budget_ms", "max_remainder_budget_increase_ms"));
    gates.push_back(rise_gate("interaction", "interaction_remainder_ms", "max_remainder_budget_increase_ms"));
    gates.push_back(rise_gate("hybrid-generic", "hybrid_generic_shell_delta_budget_ms",
                              "max_decoder_layer_shell_budget_increase_ms"));
    gates.push_back(
        {"namespace-only",
         {train, step,
          condition("hybrid_generic_shell_delta_budget_ms", When::drops_less_than, "min_decoder_layer_shell_drop_ms")},
         {},
         "`{metric}` dropped by {drop} ms, `step_duration_ms` by {2.drop} ms and `{3.metric}` by {3.drop} "
         "ms: namespace-only / renamed-bucket progress"});
}

struct Sides {
    std::string metric;
    double before = 0.0, after = 0.0, limit = 0.0;
};

const double* number_in(const MetricMap& metrics, std::string_view name) {
    const auto it = metrics.find(name);
    return it == metrics.end() ? nullptr : &it->second;
}

// The two numbers of a condition, both from the same source; otherwise the metric that is missing.
std::optional<Sides> sides_of(const GateCondition& c, const PerfPolicy& policy, const MetricMap& champion,
                              const MetricMap& candidate, std::string& lack) {
    for (const std::string& name : {c.metric, c.otherwise}) {
        if (name.empty()) continue;
        const double* before = number_in(champion, name);
        const double* after = number_in(candidate, name);
        const auto limit = policy.limits.find(c.limit);
        if (after == nullptr || limit == policy.limits.end()) continue;
        if (before == nullptr && c.when != When::new_bucket) continue;
        return Sides{name, before == nullptr ? 0.0 : *before, *after, limit->second};
    }
    lack = c.metric;
    return std::nullopt;
}

bool holds(When when, const Sides& s) {
    switch (when) {
        case When::rises_over: return s.after - s.before > s.limit;
        case When::drops_less_than: return s.before - s.after < s.limit;
        case When::drops_by: return s.before - s.after >= s.limit;
        case When::new_bucket: break;
    }
    return s.after >= s.limit && s.after - s.before > s.limit;
}

std::string number_text(double value) { return fmt::format("{:.3f}", value); }

std::string filled(std::string_view says, const std::vector<Sides>& sides) {
    std::string out;
    while (!says.empty()) {
        const std::size_t open = says.find('{');
        const std::size_t close = says.find('}', open);
        if (open == std::string_view::npos || close == std::string_view::npos) break;
        out += says.substr(0, open);
        std::string_view word = says.substr(open + 1, close - open - 1);
        says.remove_prefix(close + 1);
        std::size_t which = 0;
        if (const std::size_t dot = word.find('.'); dot != std::string_view::npos) {
            which = static_cast<std::size_t>(text::parse_int(word.substr(0, dot)).value_or(1)) - 1;
            word.remove_prefix(dot + 1);
        }
        const Sides& s = sides[std::min(which, sides.size() - 1)];
        out += word == "metric"   ? s.metric
               : word == "before" ? number_text(s.before)
               : word == "after"  ? number_text(s.after)
               : word == "rise"   ? number_text(s.after - s.before)
               : word == "drop"   ? number_text(s.before - s.after)
               : word == "limit"  ? number_text(s.limit)
                                  : "{" + std::string(word) + "}";
    }
    return out.append(says);
}

GateResult evaluate_gate(const Gate& gate, const PerfPolicy& policy, const MetricMap& champion,
                         const MetricMap& candidate, std::string_view change_class) {
    GateResult result;
    result.id = gate.id;
    result.kind = GateResult::Kind::skip;
    if (!gate.classes.empty() &&
        std::find(gate.classes.begin(), gate.classes.end(), change_class) == gate.classes.end()) {
        result.reason = "only for changes of class " + text::join(gate.classes, ", ");
        return result;
    }
    std::vector<Sides> sides;
    std::string lack;
    for (const GateCondition& c : gate.all) {
        auto both = sides_of(c, policy, champion, candidate, lack);
        if (!both) {
            result.reason = "no measured `" + lack + "` of both sides";
            return result;
        }
        sides.push_back(std::move(*both));
    }
    bool fires = !sides.empty();
    for (std::size_t i = 0; i < sides.size(); ++i) {
        const Sides& s = sides[i];
        if (!holds(gate.all[i].when, s)) fires = false;
        result.numbers += fmt::format("{}{} {:.3f} -> {:.3f}, limit {:.3f}", i == 0 ? "" : "; ", s.metric, s.before,
                                      s.after, s.limit);
    }
    result.kind = fires ? GateResult::Kind::fail : GateResult::Kind::pass;
    if (fires) result.reason = filled(gate.says, sides);
    return result;
}

}  // namespace

std::string_view to_text(When when) {
    constexpr std::array<std::string_view, 4> k_when_names = {"rises-over", "drops-less-than", "drops-by",
                                                              "new-bucket"};
    return k_when_names[static_cast<std::size_t>(when)];
}

std::optional<When> parse_when(std::string_view text) {
    for (const When when : {When::rises_over, When::drops_less_than, When::drops_by, When::new_bucket}) {
        if (to_text(when) == text) return when;
    }
    return std::nullopt;
}

std::string_view to_text(Hold hold) {
    return hold == Hold::keep ? "keep" : hold == Hold::refuse ? "refuse" : "automatic";
}

std::string_view to_text(GateResult::Kind kind) {
    return kind == GateResult::Kind::pass ? "pass" : kind == GateResult::Kind::fail ? "fail" : "skip";
}

PerfPolicy default_policy() {
    PerfPolicy policy;
    policy.effective_classes = {"CE backend"};
    for (const LimitOption& limit : k_default_limits) {
        policy.limits[std::string(limit.limit)] = text::parse_double(limit.usual).value_or(0.0);
    }
    add_bucket_gates(policy.gates);
    add_step_gates(policy.gates);
    return policy;
}

std::span<const LimitOption> limit_options() { return k_default_limits; }

std::vector<GateResult> evaluate_gates(const PerfPolicy& policy, const MetricMap& champion, const MetricMap& candidate,
                                       std::string_view change_class) {
    std::vector<GateResult> results;
    results.reserve(policy.gates.size());
    for (const Gate& gate : policy.gates) {
        results.push_back(evaluate_gate(gate, policy, champion, candidate, change_class));
    }
    return results;
}

void derive_budgets(MetricMap& metrics, std::optional<double> upper_bound_step_ms) {
    const double* step = number_in(metrics, k_step);
    const double* train = number_in(metrics, "train_path_budget_ms");
    if (step != nullptr && train != nullptr) metrics["remainder_budget_ms"] = *step - *train;
    if (step == nullptr || !upper_bound_step_ms) return;
    const double gap = *step - *upper_bound_step_ms;
    metrics["upper_bound_gap_ms"] = gap;
    const double* generic = number_in(metrics, "hybrid_generic_shell_delta_budget_ms");
    if (gap > 0.0) {
        if (train != nullptr) metrics["gap_explained_by_train_path"] = *train / gap;
        if (const double* shell = number_in(metrics, "decoder_layer_shell_budget_ms")) {
            metrics["gap_explained_by_decoder_layer_shell"] = *shell / gap;
        }
        if (generic != nullptr) metrics["gap_explained_by_hybrid_generic_shell_delta"] = *generic / gap;
    }
    if (train != nullptr && generic != nullptr) metrics["interaction_remainder_ms"] = gap - *train - *generic;
}

}  // namespace gdnctl::loop
