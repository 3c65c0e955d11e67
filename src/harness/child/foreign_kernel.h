// Kernels under test that do not run in this process: loaded libraries, programs, functions of solutions.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "harness/child/arena.h"
#include "harness/child/library.h"
#include "harness/child/process.h"
#include "oracle/judge/kernel.h"
#include "platform/context.h"

namespace gdnctl::harness {

using oracle::Asked;
using oracle::Inputs;
using oracle::Kernel;
using oracle::OwnKernel;
using oracle::run_once;

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
    oracle::KernelFacts facts() const override { return {.chunk = m_process.chunk()}; }

private:
    std::optional<Library> m_library;
    KernelProcess m_process;
    bool m_opened = false;
};

// lib:PATH, src:FILE.c, cmd:COMMAND or py:ADAPTER[:FUNCTION]. Usage errors: another kind, a file that does not exist,
// no command. `context` must outlive the kernel.
Result<std::unique_ptr<Kernel>> open_foreign(const std::string& spelling, std::string_view mode, const Limits& limits,
                                             const Context& context);

}  // namespace gdnctl::harness
