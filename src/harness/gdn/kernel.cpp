#include "harness/gdn/kernel.h"

#include "harness/child/entry.h"

namespace gdnctl::harness {

namespace {

// A loaded kernel, whose outputs become those of files.
class GdnLibrary : public LoadedKernel {
public:
    using LoadedKernel::LoadedKernel;

    Faulted place(const Asked& asked) override {
        m_inputs = &static_cast<oracle::GdnInputs&>(asked.inputs);
        GDNCTL_TRY(m_inputs->read());
        return LoadedKernel::place(asked);
    }
    Faulted collect(oracle::TensorFile& outputs) override {
        oracle::TensorFile written;
        GDNCTL_TRY_ASSIGN(auto fault, LoadedKernel::collect(written));
        if (!fault) outputs = m_inputs->in_files(written);
        return fault;
    }

private:
    oracle::GdnInputs* m_inputs = nullptr;
};

}  // namespace

Result<std::unique_ptr<Kernel>> open_kernel(const std::string& spelling, const Limits& limits, const Context& context) {
    if (spelling.starts_with("builtin:")) return oracle::find_builtin_kernel(spelling);
    if (!is_library(spelling)) return open_foreign(spelling, k_gdn_mode, limits, context);
    GDNCTL_TRY_ASSIGN(Library library, Library::open(spelling, context));
    return std::make_unique<GdnLibrary>(std::move(library), limits, context, k_gdn_mode);
}

}  // namespace gdnctl::harness
