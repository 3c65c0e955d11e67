// A kernel of ours that is given other inputs than it is asked with, or whose outputs are changed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "oracle/gdn/under_test/kernel_under_test.h"

namespace gdnctl::oracle::testing {

class ChangedKernel : public Kernel {
public:
    using Inputs = std::function<void(TensorFile& inputs)>;                    // empty: as they are
    using Outputs = std::function<void(const GdnInputs& of, KernelRun& run)>;  // the same

    ChangedKernel(std::string_view builtin, Inputs inputs, Outputs outputs)
        : m_kernel(*find_builtin_kernel(builtin)), m_inputs(std::move(inputs)), m_outputs(std::move(outputs)) {}

    std::string_view timed() const override { return "call"; }
    Result<std::uint32_t> entries() override { return m_kernel->entries(); }
    Faulted place(const Asked& asked) override {
        const auto& given = static_cast<const GdnInputs&>(asked.inputs);
        m_file = given.tensors();
        if (m_inputs) m_inputs(m_file);
        m_asked.emplace(given.pass(), m_file, given.contract());
        return m_kernel->place({*m_asked, asked.pass, asked.threads});
    }
    Faulted call() override { return m_kernel->call(); }
    Faulted collect(TensorFile& outputs) override {
        KernelRun run;
        GDNCTL_TRY_ASSIGN(run.fault, m_kernel->collect(run.outputs));
        if (m_outputs) m_outputs(*m_asked, run);
        outputs = std::move(run.outputs);
        return run.fault;
    }

private:
    std::unique_ptr<Kernel> m_kernel;
    Inputs m_inputs;
    Outputs m_outputs;
    TensorFile m_file;
    std::optional<GdnInputs> m_asked;
};

}  // namespace gdnctl::oracle::testing
