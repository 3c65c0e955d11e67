// What kernels of gdn/gdn_kernel.h and programs over files are timed on.
#include <cstring>

#include "gdn/gdn_kernel.h"
#include "harness/child/gdn_entry.h"
#include "harness/timing/kernel.h"
#include "oracle/gdn/contract/gradients.h"

namespace gdnctl::harness {

namespace {

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

KernelPass asked_pass(oracle::Pass pass) {
    switch (pass) {
        case oracle::Pass::backward: return KernelPass::backward;
        case oracle::Pass::decode: return KernelPass::decode_in_place;
        case oracle::Pass::forward: break;
    }
    return KernelPass::forward;
}

class GdnInputs : public TimedInputs {
public:
    GdnInputs(oracle::Pass pass, const Task& task) : m_pass(pass), m_task(task) {}

    void set(const oracle::TensorFile& inputs, const oracle::Disguise& disguise) override {
        m_inputs = &inputs;
        m_disguise = disguise;
        m_called = false;
    }

    Result<Call> call(std::size_t /*pass*/, std::uint32_t dtypes, int threads) override {
        if (!m_plain) {
            GDNCTL_TRY_ASSIGN(m_plain, call_of(dtypes));
        }
        m_called = true;
        KernelCall placed = *m_plain;
        if (m_task.fresh != nullptr) take(placed);
        for (Tensor* keys : {&placed.q, &placed.k}) m_disguise.keys(*keys);
        m_disguise.values(placed.v);
        if (placed.d_out) m_disguise.values(*placed.d_out);
        for (auto* state : {&placed.initial_state, &placed.d_final_state}) {
            if (*state) m_disguise.state(**state, oracle::StateLayout::key_value);
        }
        if (placed.steps > 0) {
            placed.step_seed = ++m_plain->step_seed;
            m_order = step_order(placed.steps, placed.step_seed);
            for (Tensor* tensor : {&placed.q, &placed.k, &placed.v, &placed.g, &placed.beta}) {
                *tensor = rearranged(*tensor, placed.dims.B, m_order, true);
            }
        }
        return arrays_of(std::move(placed), threads);
    }

    oracle::TensorFile file() const override {
        oracle::TensorFile file = *m_inputs;
        apply(m_disguise, file, m_task.reference.contract.value.state_layout);
        for (const auto& [field, value] : m_task.reference.contract.as_metadata()) file.metadata[field] = value;
        return file;
    }

    Faulted name(oracle::TensorFile& outputs) override {
        if (!m_called || m_plain->steps == 0) return std::nullopt;
        for (oracle::NamedTensor& entry : outputs.tensors) {
            if (entry.name == "out") entry.tensor = rearranged(entry.tensor, m_plain->dims.B, m_order, false);
        }
        return std::nullopt;
    }

    oracle::TensorFile in_files(oracle::TensorFile outputs, const oracle::GdnReference& of) const override {
        if (!m_called || m_pass != oracle::Pass::backward) return outputs;
        return call_gradients(of.problem, of.contract.value, outputs);
    }

private:
    Result<KernelCall> call_of(std::uint32_t dtypes) const {
        const oracle::GdnProblem& problem = m_task.reference.problem;
        const oracle::GdnContract& contract = m_task.reference.contract.value;
        const bool takes_bf16 = (dtypes & (1U << GDN_BF16)) != 0;
        oracle::GdnCotangents cotangents;
        if (m_pass == oracle::Pass::backward) {
            GDNCTL_TRY_ASSIGN(auto given, read_cotangents(m_task.with_cotangents(), problem, contract));
            if (given) cotangents = std::move(*given);
        }
        KernelCall call = make_call(problem, contract, takes_bf16, asked_pass(m_pass), cotangents);
        if (m_pass == oracle::Pass::decode) call.steps = problem.dims.T;
        return call;
    }

    // The inputs of oracle bench are those of a call, but for their dtypes.
    void take(KernelCall& placed) const {
        const auto put = [&](std::string_view name, Tensor& to) {
            const Tensor* from = m_inputs->find(name);
            if (from == nullptr) return;
            to = from->dtype == to.dtype ? *from : oracle::from_f64(to_f64(*from), to.shape, to.dtype);
        };
        put("q", placed.q);
        put("k", placed.k);
        put("v", placed.v);
        put("g", placed.g);
        put("beta", placed.beta);
        if (placed.initial_state) put("initial_state", *placed.initial_state);
        if (placed.d_out) put("d_out", *placed.d_out);
        if (placed.d_final_state) put("d_final_state", *placed.d_final_state);
    }

    oracle::Pass m_pass;
    Task m_task;
    const oracle::TensorFile* m_inputs = nullptr;
    oracle::Disguise m_disguise;
    std::optional<KernelCall> m_plain;
    bool m_called = false;              // as arrays, not as a file
    std::vector<std::int64_t> m_order;  // of steps in memory
};

}  // namespace

std::unique_ptr<TimedInputs> timed_inputs(oracle::Pass pass, const Task& task) {
    return std::make_unique<GdnInputs>(pass, task);
}

}  // namespace gdnctl::harness
