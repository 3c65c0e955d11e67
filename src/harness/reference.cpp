#include "harness/reference.h"

#include "harness/files.h"

namespace gdnctl::harness {

Result<oracle::GdnReference> make_reference(const oracle::TensorFile& inputs, const ContractChoice& choice, int threads,
                                            oracle::Passes passes) {
    GDNCTL_TRY_ASSIGN(auto contract, oracle::resolve_contract(choice.contract, inputs.metadata, choice.sets));
    GDNCTL_TRY_ASSIGN(auto problem, oracle::read_problem(inputs, contract));
    GDNCTL_TRY(oracle_files::check_memory(problem.dims, problem.sequences.size(), passes));
    return oracle::make_reference(std::move(problem), std::move(contract), threads);
}

}  // namespace gdnctl::harness
