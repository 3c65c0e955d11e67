#include "commands/oracle/linear_ce_compare.h"

#include <array>

#include "commands/oracle/compare.h"
#include "commands/oracle/read.h"
#include "harness/linear_ce/operator.h"

namespace gdnctl::commands::linear_ce {

namespace {

namespace hce = harness::linear_ce;
namespace lce = oracle::linear_ce;

constexpr std::array<cli::Choice<lce::Level>, 3> k_levels = {{
    {"exact", lce::Level::exact, "every row and column"},
    {"sampled", lce::Level::sampled, "some rows and columns, and the invariants"},
    {"invariants", lce::Level::invariants, "only relations between gradients: can reject a result, never accept it"},
}};

}  // namespace

void describe_compare(cli::Args& args, CompareOptions& options) {
    describe_contract(args, options.contract);
    const char* group = "linear-ce";
    args.option(options.contract.matmul, {.names = "--matmul",
                                          .value = "exact|bf16|tf32",
                                          .help = "linear-ce: round the operands first: bf16 as a TPU does by default, "
                                                  "tf32 as JAX and PyTorch do on NVIDIA devices",
                                          .group = group,
                                          .default_text = "exact"});
    args.option(options.contract.ignore_index, {.names = "--ignore-index",
                                                .value = "N",
                                                .help = "linear-ce: rows with label N have weight 0",
                                                .group = group});
    args.option(options.level, k_levels,
                {.names = "--level", .value = "LEVEL", .help = "linear-ce: how much to compare", .group = group});
    args.option(options.rows,
                {.names = "--rows", .value = "N", .help = "linear-ce: number of rows to sample", .group = group});
    args.option(
        options.columns,
        {.names = "--cols", .value = "N", .help = "linear-ce: number of columns of gw to sample", .group = group});
    args.option(options.seed,
                {.names = "--seed", .value = "N", .help = "linear-ce: seed of the sample", .group = group});
    args.check([&options]() -> Status {
        if (options.rows < 1 || options.columns < 1)
            return fail(ErrorKind::usage, "--rows and --cols must be at least 1");
        if (options.seed < 0) return fail(ErrorKind::usage, "--seed must not be negative");
        return {};
    });
}

// What says nothing about this operator is refused, not ignored.
Status check_compare(const oracle_compare::Options& o) {
    GDNCTL_TRY(with_sets({}, o.contract.sets));
    if (o.contract.contract != oracle_gdn::ContractOptions{}.contract || o.rtol || o.budget || o.heatmap ||
        o.allow_suspect || oracle_flashinfer::wanted(o.flashinfer)) {
        return fail(ErrorKind::usage,
                    "linear-ce does not support --contract, --rtol, --atol, --budget, --heatmap, --allow-suspect "
                    "or the options for FlashInfer-Bench");
    }
    return {};
}

Result<std::unique_ptr<harness::Reading>> read(const Operator& /*op*/, const oracle::TensorFile& inputs,
                                               const ReadOptions& options) {
    const CompareOptions& ce = options.ce;
    const oracle::Tensor* x = inputs.find("x");
    const oracle::Tensor* w = inputs.find("w");
    if (x != nullptr && w != nullptr && x->shape.size() == 2 && x->shape[1] > 0) {  // before they are copied
        const auto hidden = static_cast<std::size_t>(x->shape[1]);
        GDNCTL_TRY(hce::check_memory(x->count() / hidden, hidden, w->count() / hidden, ce.level == lce::Level::exact));
    }
    GDNCTL_TRY_ASSIGN(const Contract contract, with_sets(ce.contract, options.contract.sets));
    GDNCTL_TRY_ASSIGN(lce::Problem problem, hce::read_problem(inputs, contract));
    lce::CompareOptions how;
    how.level = ce.level;
    how.rows = static_cast<std::size_t>(ce.rows);
    how.columns = static_cast<std::size_t>(ce.columns);
    how.seed = static_cast<std::uint64_t>(ce.seed);
    return std::make_unique<hce::ReadProblem>(std::move(problem), inputs, how);
}

}  // namespace gdnctl::commands::linear_ce
