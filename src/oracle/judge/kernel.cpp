#include "oracle/judge/kernel.h"

namespace gdnctl::oracle {

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
