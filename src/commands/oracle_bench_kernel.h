// A kernel of someone else among the subjects of oracle bench: a loaded library in a child process.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "commands/oracle_bench_rounds.h"
#include "commands/oracle_kernel.h"
#include "gdnctl/oracle/gdn_compare.h"
#include "gdnctl/oracle/kernel_call.h"
#include "gdnctl/oracle/kernel_under_test.h"
#include "gdnctl/platform/context.h"

namespace gdnctl::commands::oracle_bench {

class ForeignKernel {
public:
    // `spelling`: lib:PATH or src:FILE.c. Usage errors: another kind, a file that does not exist.
    static Result<std::unique_ptr<ForeignKernel>> open(const std::string& spelling, const oracle_kernel::Limits& limits,
                                                       const Context& context);

    // The kernel on the inputs that `reference` is the truth of, each run with other signs (so that no result can be
    // kept from run to run), at other addresses, with poisoned outputs that are checked after that very run. From the
    // first fault on nothing is run. This object and `reference` must outlive the subject.
    Result<Subject> subject(const oracle::GdnReference& reference, int threads, double flop);

    const std::string& name() const { return m_spelling; }
    const std::optional<oracle::KernelFault>& fault() const { return m_fault; }
    const oracle::GdnReport& report() const { return m_report; }  // of the first run

    ForeignKernel(std::string spelling, oracle_kernel::Library library, const oracle_kernel::Limits& limits,
                  const Context& context);

private:
    Status place();
    void run();
    Status check();

    std::string m_spelling;
    oracle_kernel::Library m_library;
    oracle_kernel::KernelProcess m_process;
    const oracle::GdnReference* m_reference = nullptr;
    int m_threads = 1;
    std::uint64_t m_seed = 0;
    oracle::KernelCall m_plain, m_placed;
    oracle::Disguise m_disguise;
    std::optional<Error> m_error;
    std::optional<oracle::KernelFault> m_fault;
    std::optional<oracle::TensorFile> m_first;
    oracle::GdnReport m_report;
};

}  // namespace gdnctl::commands::oracle_bench
