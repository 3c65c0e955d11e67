// Timing a loaded library: its entry points, called in a child process that shares memory with this one.
#include <cstring>

#include "gdn/gdn_kernel.h"
#include "harness/timing/kernel.h"
#include "oracle/gdn/contract/gradients.h"

namespace gdnctl::harness {

namespace {

using harness::Faulted;
using harness::KernelProcess;
using oracle::KernelCall;
using oracle::KernelPass;
using oracle::Tensor;

// Copies token t of row b of a [B, T, ...] tensor to row b of step order[t], or back.
Tensor rearranged(const Tensor& tensor, std::int64_t batch, const std::vector<std::int64_t>& order, bool to_steps) {
    Tensor result = tensor;
    const auto rows = static_cast<std::size_t>(batch);
    const std::size_t steps = order.size();
    const std::size_t width = tensor.bytes.size() / std::max<std::size_t>(rows * steps, 1);
    for (std::size_t b = 0; b < rows; ++b) {
        for (std::size_t t = 0; t < steps; ++t) {
            const std::size_t by_token = (b * steps + t) * width;
            const std::size_t by_step = (static_cast<std::size_t>(order[t]) * rows + b) * width;
            std::memcpy(result.bytes.data() + (to_steps ? by_step : by_token),
                        tensor.bytes.data() + (to_steps ? by_token : by_step), width);
        }
    }
    return result;
}

class LibraryPass : public ForeignPass {
public:
    LibraryPass(oracle::Pass pass, const Task& task, KernelProcess& process, KernelCall call)
        : ForeignPass(pass, task), m_process(process), m_plain(std::move(call)) {}

protected:
    Faulted place(const oracle::TensorFile& inputs, const oracle::Disguise& disguise) override {
        m_placed = m_plain;
        if (task().fresh != nullptr) take(inputs);
        for (Tensor* keys : {&m_placed.q, &m_placed.k}) disguise.keys(*keys);
        disguise.values(m_placed.v);
        if (m_placed.d_out) disguise.values(*m_placed.d_out);
        for (auto* state : {&m_placed.initial_state, &m_placed.d_final_state}) {
            if (*state) disguise.state(**state, oracle::StateLayout::key_value);
        }
        if (m_placed.steps > 0) {
            m_order = harness::step_order(m_placed.steps, ++m_placed.step_seed);
            m_plain.step_seed = m_placed.step_seed;
            for (Tensor* tensor : {&m_placed.q, &m_placed.k, &m_placed.v, &m_placed.g, &m_placed.beta}) {
                *tensor = rearranged(*tensor, m_placed.dims.B, m_order, true);
            }
        }
        GDNCTL_TRY_ASSIGN(auto fault, m_process.open());
        if (fault) return fault;
        return m_process.prepare(m_placed, task().threads);
    }

    std::string network() const override { return std::string(gdnctl::name_of(m_process.barrier())); }

    Faulted call() override { return m_process.call(); }

    Faulted collect(oracle::TensorFile& outputs) override {
        GDNCTL_TRY_ASSIGN(auto fault, m_process.collect(m_placed, outputs));
        if (fault || m_placed.steps == 0) return fault;
        for (oracle::NamedTensor& entry : outputs.tensors) {
            if (entry.name == "out") entry.tensor = rearranged(entry.tensor, m_placed.dims.B, m_order, false);
        }
        return fault;
    }

    oracle::TensorFile in_files(oracle::TensorFile outputs, const oracle::GdnReference& of) const override {
        if (pass() != oracle::Pass::backward) return outputs;
        return call_gradients(of.problem, of.contract.value, outputs);
    }

private:
    // The inputs of oracle bench are those of a call, but for their dtypes.
    void take(const oracle::TensorFile& inputs) {
        const auto put = [&](std::string_view name, Tensor& to) {
            const Tensor* from = inputs.find(name);
            if (from == nullptr) return;
            to = from->dtype == to.dtype ? *from : oracle::from_f64(to_f64(*from), to.shape, to.dtype);
        };
        put("q", m_placed.q);
        put("k", m_placed.k);
        put("v", m_placed.v);
        put("g", m_placed.g);
        put("beta", m_placed.beta);
        if (m_placed.initial_state) put("initial_state", *m_placed.initial_state);
        if (m_placed.d_out) put("d_out", *m_placed.d_out);
        if (m_placed.d_final_state) put("d_final_state", *m_placed.d_final_state);
    }

