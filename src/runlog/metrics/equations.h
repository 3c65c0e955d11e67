// Relations between the known metrics. The parser uses them to derive missing values, the linter to check given ones.
#pragma once

#include <array>
#include <string_view>

namespace gdnctl::runlog {

struct EquationTerm {
    std::string_view key;
    double sign;
};

// sum = terms[0] ± terms[1] ± terms[2], in ms; an empty key ends the terms.
struct Equation {
    std::string_view sum;
    std::array<EquationTerm, 3> terms;
    std::string_view text;
    bool any_term = false;  // derived if any term is known; a missing term counts as 0
};

// Each equation uses only sums of earlier ones.
constexpr std::array k_equations = {
    Equation{"kernel_budget_ms",
             {{{"forward_closed_call_ms", 1}, {"backward_closed_call_ms", 1}, {}}},
             "forward + backward",
             true},
    Equation{"control_budget_ms", {{{"while_ms", 1}, {"conditional_ms", 1}, {}}}, "while + conditional", true},
    Equation{"train_path_budget_ms", {{{"kernel_budget_ms", 1}, {"control_budget_ms", 1}, {}}}, "kernel + control"},
    Equation{"remainder_budget_ms", {{{"step_duration_ms", 1}, {"train_path_budget_ms", -1}, {}}}, "step - train-path"},
    Equation{"upper_bound_gap_ms", {{{"step_duration_ms", 1}, {"upper_bound_ms", -1}, {}}}, "step - upper bound"},
    Equation{"interaction_remainder_ms",
             {{{"upper_bound_gap_ms", 1}, {"train_path_budget_ms", -1}, {"hybrid_generic_shell_delta_budget_ms", -1}}},
             "gap - train-path - hybrid generic"},
};

// key = budget / upper_bound_gap_ms, if the gap is positive.
struct GapShare {
    std::string_view key, budget;
};
constexpr std::array k_gap_shares = {
    GapShare{"gap_explained_by_train_path", "train_path_budget_ms"},
    GapShare{"gap_explained_by_decoder_layer_shell", "decoder_layer_shell_budget_ms"},
    GapShare{"gap_explained_by_hybrid_generic_shell_delta", "hybrid_generic_shell_delta_budget_ms"}};

}  // namespace gdnctl::runlog
