#include "harness/gdn_kernel.h"

#include "gdn/gdn_kernel.h"
#include "harness/child/gdn_entry.h"
#include "oracle/gdn/under_test/call.h"

namespace gdnctl::harness {

namespace {

using oracle::KernelPass;
using oracle::KernelRun;

// A file of inputs under a contract.
class FileInputs : public Inputs {
public:
    FileInputs(KernelPass pass, const oracle::TensorFile& file, oracle::ResolvedContract contract)
        : m_pass(pass), m_file(file), m_contract(std::move(contract)) {}

    Status read() {
        GDNCTL_TRY_ASSIGN(m_problem, read_problem(m_file, m_contract));
        if (m_pass != KernelPass::backward) return {};
        GDNCTL_TRY_ASSIGN(auto given, oracle::read_cotangents(m_file, m_problem, m_contract.value));
        if (given) m_cotangents = std::move(*given);
        m_cotangents.d_out.resize(m_problem.v.size());
        return {};
    }

    Result<Call> call(std::size_t /*pass*/, std::uint32_t dtypes, int threads) override {
        const bool narrow = (dtypes & (1U << GDN_BF16)) != 0;
        return gdn_call_of(make_call(m_problem, m_contract.value, narrow, m_pass, m_cotangents), threads);
    }

    oracle::TensorFile file() const override {
        oracle::TensorFile file = m_file;
        for (const auto& [field, value] : m_contract.as_metadata()) file.metadata[field] = value;
        return file;
    }

    // What a call wrote, as the contract has it in files.
    oracle::TensorFile in_files(const oracle::TensorFile& written) const {
        if (m_pass == KernelPass::backward) return call_gradients(m_problem, m_contract.value, written);
        return call_outputs(m_problem, m_contract.value, *written.find("out"), *written.find("final_state"));
    }

private:
    KernelPass m_pass;
    const oracle::TensorFile& m_file;
    oracle::ResolvedContract m_contract;
    oracle::GdnProblem m_problem;
    oracle::GdnCotangents m_cotangents;
};

constexpr std::pair<unsigned, KernelPass> k_entries[] = {{GDN_FORWARD, KernelPass::forward},
                                                         {GDN_BACKWARD, KernelPass::backward},
                                                         {GDN_DECODE, KernelPass::decode},
                                                         {GDN_DECODE, KernelPass::decode_in_place}};

class ForeignKernel : public oracle::KernelUnderTest {
public:
    ForeignKernel(std::string spelling, std::unique_ptr<Kernel> kernel)
        : m_spelling(std::move(spelling)), m_kernel(std::move(kernel)) {}

    std::string name() const override { return m_spelling; }
    // Each run of a program is a process of its own, so little can carry over: the first case is run again, the others
    // are not.
    bool worth_repeating() const override { return !m_kernel->is_program() || m_runs < k_repeated_runs; }
    std::string network() const override { return m_kernel->network(); }

    Result<KernelRun> run(const oracle::TensorFile& inputs, const oracle::ResolvedContract& contract,
                          int threads) override {
        return run_pass(KernelPass::forward, inputs, contract, threads);
    }

    Result<std::vector<KernelPass>> passes() override {
        if (m_kernel->is_program()) return std::vector{KernelPass::forward};
        GDNCTL_TRY_ASSIGN(const std::uint32_t entries, m_kernel->entries());
        if (entries == 0) return std::vector{KernelPass::forward, KernelPass::decode};  // cannot be asked
        std::vector<KernelPass> passes;
        for (const auto& [entry, pass] : k_entries) {
            if ((entries & (1U << entry)) != 0) passes.push_back(pass);
        }
        return passes;
    }

    Result<KernelRun> run_pass(KernelPass pass, const oracle::TensorFile& file,
                               const oracle::ResolvedContract& contract, int threads) override {
        ++m_runs;
        FileInputs inputs(pass, file, contract);
        std::size_t entry = GDN_FORWARD;
        for (const auto& [number, which] : k_entries) {
            if (which == pass) entry = number;
        }
        if (m_kernel->is_program()) return run_once(*m_kernel, {inputs, entry, threads});
        GDNCTL_TRY(inputs.read());
        GDNCTL_TRY_ASSIGN(auto result, run_once(*m_kernel, {inputs, entry, threads}));
        if (!result.fault) result.outputs = inputs.in_files(result.outputs);
        return result;
    }

private:
    static constexpr int k_repeated_runs = 3;

    std::string m_spelling;
    std::unique_ptr<Kernel> m_kernel;
    int m_runs = 0;
};

}  // namespace

Result<std::unique_ptr<oracle::KernelUnderTest>> open_kernel(const std::string& spelling, const Limits& limits,
                                                             const Context& context) {
    if (spelling.starts_with("builtin:")) return oracle::find_builtin_kernel(spelling);
    GDNCTL_TRY_ASSIGN(auto kernel, open_foreign(spelling, k_gdn_mode, limits, context));
    return std::make_unique<ForeignKernel>(spelling, std::move(kernel));
}

}  // namespace gdnctl::harness