    KernelProcess& m_process;
    KernelCall m_plain, m_placed;
    std::vector<std::int64_t> m_order;  // of steps in memory
};

// One that cannot be loaded: every run has that fault.
class BrokenPass : public ForeignPass {
public:
    BrokenPass(const Task& task, oracle::KernelFault fault)
        : ForeignPass(oracle::Pass::forward, task), m_broken(std::move(fault)) {}

protected:
    Faulted place(const oracle::TensorFile& /*inputs*/, const oracle::Disguise& /*disguise*/) override {
        return m_broken;
    }
    Faulted call() override { return m_broken; }
    Faulted collect(oracle::TensorFile& /*outputs*/) override { return m_broken; }

private:
    oracle::KernelFault m_broken;
};

class LibraryKernel : public ForeignKernel {
public:
    LibraryKernel(const std::string& spelling, harness::Library library, const harness::Limits& limits,
                  const Context& context)
        : ForeignKernel(spelling), m_library(std::move(library)), m_process(context, m_library.path(), limits) {}

    std::string_view timed() const override { return "call"; }

    Result<std::vector<std::unique_ptr<ForeignPass>>> passes(const Task& task) override {
        std::vector<std::unique_ptr<ForeignPass>> passes;
        std::optional<oracle::KernelFault> fault = m_library.build_fault();
        if (!fault) {
            GDNCTL_TRY_ASSIGN(fault, m_process.open());
        }
        if (fault) {
            passes.push_back(std::make_unique<BrokenPass>(task, *fault));
            return passes;
        }
        const std::pair<unsigned, oracle::Pass> known[] = {{GDN_FORWARD, oracle::Pass::forward},
                                                           {GDN_BACKWARD, oracle::Pass::backward},
                                                           {GDN_DECODE, oracle::Pass::decode}};
        for (const auto& [entry, pass] : known) {
            if ((m_process.entries() & (1U << entry)) == 0) continue;
            if (pass != oracle::Pass::forward && !task.with_cotangents) continue;
            GDNCTL_TRY_ASSIGN(auto call, call_of(pass, task));
            passes.push_back(std::make_unique<LibraryPass>(pass, task, m_process, std::move(call)));
        }
        if (passes.empty()) {
            fault = oracle::KernelFault{
                oracle::KernelFaultKind::no_entry_point, "has no entry point 'forward' (it is NULL in gdn_kernel)", {}};
            passes.push_back(std::make_unique<BrokenPass>(task, *fault));
        }
        return passes;
    }

private:
    Result<KernelCall> call_of(oracle::Pass pass, const Task& task) const {
        const oracle::GdnProblem& problem = task.reference.problem;
        const oracle::GdnContract& contract = task.reference.contract.value;
        const bool takes_bf16 = (m_process.dtypes() & (1U << GDN_BF16)) != 0;
        oracle::GdnCotangents cotangents;
        if (pass == oracle::Pass::backward) {
            GDNCTL_TRY_ASSIGN(auto given, read_cotangents(task.with_cotangents(), problem, contract));
            if (given) cotangents = std::move(*given);
        }
        const KernelPass asked = pass == oracle::Pass::backward ? KernelPass::backward
                                 : pass == oracle::Pass::decode ? KernelPass::decode_in_place
                                                                : KernelPass::forward;
        KernelCall call = make_call(problem, contract, takes_bf16, asked, cotangents);
        if (pass == oracle::Pass::decode) call.steps = problem.dims.T;
        return call;
    }

    harness::Library m_library;
    KernelProcess m_process;
};

}  // namespace

std::unique_ptr<ForeignKernel> timed_library(const std::string& spelling, harness::Library library,
                                             const harness::Limits& limits, const Context& context) {
    return std::make_unique<LibraryKernel>(spelling, std::move(library), limits, context);
}

}  // namespace gdnctl::harness
