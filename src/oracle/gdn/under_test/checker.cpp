#include "oracle/gdn/under_test/checker.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "oracle/gdn/cases/cases.h"

namespace gdnctl::oracle {

GdnProblem Checker::inputs(std::int64_t tokens, std::uint64_t variant) const {
    GdnCase c;
    c.dims = m_setting.dims;
    c.dims.B = 2;
    c.dims.T = tokens;
    c.gate = m_setting.gate;
    c.seed = m_seed * 1000 + variant;
    c.keys = m_l2norm ? KeyRecipe::normal : KeyRecipe::unit;
    c.state_scale = 0.1;
    c.contract = {"head_map=interleaved"};
    const TensorFile file = make_inputs(c);
    auto contract = resolve_contract("marin", file.metadata, {});
    auto problem = contract ? read_problem(file, *contract) : Result<GdnProblem>(GdnProblem{});
    return problem ? std::move(*problem) : GdnProblem{};
}

TensorFile Checker::file_of(const GdnProblem& p) const {
    const GdnDims& d = p.dims;
    TensorFile file;
    const auto add = [&](std::string name, const Reals& values, Shape shape) {
        file.tensors.push_back({std::move(name), from_f64(values, std::move(shape), DType::f32)});
    };
    add("q", p.q, {d.B, d.T, d.Hk, d.dk});
    add("k", p.k, {d.B, d.T, d.Hk, d.dk});
    add("v", p.v, {d.B, d.T, d.Hv, d.dv});
    add("g", p.gate, {d.B, d.T, d.Hv});
    add("beta", p.beta, {d.B, d.T, d.Hv});
    if (!p.initial_state.empty()) add("initial_state", p.initial_state, state_shape(p, StateLayout::key_value));
    if (p.has_cu_seqlens) {
        std::vector<std::int64_t> offsets = {0};
        for (const GdnSequence& s : p.sequences) offsets.push_back(s.end);
        file.tensors.push_back({"cu_seqlens", from_i64(offsets, {static_cast<std::int64_t>(offsets.size())})});
    }
    file.metadata = {{"op", "gdn"},
                     {"head_map", "interleaved"},
                     {"l2norm", m_l2norm ? "rsqrt(sum+eps)" : "off"},
                     {"chunk", std::to_string(m_chunk)}};
    return file;
}

// What the file says wins: some relations turn l2norm off, or change the chunk length.
Result<ResolvedContract> Checker::contract_of(const TensorFile& file) const {
    std::vector<std::string> sets = m_declared.sets;
    std::erase_if(sets, [&](const std::string& set) { return file.metadata.contains(set.substr(0, set.find('='))); });
    return resolve_contract(m_declared.contract.value_or("marin"), file.metadata, sets);
}

Result<Outcome> Checker::run(const GdnProblem& p) {
    const TensorFile file = file_of(p);
    GDNCTL_TRY_ASSIGN(const auto contract, contract_of(file));
    GDNCTL_TRY_ASSIGN(KernelRun done, run_pass(m_kernel, KernelPass::forward, file, contract, m_threads));
    result.fault = std::move(done.fault);
    Outcome outcome;
    if (failed()) return outcome;
    GDNCTL_TRY_ASSIGN(const Tensor* out, find_gdn_tensor(done.outputs, "out"));
    GDNCTL_TRY_ASSIGN(const Tensor* state, find_gdn_tensor(done.outputs, "final_state"));
    if (out == nullptr || state == nullptr) {
        result.fault = KernelFault{KernelFaultKind::incomplete,
                                   fmt::format("{} was not returned at all", out == nullptr ? "out" : "final_state"),
                                   {}};
        return outcome;
    }
    outcome = {to_f64(*out), to_f64(*state)};
    if (outcome.out.size() != p.v.size() || outcome.state.size() != element_count(state_shape(p, {})).value_or(0)) {
        result.fault =
            KernelFault{KernelFaultKind::wrong_shape, "an output does not have the size that the inputs imply", {}};
    }
    return outcome;
}

void Checker::compare(const Reals& got, const Reals& want, const std::string& what) {
    double error = 0;
    double size = 0;
    double largest_error = 0;
    double largest = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
        const double difference = std::fabs(got[i] - want[i]);
        if (!std::isfinite(difference)) largest_error = std::numeric_limits<double>::infinity();
        error += difference * difference;
        size += want[i] * want[i];
        largest_error = std::max(largest_error, difference);
        largest = std::max(largest, std::fabs(want[i]));
    }
    if (largest_error == 0) return;
    // If everything is zero, any difference is infinitely large.
    const double ratio = std::max(std::sqrt(error / size), largest_error / largest);
    const double found = std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio;
    if (found <= result.error) return;
    result.error = found;
    result.worst = what;
}

}  // namespace gdnctl::oracle
