// Kernels of linear-ce by their spelling.
#include "harness/child/kernel.h"

#include <fmt/format.h>

#include "gdn/linear_ce_kernel.h"
#include "harness/child/linear_ce_entry.h"
#include "harness/linear_ce/arrays.h"
#include "harness/linear_ce/operator.h"
#include "oracle/linear_ce/judge/selftest.h"

namespace gdnctl::harness::linear_ce {

namespace {

namespace lce = oracle::linear_ce;
using oracle::DType;
using oracle::Tensor;
using oracle::TensorFile;

const lce::Problem& problem_of(const Asked& asked) { return static_cast<const ReadProblem&>(asked.problem).value(); }

// Ours on arrays that it keeps, so that a call does nothing but compute.
class TimedKernel : public Kernel {
public:
    explicit TimedKernel(oracle::Isa isa) : m_isa(isa) {}

    Faulted place(const Asked& asked) override {
        const lce::Problem& problem = problem_of(asked);
        if (m_problem != &problem) m_arrays.emplace(problem, lce::Run{asked.threads, m_isa, {}, 0});
        m_problem = &problem;
        m_gradients = asked.pass > 0;
        return std::nullopt;
    }
    Faulted call() override {
        m_arrays->run(m_gradients);
        return std::nullopt;
    }
    Faulted collect(TensorFile& outputs) override {
        outputs = m_arrays->outputs(m_gradients);
        return std::nullopt;
    }
    std::string_view timed() const override { return "in_process"; }

private:
    oracle::Isa m_isa;
    const lce::Problem* m_problem = nullptr;
    std::optional<OwnArrays> m_arrays;
    bool m_gradients = false;
};

Tensor stored_as(const Tensor& tensor, DType dtype) {
    return tensor.dtype == dtype ? tensor : oracle::from_f64(oracle::to_f64(tensor), tensor.shape, dtype);
}

class LoadedKernel : public Kernel {
public:
    LoadedKernel(Library library, const Limits& limits, const Context& context)
        : m_library(std::move(library)), m_process(context, m_library.path(), limits, std::string(k_linear_ce_entry)) {}

    Result<bool> has(std::size_t pass) override {
        if (pass == 0) return true;  // without one it says so
        if (m_library.build_fault()) return false;
        GDNCTL_TRY_ASSIGN(const auto fault, m_process.open());
        return !fault && (m_process.entries() & (1U << LINEAR_CE_GRADIENTS)) != 0;
    }

    Faulted place(const Asked& asked) override {
        if (m_library.build_fault()) return m_library.build_fault();
        GDNCTL_TRY_ASSIGN(auto fault, m_process.open());
        if (fault) return fault;
        m_network = gdnctl::name_of(m_process.barrier());
        m_call = call_for(problem_of(asked), asked.pass > 0, asked.threads);
        if ((m_process.entries() & (1U << m_call.entry)) == 0) {
            return oracle::KernelFault{oracle::KernelFaultKind::no_entry_point,
                                       fmt::format("has no entry point '{}' (it is NULL in linear_ce_kernel)",
                                                   asked.pass > 0 ? "gradients" : "forward"),
                                       {}};
        }
        return m_process.prepare(m_call);
    }
    Faulted call() override { return m_process.call(); }
    Faulted collect(TensorFile& outputs) override { return m_process.collect(m_call.arrays, outputs); }
    std::string_view timed() const override { return "call"; }
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
    LinearCeCall m_call;
    std::string m_network;
};

}  // namespace

Result<std::unique_ptr<Kernel>> open_kernel(const std::string& spelling, const Opening& how, const Context& context) {
    if (spelling == "builtin:fused") {
        if (how.to_time) return std::make_unique<TimedKernel>(how.isa);
        return std::make_unique<OwnKernel>([isa = how.isa](const Asked& asked) {
            return lce::kernel_outputs(problem_of(asked), {asked.threads, isa, {}, 0});
        });
    }
    if (spelling.starts_with("builtin:")) {
        return fail(ErrorKind::usage, fmt::format("kernel '{}' is not known", spelling), "known: builtin:fused");
    }
    if (spelling.starts_with("cmd:")) return open_plain_program(spelling, how.limits, context);
    if (is_library(spelling)) {
        GDNCTL_TRY_ASSIGN(Library library, Library::open(spelling, context));
        return std::make_unique<LoadedKernel>(std::move(library), how.limits, context);
    }
    return fail(ErrorKind::usage, fmt::format("kernel '{}' is of no known kind", spelling),
                "name it lib:PATH, src:FILE.c, cmd:COMMAND or builtin:fused");
}

}  // namespace gdnctl::harness::linear_ce
