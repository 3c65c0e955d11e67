// The results of correct kernels: the exact one in fp64, of all rows and columns or of some, a block of the vocabulary
// at a time.
#pragma once

#include <functional>
#include <vector>

#include "oracle/linear_ce/judge/problem.h"
#include "oracle/linear_ce/kernels/passes.h"

namespace gdnctl::oracle::linear_ce {

struct Work {
    int threads = 1;
    std::function<bool()> stop = {};
};

// Of some rows, in their order.
struct RowTruth {
    std::vector<std::size_t> rows;
    std::vector<double> loss, lse, largest;
    // With rounded logits: how far a kernel's own may be off whose products fall on the other side of a tie.
    std::vector<double> loss_slack, lse_slack;
    std::vector<std::int64_t> argmax;  // the lowest id of the largest s
    std::vector<double> gx;            // [rows, H]; empty: not asked for
};

std::vector<std::size_t> all_of(std::size_t count);  // 0, 1, ... count - 1

RowTruth truth_of_rows(const Problem& problem, std::vector<std::size_t> rows, bool gradient, const Work& work);

// gw of some columns, [columns, H], for the logsumexps of all rows.
std::vector<double> truth_of_columns(const Problem& problem, const std::vector<std::size_t>& columns,
                                     const std::vector<double>& lse, const Work& work);

// The scalar that the reduction makes of all rows.
double reduced_of(const Problem& problem, const std::vector<double>& loss, const std::vector<double>& lse);

// z of one row before any cap or rounding, for the columns [begin, end).
std::vector<double> logits_of(const Problem& problem, std::size_t row, std::size_t begin, std::size_t end);
// The same for all columns, of the hidden dimensions [begin, end) alone.
std::vector<double> partial_logits_of(const Problem& problem, std::size_t row, std::size_t begin, std::size_t end);
// The same for a kernel that takes [H,V] for [V,H], or the reverse.
std::vector<double> misread_logits_of(const Problem& problem, std::size_t row);
// The label's logit before any cap, if its products are rounded to bf16 before they are summed.
double label_products_of(const Problem& problem, std::size_t row);
// What the products of some rows may be off by in fp32.
std::vector<double> product_errors(const Problem& problem, const std::vector<std::size_t>& rows);

// What the kernels of this library write for a problem.
TensorFile kernel_outputs(const Problem& problem, const Run& run);

}  // namespace gdnctl::oracle::linear_ce
