// A kernel under test, of whatever operator and wherever it runs: one of ours, a loaded library, a program, a solution.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "harness/child/arena.h"
#include "harness/child/kernel.h"
#include "harness/child/process.h"
#include "oracle/tensor/tensor.h"
#include "platform/context.h"

namespace gdnctl::harness {

// Inputs as kernels get them.
class Inputs {
public:
    virtual ~Inputs() = default;
    // For a loaded kernel: the arrays and numbers of a pass. `dtypes` are those that it takes, as Entry has them.
    virtual Result<Call> call(std::size_t pass, std::uint32_t dtypes, int threads) = 0;
    // For a program: tensors, with the contract as metadata.
    virtual oracle::TensorFile file() const = 0;
};

struct Asked {
    Inputs& inputs;        // until collect()
    std::size_t pass = 0;  // as the operator numbers them: GDN_FORWARD, LINEAR_CE_GRADIENTS, ...
    int threads = 1;
};

// place(), call() and collect() in turn, of which the call alone is timed.
class Kernel {
public:
    virtual ~Kernel() = default;

    // Bits 1 << pass of the passes that it has; 0: it cannot be asked, and place() says why.
    virtual Result<std::uint32_t> entries() { return ~std::uint32_t{0}; }
    Result<bool> has(std::size_t pass) {
        GDNCTL_TRY_ASSIGN(const std::uint32_t all, entries());
        return (all & (1U << pass)) != 0;
    }
    virtual Faulted place(const Asked& asked) = 0;
    virtual Faulted call() = 0;
    // What the last call of that pass gave, by the names of its interface.
    virtual Faulted collect(oracle::TensorFile& outputs) = 0;
    // What a time of it is of: "in_process" (ours), "call" or "program".
    virtual std::string_view timed() const = 0;
    bool is_foreign() const { return timed() != "in_process"; }
    bool is_program() const { return timed() == "program"; }
    // What kept it from the network; empty: it runs in this process, or has not run.
    virtual std::string network() const { return {}; }
};

Result<oracle::KernelRun> run_once(Kernel& kernel, const Asked& asked);

// A kernel of our own as a function from inputs to outputs.
class OwnKernel : public Kernel {
public:
    using Function = std::function<oracle::TensorFile(const Asked&)>;
    explicit OwnKernel(Function function) : m_function(std::move(function)) {}

    Faulted place(const Asked& asked) override;
    Faulted call() override;
    Faulted collect(oracle::TensorFile& outputs) override;
    std::string_view timed() const override { return "in_process"; }

private:
    Function m_function;
    std::optional<Asked> m_asked;
    std::map<std::size_t, oracle::TensorFile> m_outputs;  // by pass
};

// A library whose interface is that of `mode` (child/entry.h).
class LoadedKernel : public Kernel {
public:
    LoadedKernel(Library library, const Limits& limits, const Context& context, std::string_view mode);
    // The function of a solution by FlashInfer-Bench's convention.
    LoadedKernel(const std::filesystem::path& library, const std::string& function, const Limits& limits,
                 const Context& context);

    Result<std::uint32_t> entries() override;
    Faulted place(const Asked& asked) override;
    Faulted call() override { return m_process.call(); }
    Faulted collect(oracle::TensorFile& outputs) override { return m_process.collect(outputs); }
    std::string_view timed() const override { return "call"; }
    std::string network() const override;

private:
    std::optional<Library> m_library;
    KernelProcess m_process;
    bool m_opened = false;
};

// lib:PATH, src:FILE.c or cmd:COMMAND. Usage errors: another kind, a file that does not exist, no command. `context`
// must outlive the kernel.
Result<std::unique_ptr<Kernel>> open_foreign(const std::string& spelling, std::string_view mode, const Limits& limits,
                                             const Context& context);

}  // namespace gdnctl::harness
