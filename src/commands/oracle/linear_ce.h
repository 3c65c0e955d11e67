// What the oracle commands for linear-ce share: options, and the way from files to a problem.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/args.h"
#include "oracle/linear_ce/judge/problem.h"
#include "oracle/tensor/tensor.h"
#include "platform/context.h"

namespace gdnctl::commands::linear_ce {

inline constexpr std::string_view k_op = "linear-ce";

// Fields of the contract; what the inputs file says counts where these are absent.
struct ContractOptions {
    std::optional<std::string> layout, matmul, reduction;
    std::optional<double> soft_cap, logsumexp_weight;
    std::optional<std::int64_t> ignore_index;
};

void describe_contract(cli::Args& args, ContractOptions& options);

oracle::linear_ce::Overrides overrides_of(const ContractOptions& options);

// Refuses what this machine has no memory for. `exact`: gradients of all rows and columns in fp64.
Status check_memory(std::size_t batch, std::size_t hidden, std::size_t vocab, bool exact);

Result<oracle::linear_ce::Problem> read_problem(const oracle::TensorFile& file, const ContractOptions& options);

// "contract linear-ce: layout=hv (inputs metadata), ..."
std::string contract_text(const oracle::linear_ce::ResolvedContract& contract);

}  // namespace gdnctl::commands::linear_ce
