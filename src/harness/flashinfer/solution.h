// Inputs like those of a FlashInfer-Bench workload, but other ones: what its solutions are timed on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "harness/gdn/kernel.h"
#include "oracle/flashinfer/flashinfer.h"
#include "oracle/gdn/bench/bench.h"
#include "oracle/gdn/contract/contract.h"
#include "oracle/gdn/under_test/kernel_under_test.h"
#include "platform/context.h"

namespace gdnctl::oracle {

// Random inputs are drawn again. Recorded values get a factor between 3/4 and 5/4 each, and head dimensions get other
// signs; rows of q and k keep their length. Offsets, indices and the scale stay.
class FreshWorkload : public FreshInputs {
public:
    // `definition` and `workload` must outlive it. `contract` is `flashinfer`. Errors: as make_workload_inputs and
    // read_problem.
    static Result<FreshWorkload> make(const flashinfer::GdnDefinition& definition, const flashinfer::Workload& workload,
                                      std::map<std::string, Tensor> loaded, ResolvedContract contract);

    Status draw(std::uint64_t seed) override;
    const TensorFile& file() const override;
    TensorFile with_cotangents() const override { return file(); }  // solutions have no backward
    // `outputs` by the names of a call: out, and final_state as [N,Hv,dk,dv].
    double distance(const TensorFile& outputs, Pass pass, int threads) override;
    // Outputs that it judges are those of a call.
    Result<GdnReference> reference(int threads) const override;

    // The same inputs by the definition's names, and what they mean.
    const TensorFile& as_workload() const;
    const GdnProblem& problem() const;
    const ResolvedContract& contract() const;

private:
    struct Parts;
    std::shared_ptr<Parts> m_parts;
};

}  // namespace gdnctl::oracle

namespace gdnctl::harness::flashinfer {

// A solution by FlashInfer-Bench's own convention: a function of tvm-ffi's C interface that gets the definition's
// inputs and then its outputs. It is compiled into a library, and called in a child process as kernels of ours are.

// Compiles the sources in `folder` into `folder`/solution.so. nullopt: done; a fault: the compiler's refusal. Errors:
// local_io, no compiler.
harness::Faulted build_solution(const oracle::flashinfer::Solution& solution, const std::filesystem::path& folder,
                                const Context& context);

// Asked with oracle::GdnInputs, whose file is a workload.
class SolutionKernel : public Kernel {
public:
    // `definition` and `context` must outlive the kernel. What is called is `folder`/solution.so.
    SolutionKernel(const oracle::flashinfer::Solution& solution, const std::filesystem::path& folder,
                   const oracle::flashinfer::GdnDefinition& definition, const harness::Limits& limits,
                   const Context& context);

    // The states that the next workload's sequences start from: rows of a pool of that many.
    void use_pool(std::vector<std::int64_t> rows, std::int64_t states);

    Faulted place(const Asked& asked) override;
    Faulted call() override { return m_kernel.call(); }
    Faulted collect(oracle::TensorFile& outputs) override;
    std::string_view timed() const override { return m_kernel.timed(); }
    std::string network() const override { return m_kernel.network(); }

    // The same to be timed, in another child: each run on the inputs that `fresh` holds, with outputs as a call of ours
    // has them. This object, `fresh` and the parts of the task must outlive it.
    std::unique_ptr<harness::TimedPass> timed(const harness::Task& task, const oracle::FreshWorkload& fresh) const;

    // What it is called with for `inputs`, which have the states that sequences start from instead of a pool.
    harness::Call call_for(const oracle::TensorFile& inputs) const;
    // From what such a call wrote to `out` and `final_state` in the contract's layout, and the `pool` of mtp.
    Status name_outputs(const oracle::TensorFile& inputs, const oracle::ResolvedContract& contract, int threads,
                        oracle::TensorFile& outputs) const;

    // The pool of an mtp workload, as solutions get it: what their `pool` has to be.
    oracle::Tensor pool(const oracle::TensorFile& inputs) const;

private:
    std::string m_entry;
    std::filesystem::path m_library;
    const oracle::flashinfer::GdnDefinition& m_definition;
    harness::Limits m_limits;
    const Context& m_context;
    harness::LoadedKernel m_kernel;
    const oracle::GdnInputs* m_inputs = nullptr;  // of the call
    int m_threads = 1;
    std::vector<std::int64_t> m_rows;
    std::int64_t m_states = 0;
};

}  // namespace gdnctl::harness::flashinfer
