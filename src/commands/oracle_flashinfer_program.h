// A solution by FlashInfer-Bench's own convention: a function of tvm-ffi's C interface that gets the definition's
// inputs and then its outputs. It is compiled with a program around it, and run as programs (cmd:) are.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands/oracle_flashinfer_time.h"
#include "commands/oracle_kernel_process.h"
#include "gdnctl/oracle/flashinfer.h"
#include "gdnctl/oracle/kernel_under_test.h"
#include "gdnctl/platform/context.h"

namespace gdnctl::commands::oracle_flashinfer {

// Compiles the sources in `folder` into `folder`/solution. nullopt: done; a fault: the compiler's refusal. Errors:
// local_io, no compiler.
oracle_kernel::Faulted build_solution(const oracle::flashinfer::Solution& solution,
                                      const oracle::flashinfer::GdnDefinition& definition,
                                      const std::filesystem::path& folder, const Context& context);

class SolutionKernel : public oracle::KernelUnderTest {
public:
    // `definition` and `context` must outlive the kernel.
    SolutionKernel(std::string name, const std::filesystem::path& folder,
                   const oracle::flashinfer::GdnDefinition& definition, const oracle_kernel::Limits& limits,
                   const Context& context);

    // The states that the next workload's sequences start from: rows of a pool of that many.
    void use_pool(std::vector<std::int64_t> rows, std::int64_t states);

    std::string name() const override { return m_name; }
    bool worth_repeating() const override { return !m_program || m_program->worth_repeating(); }
    std::string network() const override { return m_program ? m_program->network() : std::string(); }
    Result<oracle::KernelRun> run(const oracle::TensorFile& inputs, const oracle::ResolvedContract& contract,
                                  int threads) override;

    // The same with trials; `medians` gets one figure each. The outputs are those of the last run, or of the first that
    // gave something else than the first of all.
    Result<oracle::KernelRun> run_trials(const oracle::TensorFile& inputs, const oracle::ResolvedContract& contract,
                                         int threads, const TrialOptions& trials, std::vector<double>& medians);

    // The pool of an mtp workload, as solutions get it: what their `pool` has to be.
    oracle::Tensor pool(const oracle::TensorFile& inputs) const;

private:
    oracle::TensorFile asked(const oracle::TensorFile& inputs) const;
    Status name_outputs(const oracle::TensorFile& inputs, const oracle::ResolvedContract& contract, int threads,
                        oracle::KernelRun& run) const;

    std::string m_name, m_spelling;
    const oracle::flashinfer::GdnDefinition& m_definition;
    oracle_kernel::Limits m_limits;
    const Context& m_context;
    std::unique_ptr<oracle::KernelUnderTest> m_program;
    std::vector<std::int64_t> m_rows;
    std::int64_t m_states = 0;
};

}  // namespace gdnctl::commands::oracle_flashinfer
