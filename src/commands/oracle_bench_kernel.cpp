#include "commands/oracle_bench_kernel.h"

#include <random>

#include <fmt/format.h>

#include "gdn/gdn_kernel.h"
#include "gdnctl/oracle/gdn_contract.h"

namespace gdnctl::commands::oracle_bench {

namespace {

using oracle::KernelFault;
using oracle::KernelFaultKind;

// Nobody can know the signs of a run before it.
std::uint64_t secret_seed() {
    std::random_device device;
    return (static_cast<std::uint64_t>(device()) << 32U) | device();
}

bool same_bytes(const oracle::TensorFile& a, const oracle::TensorFile& b) {
    for (std::size_t i = 0; i < a.tensors.size(); ++i) {
        if (a.tensors[i].tensor.bytes != b.tensors[i].tensor.bytes) return false;
    }
    return true;
}

}  // namespace

Result<std::unique_ptr<ForeignKernel>> ForeignKernel::open(const std::string& spelling,
                                                           const oracle_kernel::Limits& limits,
                                                           const Context& context) {
    if (!oracle_kernel::is_library(spelling)) {
        return fail(ErrorKind::usage, fmt::format("kernel '{}' cannot be timed", spelling),
                    "kernels that can: lib:PATH, src:FILE.c, builtin:NAME");
    }
    GDNCTL_TRY_ASSIGN(auto library, oracle_kernel::Library::open(spelling, context));
    return std::make_unique<ForeignKernel>(spelling, std::move(library), limits, context);
}

ForeignKernel::ForeignKernel(std::string spelling, oracle_kernel::Library library, const oracle_kernel::Limits& limits,
                             const Context& context)
    : m_spelling(std::move(spelling)),
      m_library(std::move(library)),
      m_process(context, m_library.path(), limits),
      m_fault(m_library.build_fault()) {}

Result<Subject> ForeignKernel::subject(const oracle::GdnReference& reference, int threads, double flop) {
    m_reference = &reference;
    m_threads = threads;
    m_seed = secret_seed();
    if (!m_fault) {
        GDNCTL_TRY_ASSIGN(m_fault, m_process.open());
    }
    const bool takes_bf16 = !m_fault && (m_process.dtypes() & (1U << GDN_BF16)) != 0;
    m_plain = make_call(reference.problem, reference.contract.value, takes_bf16);
    Subject subject{m_spelling, flop, [this] { run(); }, {}, {}};
    subject.before = [this] { return place(); };
    subject.after = [this] { return check(); };
    return subject;
}

Status ForeignKernel::place() {
    if (m_fault) return {};
    const oracle::GdnContract& contract = m_reference->contract.value;
    m_disguise = oracle::Disguise(m_plain.dims, contract.head_map, ++m_seed);
    m_placed = m_plain;
    m_disguise.keys(m_placed.q);
    m_disguise.keys(m_placed.k);
    m_disguise.values(m_placed.v);
    if (m_placed.initial_state) m_disguise.state(*m_placed.initial_state, oracle::StateLayout::key_value);
    GDNCTL_TRY_ASSIGN(m_fault, m_process.prepare(m_placed, m_threads));
    return {};
}

// Only the call is timed: what it led to is looked at in check().
void ForeignKernel::run() {
    if (m_fault) return;
    auto fault = m_process.call();
    if (!fault) {
        m_error = std::move(fault).error();
        return;
    }
    m_fault = std::move(*fault);
}

Status ForeignKernel::check() {
    if (m_error) return tl::unexpected(*m_error);
    if (m_fault) return {};
    oracle::TensorFile outputs;
    GDNCTL_TRY_ASSIGN(m_fault, m_process.collect(m_placed, outputs));
    if (m_fault) return {};
    apply(m_disguise, outputs, oracle::StateLayout::key_value);
    if (m_first && same_bytes(*m_first, outputs)) return {};
    GDNCTL_TRY_ASSIGN(auto report, oracle::judge(*m_reference, outputs, {}));
    if (!m_first) {
        m_first = std::move(outputs);
        m_report = std::move(report);
    } else if (report.verdict != m_report.verdict) {
        m_fault =
            KernelFault{KernelFaultKind::unsteady, fmt::format("another result in a later run: {}", report.reason), {}};
    }
    return {};
}

}  // namespace gdnctl::commands::oracle_bench
