// The mutants of linear cross-entropy: a plain linear cross-entropy in blocks that can be spoilt at one point, to see
// whether the judge finds it.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "oracle/linear_ce/judge/compare.h"
#include "oracle/linear_ce/judge/problem.h"

namespace gdnctl::oracle::linear_ce {

enum class Fault {
    none,
    // Honest: fp32 at each step, one logaddexp a block; halves of the vocabulary that are merged at the end.
    streamed,
    split,
    label_missed_in_block,
    label_after,
    hot_missing,
    hot_after,
    label_of_next_row,
    label_smoothed,
    one_hot_each,
    tail_counted,
    last_block_dropped,
    last_block_dropped_in_gx,
    last_block_dropped_in_gw,
    lse_in_bf16,
    logits_in_bf16,
    no_rescale,
    block_lost_from_sum,
    hidden_block_lost,
    largest_not_added,
    exp2_for_exp,
    logits_over_root_of_hidden,
    no_cap,
    cap_derivative_missing,
    log_cap,
    cap_derivative_twice,
    no_cap_in_backward,
    penalty_missing,
    penalty_not_weighted,
    penalty_without_two,
    log_penalty,
    penalty_not_in_reduced,
    penalty_on_loss,
    weights_ignored,
    divided_by_rows,
    not_divided,
    weights_twice,
    reduced_divided_by_rows,
    gx_hidden_block_lost,
    gx_block_lost,
    gx_block_twice,
    gw_half_lost,
    gw_rows_lost,
    gw_last_rows_only,
    gw_hidden_block_lost,
    argmax_last_tie,
    argmax_without_offset,
    argmax_from_1,
    rows_exchanged,
    rows_not_written,
    rows_not_finite,
    gw_columns_exchanged,
    gw_columns_not_written,
    gx_rows_exchanged,
};

struct Mutant {
    Fault fault = Fault::none;
    std::string name;                 // "unmasked tail"
    std::vector<std::string> stages;  // any of them is right
    std::string on;                   // the case it shows in
};

const std::vector<Mutant>& mutants();

// Sizes of the kernel that is spoilt.
struct Blocks {
    std::size_t vocab = 64, hidden = 8, rows = 8;
};

// Everything that a kernel writes, in fp32. `block` says which block or tile is spoilt, if the fault is of one.
TensorFile spoilt_outputs(const Problem& problem, Fault fault, std::size_t block, const Blocks& blocks);

struct MutantFinding {
    std::string kind;  // "missed", "stage", "false alarm"
    std::string name, expected, got;
};

struct MutantReport {
    std::size_t mutants = 0, caught = 0, right_stage = 0;
    std::size_t variants = 0, false_alarms = 0;
    std::vector<MutantFinding> findings;

    // All caught, 90 % of the stages right, no false alarm.
    bool passed() const { return caught == mutants && false_alarms == 0 && right_stage * 10 >= mutants * 9; }
};

MutantReport run_mutant_set(const Work& work);

}  // namespace gdnctl::oracle::linear_ce
