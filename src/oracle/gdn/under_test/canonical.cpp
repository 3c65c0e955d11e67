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
    const auto per_head = [&](const std::vector<double>& values) {
        return from_f64(in_file_order(p, values, p.dims.Hv), token_shape(p, {p.dims.Hv}), DType::f32);
    };
    if (gates) {
        replace({"g", "a", "A_log", "dt_bias"}, "g", per_head(ready.g));
        file.metadata["g_kind"] = "log";
    }
    if (betas) {
        replace({"beta", "b"}, "beta", per_head(ready.beta));
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
