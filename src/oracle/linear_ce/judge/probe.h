// Some rows in full: their logits over the whole vocabulary, to try hypotheses on.
#pragma once

#include <vector>

#include "oracle/linear_ce/judge/findings.h"

namespace gdnctl::oracle::linear_ce {

struct ProbeRow {
    std::size_t at = 0;        // index among the rows that were compared
    std::size_t row = 0;       // of the batch
    std::vector<double> z, s;  // [V], before and after the cap, rounded as declared
    double lse = 0;
};

std::vector<ProbeRow> probe(const Findings& findings, const std::vector<std::size_t>& at);

// At most `count` of them, spread evenly.
std::vector<std::size_t> some_of(const std::vector<std::size_t>& all, std::size_t count);

double logsumexp(const std::vector<double>& s);
std::vector<double> capped(std::vector<double> z, double cap);
double to_bf16(double x);
std::vector<double> rounded(std::vector<double> z, bool round = true);  // to bf16

// Sizes that kernels cut `count` elements into: powers of two, and even shares.
std::vector<std::size_t> block_sizes(std::size_t count);

// Rows whose values of one tensor are beyond their limits, as indices among the compared ones.
std::vector<std::size_t> wrong_rows(const Findings& findings, const Tensor& tensor, const std::vector<double>& want,
                                    bool of_loss);
double row_limit_of(const Findings& findings, const Tensor& tensor, std::size_t at);

// Batch rows of indices among the compared ones.
std::vector<std::size_t> rows_of(const Findings& findings, const std::vector<std::size_t>& at);

// Whether the numbers are consecutive and fewer than there are.
bool is_run(const std::vector<std::size_t>& numbers, std::size_t all);

}  // namespace gdnctl::oracle::linear_ce
