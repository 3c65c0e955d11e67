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

// Kernels that round their logits to bf16 (logits=bf16) differ in what they round. A dump is judged by one of these.
enum class Rounds {
    everywhere,      // Liger, PyTorch
    forward,         // levanter's batched_xla: its gradients are of exact logits, under the lse of rounded ones
    label_products,  // cut-cross-entropy: only the products that the label's logit is the sum of
};

struct Problem {
    ResolvedContract contract;
    std::size_t batch = 0, hidden = 0, vocab = 0;
    Tensor x, w;                                       // float32 or bfloat16; rounded as `matmul` says
    DType x_dtype = DType::f32, w_dtype = DType::f32;  // as in the file
    std::vector<std::int64_t> labels;                  // all in [0, V)
    std::vector<double> weight;                        // [B]; 1 where the file has none
    double total_weight = 0;
    std::size_t rows_with_weight = 0;
    bool weighted = false;      // the file has one, or rows are ignored
    std::vector<bool> ignored;  // [B], by ignore_index
    std::size_t ignored_count = 0;
    Rounds rounds = Rounds::everywhere;
    std::vector<double> d_loss;                // [B]; 0 in ignored rows
    std::optional<std::vector<double>> d_lse;  // [B], if the file gives cotangents; else 2 lambda lse d_loss
    bool own_cotangents = false;               // the file gives them
    std::string unstable_reason;               // empty: the inputs can be judged
    std::vector<std::string> unknown;          // tensors of the file that mean nothing here

    const Contract& c() const { return contract.value; }
    bool forward_rounds() const { return c().logits == Logits::bf16 && rounds != Rounds::label_products; }
    bool backward_rounds() const { return c().logits == Logits::bf16 && rounds == Rounds::everywhere; }
    Operands operands() const;  // of the forward
    // Cotangents of lse for the logsumexps of all rows.
    std::vector<double> lse_cotangents(const std::vector<double>& lse) const;
};

ConstValues values_of(const Tensor& tensor);  // float32 or bfloat16

// Names of other tensors that an inputs file may contain, such as results.
bool is_output_name(std::string_view name);

// bad_input: a tensor that is missing or of the wrong shape or dtype; a label out of range.
Result<Problem> read_problem(const TensorFile& file, ResolvedContract contract);

// The same tensors under another contract.
Problem redeclared(const Problem& problem, const Contract& contract);

// Bytes that judging this problem takes; nullopt: more than a number can say.
std::optional<std::size_t> memory_estimate(std::size_t batch, std::size_t hidden, std::size_t vocab, bool exact);

// What a kernel wrote, checked against the problem's sizes.

struct Dump {
    const Tensor *loss = nullptr, *lse = nullptr, *gx = nullptr, *gw = nullptr;
    const Tensor *argmax = nullptr, *reduced = nullptr;

    bool any() const { return loss || lse || gx || gw || argmax || reduced; }
};

// bad_input: a wrong shape or dtype.
Result<Dump> read_dump(const Problem& problem, const TensorFile& file);

// Elements [at, at + count) as fp64.
void read_elements(const Tensor& tensor, std::size_t at, std::size_t count, double* to);

// Element (h, v) of gw, whatever the layout.
double gw_element(const Problem& problem, const Tensor& gw, std::size_t h, std::size_t v);

}  // namespace gdnctl::oracle::linear_ce
