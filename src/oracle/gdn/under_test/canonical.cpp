#include <algorithm>

#include "oracle/gdn/kernels/prepare.h"
#include "oracle/gdn/under_test/kernel_under_test.h"

namespace gdnctl::oracle {

Result<TensorFile> canonical_inputs(TensorFile file, const ResolvedContract& contract, const KeptFields& kept) {
    const GdnContract& c = contract.value;
    const bool gates = c.g_kind != GateKind::log && !kept.g_kind;
    const bool betas = c.beta_kind != BetaKind::prob && !kept.beta_kind;
    const bool layout = c.state_layout != StateLayout::key_value && !kept.state_layout;
    if (!gates && !betas && !layout) return file;
    ResolvedContract read = contract;
    GDNCTL_TRY_ASSIGN(const GdnProblem p, read_problem(file, read));
    const Prepared<double> ready = prepare<double>(p, c, 1);
    const auto replace = [&](const std::vector<std::string_view>& old, std::string name, Tensor tensor) {
        std::erase_if(file.tensors, [&](const NamedTensor& t) {
            const std::string_view canonical = canonical_name(t.name).canonical;
            return std::find(old.begin(), old.end(), canonical) != old.end();
        });
        file.tensors.push_back({std::move(name), std::move(tensor)});
    };
    const Shape per_head = {p.dims.B, p.dims.T, p.dims.Hv};
    if (gates) {
        replace({"g", "a", "A_log", "dt_bias"}, "g", from_f64(ready.g, per_head, DType::f32));
        file.metadata["g_kind"] = "log";
    }
    if (betas) {
        replace({"beta", "b"}, "beta", from_f64(ready.beta, per_head, DType::f32));
        file.metadata["beta_kind"] = "prob";
    }
    if (layout) {
        GDNCTL_TRY_ASSIGN(const Tensor* state, find_gdn_tensor(file, "initial_state"));
        if (state != nullptr) {
            replace({"initial_state"}, "initial_state",
                    from_f64(p.initial_state, state_shape(p, StateLayout::key_value), state->dtype));
        }
        file.metadata["state_layout"] = "B,H,K,V";
    }
    return file;
}

}  // namespace gdnctl::oracle
