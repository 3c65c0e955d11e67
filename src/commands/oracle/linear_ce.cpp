#include "commands/oracle/linear_ce.h"

#include <fmt/format.h>

#include "harness/files.h"
#include "oracle/gdn/report/report.h"

namespace gdnctl::commands::linear_ce {

namespace lce = oracle::linear_ce;

void describe_contract(cli::Args& args, ContractOptions& options) {
    const char* group = "linear-ce";
    args.option(options.layout, {.names = "--layout",
                                 .value = "hv|vh",
                                 .help = "linear-ce: w is [H,V] or [V,H]",
                                 .group = group,
                                 .default_text = "as the inputs file says"});
    args.option(options.soft_cap, {.names = "--soft-cap",
                                   .value = "C",
                                   .help = "linear-ce: logits are C tanh(z / C)",
                                   .group = group,
                                   .default_text = "as the inputs file says, or none"});
    args.option(options.logsumexp_weight, {.names = "--logsumexp-weight",
                                           .value = "L",
                                           .help = "linear-ce: penalty L lse^2 added to each loss before its weight",
                                           .group = group,
                                           .default_text = "as the inputs file says, or 0"});
    args.option(options.reduction, {.names = "--reduction",
                                    .value = "mean|sum|none",
                                    .help = "linear-ce: what gradients are of",
                                    .group = group,
                                    .default_text = "as the inputs file says, or mean"});
}

lce::Overrides overrides_of(const ContractOptions& options) {
    return {options.layout,   options.reduction,        options.matmul,
            options.soft_cap, options.logsumexp_weight, options.ignore_index};
}

Status check_memory(std::size_t batch, std::size_t hidden, std::size_t vocab, bool exact) {
    return oracle_files::check_memory(lce::memory_estimate(batch, hidden, vocab, exact), "use fewer rows or columns");
}

Result<lce::Problem> read_problem(const oracle::TensorFile& file, const ContractOptions& options) {
    GDNCTL_TRY_ASSIGN(auto contract, lce::resolve(file.metadata, overrides_of(options)));
    return lce::read_problem(file, std::move(contract));
}

std::string contract_text(const lce::ResolvedContract& contract) {
    std::vector<std::string> fields;
    for (const lce::Field& f : contract.fields) {
        fields.push_back(f.origin == "default" ? fmt::format("{}={}", f.name, f.value)
                                               : fmt::format("{}={} ({})", f.name, f.value, f.origin));
    }
    return oracle_report::wrapped("contract: ", fields);
}

}  // namespace gdnctl::commands::linear_ce
