#include "oracle/judge/kernel.h"

#include <algorithm>

namespace gdnctl::oracle {

namespace {

struct FaultRow {
    KernelFaultKind kind;
    std::string_view name;
    bool ends_everything;
};

constexpr FaultRow k_faults[] = {
    {KernelFaultKind::unsupported, "UNSUPPORTED", false},
    {KernelFaultKind::refused, "REFUSED", false},
    {KernelFaultKind::incomplete, "INCOMPLETE", false},
    {KernelFaultKind::wrong_shape, "WRONG_SHAPE", false},
    {KernelFaultKind::non_finite, "NON_FINITE", false},
    {KernelFaultKind::unsteady, "UNSTEADY", false},
    {KernelFaultKind::cached, "CACHED", false},
    {KernelFaultKind::impossible, "IMPOSSIBLE", false},
    {KernelFaultKind::out_of_bounds, "OUT_OF_BOUNDS", false},
    {KernelFaultKind::crashed, "CRASHED", false},
    {KernelFaultKind::memory_limit, "MEMORY_LIMIT", true},
    {KernelFaultKind::timed_out, "TIMED_OUT", true},
    {KernelFaultKind::no_entry_point, "NO_ENTRY_POINT", true},
    {KernelFaultKind::build_failed, "BUILD_FAILED", true},
};

const FaultRow& row_of(KernelFaultKind kind) {
    return *std::find_if(std::begin(k_faults), std::end(k_faults), [&](const FaultRow& r) { return r.kind == kind; });
}

}  // namespace

std::string_view name_of(KernelFaultKind kind) { return row_of(kind).name; }

bool ends_everything(const KernelFault& fault) { return fault.at_start || row_of(fault.kind).ends_everything; }

std::set<std::string> not_returned(const TensorFile& outputs) {
    std::set<std::string> names;
    for (const auto& [key, value] : outputs.metadata) {
        if (key.starts_with(k_without)) names.insert(key.substr(k_without.size()));
    }
    return names;
}

Result<KernelRun> run_once(Kernel& kernel, const Asked& asked) {
    KernelRun run;
    GDNCTL_TRY_ASSIGN(run.fault, kernel.place(asked));
    if (run.fault) return run;
    GDNCTL_TRY_ASSIGN(run.fault, kernel.call());
    if (run.fault) return run;
    GDNCTL_TRY_ASSIGN(run.fault, kernel.collect(run.outputs));
    return run;
}

Faulted OwnKernel::place(const Asked& asked) {
    m_asked.emplace(asked);
    return std::nullopt;
}

Faulted OwnKernel::call() {
    m_outputs[m_asked->pass] = m_function(*m_asked);
    return std::nullopt;
}

Faulted OwnKernel::collect(TensorFile& outputs) {
    outputs = std::move(m_outputs[m_asked->pass]);
    return std::nullopt;
}

}  // namespace gdnctl::oracle
