// The fused linear cross-entropy of libgdn. No exception leaves it.
#include "gdn/linear_ce.h"

#include <vector>

#include "libgdn/calls.h"
#include "oracle/linear_ce/kernels/passes.h"

namespace {

using namespace gdnctl::oracle;
using namespace gdnctl::libgdn;
namespace lce = gdnctl::oracle::linear_ce;

int check_call(const linear_ce_call& c) {
    if (c.abi_version != LINEAR_CE_ABI_VERSION || c.struct_size < sizeof(linear_ce_call)) return GDN_INVALID;
    if (c.batch < 1 || c.hidden < 1 || c.vocab < 1 || c.layout > LINEAR_CE_VH || c.labels == nullptr)
        return GDN_INVALID;
    if (!(c.soft_cap >= 0)) return GDN_INVALID;
    constexpr std::int64_t k_most = std::int64_t{1} << 50U;  // elements of an array
    if (c.batch > k_most / c.hidden || c.vocab > k_most / c.hidden) return GDN_INVALID;
    for (std::int64_t i = 0; i < c.batch; ++i) {
        if (c.labels[i] < 0 || c.labels[i] >= c.vocab) return GDN_INVALID;
    }
    const bool hv = c.layout == LINEAR_CE_HV;
    return first_of({check(c.x, {c.batch, c.hidden}, Need::required, Storage::bf16),
                     check(c.w, {hv ? c.hidden : c.vocab, hv ? c.vocab : c.hidden}, Need::required, Storage::bf16),
                     check(c.loss, {c.batch}, Need::required), check(c.lse, {c.batch}, Need::required)});
}

lce::Operands operands_of(const linear_ce_call& c) {
    lce::Operands o;
    o.batch = static_cast<std::size_t>(c.batch);
    o.hidden = static_cast<std::size_t>(c.hidden);
    o.vocab = static_cast<std::size_t>(c.vocab);
    o.x = values<ConstValues>(c.x);
    o.w = values<ConstValues>(c.w);
    o.layout = c.layout == LINEAR_CE_HV ? lce::Layout::hv : lce::Layout::vh;
    o.labels = c.labels;
    o.soft_cap = c.soft_cap;
    return o;
}

lce::Gradient<float> gradient_of(const gdn_tensor& t) {
    if (t.dtype == GDN_BF16) return {nullptr, static_cast<Bf16*>(t.data)};
    return {floats(t), nullptr};
}

void forward_of(const linear_ce_call& c, const lce::Gradient<float>& keep_in) {
    lce::forward<float>(operands_of(c), {floats(c.loss), floats(c.lse), c.argmax, nullptr},
                        {c.threads, best_isa(), {}, 0}, keep_in);
}

int forward(const linear_ce_call& c) {
    if (const int bad = check_call(c); bad != GDN_OK) return bad;
    forward_of(c, {});
    return GDN_OK;
}

int gradients(const linear_ce_call& c) {
    const bool hv = c.layout == LINEAR_CE_HV;
    const int bad =
        first_of({check_call(c), check(c.d_loss, {c.batch}, Need::required), check(c.d_lse, {c.batch}, Need::optional),
                  check(c.gx, {c.batch, c.hidden}, Need::required, Storage::bf16),
                  check(c.gw, {hv ? c.hidden : c.vocab, hv ? c.vocab : c.hidden}, Need::required, Storage::bf16)});
    if (bad != GDN_OK) return bad;
    forward_of(c, gradient_of(c.gw));
    const auto batch = static_cast<std::size_t>(c.batch);
    std::vector<double> d_loss(batch);
    std::vector<double> d_lse(batch);
    for (std::size_t i = 0; i < batch; ++i) {
        d_loss[i] = static_cast<double>(floats(c.d_loss)[i]);
        d_lse[i] = c.d_lse.data == nullptr ? 0 : static_cast<double>(floats(c.d_lse)[i]);
        // Without a cotangent for its loss, a row gets none through the penalty either, whatever its logsumexp.
        if (c.logsumexp_weight != 0 && d_loss[i] != 0) {
            d_lse[i] += 2 * c.logsumexp_weight * static_cast<double>(floats(c.lse)[i]) * d_loss[i];
        }
    }
    lce::gradients<float>(operands_of(c), {floats(c.lse), d_loss.data(), d_lse.data()}, gradient_of(c.gx),
                          gradient_of(c.gw), {.kept = true}, {c.threads, best_isa(), {}, 0});
    return GDN_OK;
}

}  // namespace

extern "C" {

void gdn_linear_ce_init(linear_ce_call* call, int64_t batch, int64_t hidden, int64_t vocab, uint32_t dtype,
                        const void* x, const void* w, const int64_t* labels, float* loss, float* lse, int64_t* argmax) {
    *call = linear_ce_call{};
    call->abi_version = LINEAR_CE_ABI_VERSION;
    call->struct_size = sizeof(linear_ce_call);
    call->batch = batch;
    call->hidden = hidden;
    call->vocab = vocab;
    call->threads = 1;
    call->x = array_of(x, dtype, {batch, hidden});
    call->w = array_of(w, dtype, {hidden, vocab});
    call->labels = labels;
    call->loss = array_of(loss, GDN_F32, {batch});
    call->lse = array_of(lse, GDN_F32, {batch});
    call->argmax = argmax;
}

void gdn_linear_ce_gradient_arrays(linear_ce_call* call, const float* d_loss, const float* d_lse, void* gx, void* gw) {
    const linear_ce_call& c = *call;
    call->d_loss = array_of(d_loss, GDN_F32, {c.batch});
    call->d_lse = array_of(d_lse, GDN_F32, {c.batch});
    call->gx = array_of(gx, c.x.dtype, {c.batch, c.hidden});
    call->gw = array_of(gw, c.w.dtype, {c.w.shape[0], c.w.shape[1]});
}

int gdn_linear_ce_forward(const linear_ce_call* call) { return guarded(forward, call); }

int gdn_linear_ce_gradients(const linear_ce_call* call) { return guarded(gradients, call); }

const linear_ce_kernel_info linear_ce_kernel = {
    LINEAR_CE_ABI_VERSION, sizeof(linear_ce_kernel_info), "libgdn", 1U << GDN_F32 | 1U << GDN_BF16, 0,
    gdn_linear_ce_forward, gdn_linear_ce_gradients,       nullptr};

}  // extern "C"
