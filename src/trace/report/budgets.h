// Budgets of the running log: the time a step of the operations whose tf_op matches rules. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "trace/diff/profile.h"

namespace gdnctl::trace {

// ms a step, by key.
using Budgets = std::map<std::string, double>;

// One group of operations, as rules see it.
struct LabelledTime {
    std::string tf_op, category;
    double ms = 0;  // a step
};

// Of a step of `step_ms`. `rules` has the form of gdnctl.trace-rules/1; null: the built-in ones, of Marin's hybrid
// model. Only keys that at least one operation matches, and step_duration_ms. Error: bad_input (the rules).
Result<Budgets> budgets_of(const std::vector<LabelledTime>& ops, double step_ms, const Json& rules);
// The same for a profile; with `before` also the shell deltas: rises by family.
Result<Budgets> budgets_of(const Profile& profile, const Profile* before, const Json& rules);
// The rises alone, of labels: `before` and `after` ms a step.
Result<Budgets> shell_deltas(const std::map<std::string, double>& before, const std::map<std::string, double>& after,
                             const Json& rules);

// "Step duration" of "step_duration_ms": the label of a line of the running log.
std::string budget_label(std::string_view key);

}  // namespace gdnctl::trace
