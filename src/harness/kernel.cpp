#include "harness/kernel.h"

#include <fmt/format.h>

#include "harness/child/program.h"

namespace gdnctl::harness {

namespace {

class ProgramKernel : public Kernel {
public:
    ProgramKernel(const std::string& spelling, const Limits& limits, const Context& context)
        : m_run(spelling, limits, context) {}

    // Each run is a process of its own, so little can carry over: the first case is run again, the others are not.
    bool worth_repeating() const override { return m_runs < k_repeated_runs; }
    Faulted place(const Asked& asked) override {
        ++m_runs;
        GDNCTL_TRY(m_run.prepare(asked.inputs.file(), asked.threads));
        return std::nullopt;
    }
    Faulted call() override { return m_run.call(); }
    Faulted collect(oracle::TensorFile& outputs) override { return m_run.collect(outputs); }
    std::string_view timed() const override { return "program"; }
    std::string network() const override { return m_run.network(); }

private:
    static constexpr int k_repeated_runs = 3;

    ProgramRun m_run;
    int m_runs = 0;
};

}  // namespace

LoadedKernel::LoadedKernel(Library library, const Limits& limits, const Context& context, std::string_view mode)
    : m_library(std::move(library)), m_process(context, m_library->path().string(), limits, mode) {}

LoadedKernel::LoadedKernel(const std::filesystem::path& library, const std::string& function, const Limits& limits,
                           const Context& context)
    : m_process(context, function + ":" + library.string(), limits, k_solution_mode) {}

Result<std::uint32_t> LoadedKernel::entries() {
    if (m_library && m_library->build_fault()) return 0U;
    GDNCTL_TRY_ASSIGN(const auto fault, m_process.open());
    return fault ? 0U : m_process.entries();
}

Faulted LoadedKernel::place(const Asked& asked) {
    if (m_library && m_library->build_fault()) return m_library->build_fault();
    GDNCTL_TRY_ASSIGN(auto fault, m_process.open());
    if (fault) {
        fault->at_start = !m_opened;
        return fault;
    }
    m_opened = true;
    GDNCTL_TRY_ASSIGN(auto call, asked.inputs.call(asked.pass, m_process.dtypes(), asked.threads));
    return m_process.prepare(std::move(call));
}

std::string LoadedKernel::network() const {
    return m_opened ? std::string(gdnctl::name_of(m_process.barrier())) : std::string();
}

Result<std::unique_ptr<Kernel>> open_foreign(const std::string& spelling, std::string_view mode, const Limits& limits,
                                             const Context& context) {
    if (is_library(spelling)) {
        GDNCTL_TRY_ASSIGN(Library library, Library::open(spelling, context));
        return std::make_unique<LoadedKernel>(std::move(library), limits, context, mode);
    }
    if (spelling.starts_with("cmd:")) {
        GDNCTL_TRY(check_program(spelling));
        return std::make_unique<ProgramKernel>(spelling, limits, context);
    }
    return fail(ErrorKind::usage, fmt::format("unknown kind of kernel '{}'", spelling),
                "name it lib:PATH, src:FILE.c, cmd:COMMAND or builtin:NAME");
}

}  // namespace gdnctl::harness
