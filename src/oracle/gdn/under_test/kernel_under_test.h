// Kernels of gdn as the oracle judges them. Those in this process are found here; the harness opens the others.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/contract/contract.h"
#include "oracle/gdn/under_test/call.h"
#include "oracle/judge/kernel.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

// A file of inputs for one pass, under a contract; both must outlive it. Every kernel of gdn gets its inputs as this.
class GdnInputs : public Inputs {
public:
    GdnInputs(KernelPass pass, const TensorFile& file, ResolvedContract contract)
        : m_pass(pass), m_file(file), m_contract(std::move(contract)) {}

    // What the file means, for kernels that are not programs. Errors: as read_problem and read_cotangents.
    Status read();
    // After read():
    const GdnProblem& problem() const { return m_problem; }
    const std::optional<GdnCotangents>& cotangents() const { return m_cotangents; }
    Result<Call> call(std::size_t pass, std::uint32_t dtypes, int threads) override;
    // What a loaded kernel wrote, as the contract has it in files.
    TensorFile in_files(const TensorFile& written) const;

    KernelPass pass() const { return m_pass; }
    const TensorFile& tensors() const { return m_file; }
    const ResolvedContract& contract() const { return m_contract; }
    TensorFile file() const override;

private:
    KernelPass m_pass;
    const TensorFile& m_file;
    ResolvedContract m_contract;
    GdnProblem m_problem;
    std::optional<GdnCotangents> m_cotangents;
};

// Runs a pass on the tensors of an inputs file (names of docs/reference/contracts.md). A forward gives `out` and
// `final_state`, and of a program maybe gradients too; a backward reads `d_out` and `d_final_state` and gives
// gradients.
Result<KernelRun> run_pass(Kernel& kernel, KernelPass pass, const TensorFile& inputs, const ResolvedContract& contract,
                           int threads);
// The passes that it has. A kernel that cannot be queried has a forward and a decode, which report the problem.
Result<std::vector<KernelPass>> passes_of(Kernel& kernel);

// Fields of a contract whose values a program gets as they are.
struct KeptFields {
    bool g_kind = false, beta_kind = false, state_layout = false;
};

// The inputs with the logarithm of the decay, beta as a factor and the state as [N,Hv,dk,dv], as loaded kernels get
// them. `contract` is that of the file. Errors: as read_problem.
Result<TensorFile> canonical_inputs(TensorFile file, const ResolvedContract& contract, const KeptFields& kept);

// The result of a kernel on one set of inputs.
struct KernelVerdict {
    GdnReport report;
    std::optional<KernelFault> fault;
};

// Judges the result of one run. A shape or dtype that cannot be compared is the kernel's fault. `inputs` has the
// cotangents of gradients. `hints`: as CompareOptions has it.
KernelVerdict judge_run(const KernelRun& run, const TensorFile& inputs, const GdnReference& reference, int threads,
                        KernelPass pass, bool hints = true);
bool has_gradients(const TensorFile& file);

// `inputs` with random cotangents, rounded to the dtype of `out` as in automatic differentiation.
TensorFile with_cotangents(const TensorFile& inputs, const GdnReference& reference, std::uint64_t seed);

std::vector<std::string> builtin_kernel_names();  // "chunk", "fused", "recurrent32", "recurrent64"

// `builtin:NAME`. Usage errors: another kind, or an unknown name.
Result<std::unique_ptr<Kernel>> find_builtin_kernel(std::string_view spelling);

}  // namespace gdnctl::oracle
