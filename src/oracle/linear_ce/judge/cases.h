// Named problems: input sets on which the known mistakes show, goldens, and the shapes of upstream's own tests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "oracle/linear_ce/judge/contract.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle::linear_ce {

enum class Values {
    normal,    // x and w ~ N(0,1), times their scales
    identity,  // x = I, w[r][c] = ((r + c) mod 17 - 8) / 8
    formula,   // x[b][h] = ((3b + 5h) mod 7 - 3) / 4, w[h][v] = ((2h + 3v) mod 11 - 5) / 4
    zero,      // x = 0, w ~ N(0,1): all logits are equal
};

enum class Labels {
    random,
    edges,   // first and last column, beside the edges of blocks of 64 and 128, last partial block, in turn
    golden,  // 0, 4, 2
    likely,  // of the largest logit: little is left of the loss
};

enum class Weights { none, pattern, zero_every };  // 0, 1, 2, 3, 0, ... | 0 in every k-th row, else 1

struct Case {
    std::string name, set, about;  // set: "inputs", "edges", "golden", "upstream", "crossed"
    std::size_t batch = 0, hidden = 0, vocab = 0;
    std::uint64_t seed = 1;
    DType dtype = DType::f32;  // of x and w
    Values values = Values::normal;
    double x_scale = 1, w_scale = 1;
    Labels labels = Labels::random;
    Weights weights = Weights::none;
    std::size_t zero_every = 0;
    double soft_cap = 0, logsumexp_weight = 0;
    Reduction reduction = Reduction::mean;
    Layout layout = Layout::hv;
    bool ignores_rows = false;           // labels of -100 in some rows, and ignore_index
    bool d_loss = false, d_lse = false;  // cotangents in the file, in place of those of the reduction
};

const std::vector<Case>& cases();
// Whatever the case of its letters, '-' for '_' too. nullptr: there is no such case.
const Case* find_case(std::string_view name);
std::vector<std::string> case_names();

// Every triple of conditions in some case: layout, cap, penalty, weights, ignored rows, reduction, cotangents, dtype
// and size of the vocabulary.
std::vector<Case> crossed_sets();

// x, w, labels, weight, d_loss and d_lse. Metadata: op, case, seed and the contract's fields. The same bytes on every
// machine.
TensorFile make_inputs(const Case& c);

}  // namespace gdnctl::oracle::linear_ce
