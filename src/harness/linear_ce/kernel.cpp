// Kernels of linear-ce by their spelling.

#include <fmt/format.h>

#include "gdn/linear_ce_kernel.h"
#include "harness/linear_ce/arrays.h"
#include "harness/linear_ce/operator.h"
#include "oracle/linear_ce/judge/selftest.h"

namespace gdnctl::harness::linear_ce {

namespace {

namespace lce = oracle::linear_ce;
using oracle::DType;
using oracle::Tensor;
using oracle::TensorFile;

const lce::Problem& problem_of(const Asked& asked) { return static_cast<const ReadProblem&>(asked.inputs).value(); }

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

}  // namespace

Result<Call> ReadProblem::call(std::size_t pass, std::uint32_t dtypes, int threads) {
    const lce::Problem& p = m_problem;
    const bool gradients = pass > 0;
    const auto B = static_cast<std::int64_t>(p.batch);
    const bool narrow = p.x_dtype == DType::bf16 && p.w_dtype == DType::bf16 && (dtypes & (1U << GDN_BF16)) != 0;
    const DType dtype = narrow ? DType::bf16 : DType::f32;
    Call call;
    const auto put = [&](const char* name, Tensor tensor) {
        call.arrays.push_back({name, Role::input, std::move(tensor)});
    };
    const auto put_output = [&](const char* name, DType of, oracle::Shape shape) {
        call.arrays.push_back({name, Role::output, {of, std::move(shape), {}}});
    };
    put("x", stored_as(p.x, dtype));
    put("w", stored_as(p.w, dtype));
    put("labels", oracle::from_i64(p.labels, {B}));
    put_output("loss", DType::f32, {B});
    put_output("lse", DType::f32, {B});
    put_output("argmax", DType::i64, {B});
    if (gradients) {
        put("d_loss", oracle::from_f64(p.d_loss, {B}, DType::f32));
        if (p.d_lse) put("d_lse", oracle::from_f64(*p.d_lse, {B}, DType::f32));
        put_output("gx", dtype, p.x.shape);
        put_output("gw", dtype, p.w.shape);
    }
    call.integers = {B, static_cast<std::int64_t>(p.hidden), static_cast<std::int64_t>(p.vocab),
                     p.c().layout == lce::Layout::hv ? LINEAR_CE_HV : LINEAR_CE_VH};
    call.reals = {p.c().soft_cap, p.own_cotangents ? 0 : p.c().logsumexp_weight};
    call.threads = threads;
    call.entry = gradients ? LINEAR_CE_GRADIENTS : LINEAR_CE_FORWARD;
    call.entry_name = gradients ? "gradients" : "forward";
    return call;
}

TensorFile ReadProblem::file() const {
    TensorFile file = m_inputs;
    for (const auto& [field, value] : m_problem.contract.as_metadata()) file.metadata[field] = value;
    return file;
}

Result<std::unique_ptr<Kernel>> open_kernel(const std::string& spelling, const Opening& how, const Context& context) {
    if (spelling == "builtin:fused") {
        if (how.to_time) return std::make_unique<TimedKernel>(how.isa);
        return std::make_unique<OwnKernel>([isa = how.isa](const Asked& asked) {
            return lce::kernel_outputs(problem_of(asked), {asked.threads, isa, {}, 0});
        });
    }
    if (spelling.starts_with("builtin:")) {
        return fail(ErrorKind::usage, fmt::format("unknown kernel '{}'", spelling), "known: builtin:fused");
    }
    if (is_library(spelling) || spelling.starts_with("cmd:")) {
        return open_foreign(spelling, k_linear_ce_mode, how.limits, context);
    }
    return fail(ErrorKind::usage, fmt::format("unknown kind of kernel '{}'", spelling),
                "name it lib:PATH, src:FILE.c, cmd:COMMAND or builtin:fused");
}

}  // namespace gdnctl::harness::linear_ce
