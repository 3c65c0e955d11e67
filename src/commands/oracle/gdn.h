// What the oracle commands for gdn share: from files and options to a problem, and to its reference.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/args.h"
#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/compare/compare.h"
#include "platform/context.h"

namespace gdnctl::commands::oracle_gdn {

// Options by which a contract is chosen, the same on every command.
struct ContractOptions {
    std::string contract = "marin";
    std::vector<std::string> sets;
};

inline constexpr std::string_view k_ops[] = {"gdn"};
inline constexpr std::string_view k_layer_op = "gdn-layer";
inline constexpr std::string_view k_ops_and_layer[] = {"gdn", k_layer_op, "linear-ce"};
inline constexpr std::string_view k_all_ops[] = {"gdn", "linear-ce"};

void describe_op(cli::Args& args, std::string& op);
void describe_all_ops(cli::Args& args, std::string& op);
void describe_op_or_layer(cli::Args& args, std::string& op);
void describe_contract(cli::Args& args, ContractOptions& options);
void describe_threads(cli::Args& args, std::int64_t& threads);
void describe_tolerances(cli::Args& args, std::optional<double>& rtol, std::optional<double>& atol, bool& budget);

// "B,Hk,Hv,T,dk,dv", as --shape takes it.
Result<oracle::GdnDims> parse_shape(const std::string& text);

// Resolves the contract for these inputs, checks them and their size (with that of gradients, if they are to follow),
// and computes truth and budget.
Result<oracle::GdnReference> make_reference(const oracle::TensorFile& inputs, const ContractOptions& options,
                                            int threads, oracle::Passes passes = oracle::Passes::forward);

}  // namespace gdnctl::commands::oracle_gdn
