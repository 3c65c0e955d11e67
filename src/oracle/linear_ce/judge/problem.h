// One linear cross-entropy as read from a file and checked: the tensors, and what the contract makes of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "oracle/linear_ce/judge/contract.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle::linear_ce {

struct Problem {
    ResolvedContract contract;
    std::size_t batch = 0, hidden = 0, vocab = 0;
    Tensor x, w;                                       // float32 or bfloat16; rounded to bf16 under matmul=bf16
    DType x_dtype = DType::f32, w_dtype = DType::f32;  // as in the file
    std::vector<std::int64_t> labels;                  // all in [0, V)
    std::vector<double> weight;                        // [B]; 1 where the file has none
    double total_weight = 0;
    std::size_t rows_with_weight = 0;
    bool weighted = false;      // the file has one, or rows are ignored
    std::vector<bool> ignored;  // [B], by ignore_index
    std::size_t ignored_count = 0;
    std::vector<double> d_loss;                // [B]
    std::optional<std::vector<double>> d_lse;  // [B], if the file gives cotangents; else 2 lambda lse d_loss
    bool own_cotangents = false;               // the file gives them
    std::string unstable_reason;               // empty: the inputs can be judged
    std::vector<std::string> unknown;          // tensors of the file that mean nothing here

    const Contract& c() const { return contract.value; }
    Operands operands() const;
    // Cotangents of lse for the logsumexps of all rows.
    std::vector<double> lse_cotangents(const std::vector<double>& lse) const;
};

ConstValues values_of(const Tensor& tensor);  // float32 or bfloat16

// Names of other tensors that an inputs file may contain, such as results.
bool is_output_name(std::string_view name);

// bad_input: a tensor that is missing or of the wrong shape or dtype; a label out of range.
Result<Problem> read_problem(const TensorFile& file, ResolvedContract contract);

// Bytes that judging this problem takes; nullopt: more than a number can say.
std::optional<std::size_t> memory_estimate(std::size_t batch, std::size_t hidden, std::size_t vocab, bool exact);

}  // namespace gdnctl::oracle::linear_ce
