#include "harness/linear_ce/kernel.h"

#include <fmt/format.h>

#include "gdn/linear_ce_kernel.h"
#include "harness/child/kernel.h"
#include "harness/child/linear_ce_entry.h"
#include "harness/child/program.h"
#include "oracle/linear_ce/judge/selftest.h"
#include "platform/clock.h"

namespace gdnctl::harness {

namespace {

namespace lce = oracle::linear_ce;
using oracle::DType;
using oracle::KernelRun;
using oracle::Tensor;
using oracle::TensorFile;

class OwnKernel : public LinearCeKernel {
public:
    explicit OwnKernel(const Context& context) : m_context(context) {}

    Result<KernelRun> run(const TensorFile& /*inputs*/, const lce::Problem& problem, bool /*gradients*/,
                          int threads) override {
        const auto start = m_context.clock.monotonic();
        KernelRun result{lce::kernel_outputs(problem, {threads, oracle::best_isa(), {}, 0}), std::nullopt};
        m_seconds = std::chrono::duration<double>(m_context.clock.monotonic() - start).count();
        return result;
    }
    double seconds() const override { return m_seconds; }
    bool is_foreign() const override { return false; }

private:
    const Context& m_context;
    double m_seconds = 0;
};

Tensor stored_as(const Tensor& tensor, DType dtype) {
    return tensor.dtype == dtype ? tensor : oracle::from_f64(oracle::to_f64(tensor), tensor.shape, dtype);
}

class LoadedKernel : public LinearCeKernel {
public:
    LoadedKernel(Library library, const Limits& limits, const Context& context)
        : m_library(std::move(library)), m_process(context, m_library.path(), limits, std::string(k_linear_ce_entry)) {}

    Result<bool> has_gradients() override {
        if (m_library.build_fault()) return false;
        GDNCTL_TRY_ASSIGN(const auto fault, m_process.open());
        return !fault && (m_process.entries() & (1U << LINEAR_CE_GRADIENTS)) != 0;
    }

    Result<KernelRun> run(const TensorFile& /*inputs*/, const lce::Problem& problem, bool gradients,
                          int threads) override {
        KernelRun result;
        result.fault = m_library.build_fault();
        if (result.fault) return result;
        GDNCTL_TRY_ASSIGN(result.fault, m_process.open());
        if (result.fault) return result;
        m_network = gdnctl::name_of(m_process.barrier());
        const LinearCeCall call = call_for(problem, gradients, threads);
        if ((m_process.entries() & (1U << call.entry)) == 0) {
            result.fault = oracle::KernelFault{oracle::KernelFaultKind::no_entry_point,
                                               fmt::format("has no entry point '{}' (it is NULL in linear_ce_kernel)",
                                                           gradients ? "gradients" : "forward"),
                                               {}};
            return result;
        }
        GDNCTL_TRY_ASSIGN(result.fault, m_process.prepare(call));
        if (result.fault) return result;
        GDNCTL_TRY_ASSIGN(result.fault, m_process.call());
        if (result.fault) return result;
        GDNCTL_TRY_ASSIGN(result.fault, m_process.collect(call.arrays, result.outputs));
        return result;
    }
    double seconds() const override { return m_process.seconds(); }
    std::string network() const override { return m_network; }

private:
    LinearCeCall call_for(const lce::Problem& p, bool gradients, int threads) const {
        const auto B = static_cast<std::int64_t>(p.batch);
        const bool narrow =
            p.x.dtype == DType::bf16 && p.w.dtype == DType::bf16 && (m_process.dtypes() & (1U << GDN_BF16)) != 0;
        const DType dtype = narrow ? DType::bf16 : DType::f32;
        LinearCeCall call;
        const auto put = [&](Slot slot, Tensor tensor) {
            call.arrays.arguments.push_back({static_cast<std::uint32_t>(slot), std::move(tensor)});
        };
        put(Slot::x, stored_as(p.x, dtype));
        put(Slot::w, stored_as(p.w, dtype));
        put(Slot::labels, oracle::from_i64(p.labels, {B}));
        put(Slot::loss, {DType::f32, {B}, {}});
        put(Slot::lse, {DType::f32, {B}, {}});
        put(Slot::argmax, {DType::i64, {B}, {}});
        if (gradients) {
            put(Slot::d_loss, oracle::from_f64(p.d_loss, {B}, DType::f32));
            if (p.d_lse) put(Slot::d_lse, oracle::from_f64(*p.d_lse, {B}, DType::f32));
            put(Slot::gx, {dtype, p.x.shape, {}});
            put(Slot::gw, {dtype, p.w.shape, {}});
        }
        call.sizes = {B, static_cast<std::int64_t>(p.hidden), static_cast<std::int64_t>(p.vocab),
                      p.c().layout == lce::Layout::hv ? LINEAR_CE_HV : LINEAR_CE_VH};
        call.soft_cap = p.c().soft_cap;
        call.logsumexp_weight = p.own_cotangents ? 0 : p.c().logsumexp_weight;
        call.threads = threads;
        call.entry = gradients ? LINEAR_CE_GRADIENTS : LINEAR_CE_FORWARD;
        return call;
    }

    Library m_library;
    KernelProcess m_process;
    std::string m_network;
};

class ProgramKernel : public LinearCeKernel {
public:
    ProgramKernel(const std::string& spelling, const Limits& limits, const Context& context)
        : m_context(context), m_run(spelling, limits, context) {}

    Result<KernelRun> run(const TensorFile& inputs, const lce::Problem& problem, bool /*gradients*/,
                          int threads) override {
        KernelRun result;
        GDNCTL_TRY(m_run.prepare(inputs, problem.contract.as_metadata(), threads));
        const auto start = m_context.clock.monotonic();
        GDNCTL_TRY_ASSIGN(result.fault, m_run.call());
        m_seconds = std::chrono::duration<double>(m_context.clock.monotonic() - start).count();
        if (result.fault) return result;
        GDNCTL_TRY_ASSIGN(result.fault, m_run.collect(result.outputs));
        return result;
    }
    double seconds() const override { return m_seconds; }
    std::string network() const override { return m_run.network(); }

private:
    const Context& m_context;
    ProgramRun m_run;
    double m_seconds = 0;
};

}  // namespace

Result<std::unique_ptr<LinearCeKernel>> open_linear_ce_kernel(const std::string& spelling, const Limits& limits,
                                                              const Context& context) {
    if (spelling == "builtin:fused") return std::make_unique<OwnKernel>(context);
    if (spelling.starts_with("builtin:")) {
        return fail(ErrorKind::usage, fmt::format("kernel '{}' is not known", spelling), "known: builtin:fused");
    }
    if (spelling.starts_with("cmd:")) {
        GDNCTL_TRY(check_program(spelling));
        return std::make_unique<ProgramKernel>(spelling, limits, context);
    }
    if (is_library(spelling)) {
        GDNCTL_TRY_ASSIGN(Library library, Library::open(spelling, context));
        return std::make_unique<LoadedKernel>(std::move(library), limits, context);
    }
    return fail(ErrorKind::usage, fmt::format("kernel '{}' is of no known kind", spelling),
                "name it lib:PATH, src:FILE.c, cmd:COMMAND or builtin:fused");
}

}  // namespace gdnctl::harness
