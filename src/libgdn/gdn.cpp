// The C interface of libgdn to the kernels of oracle/. No exception leaves it.
#include "gdn/gdn.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "libgdn/calls.h"
#include "oracle/gdn/kernels/backward32.h"
#include "oracle/gdn/kernels/decode32.h"

namespace {

using namespace gdnctl::oracle;
using namespace gdnctl::libgdn;

// Layout of what the backward keeps of the recomputed forward, in floats; each part starts at a multiple of 64 bytes.
struct BackwardWorkspace {
    std::size_t u = 0, states = 0, out = 0, final_state = 0;

    BackwardWorkspace(const gdn_call& c, std::span<const GdnSequence> sequences) {
        const auto part = [](std::size_t n) { return (n + 15) / 16 * 16; };
        const auto state = static_cast<std::size_t>(c.value_heads * c.key_dim * c.value_dim);
        u = part(static_cast<std::size_t>(c.batch * c.tokens * c.value_heads * c.value_dim));
        out = u;
        states = part(segment_count(sequences, k_segment_chunks) * state);
        // The gradient of the initial state is computed whether or not the caller wants it.
        final_state = part(static_cast<std::size_t>(c.sequences) * state);
    }
    std::size_t bytes() const { return (u + states + out + 2 * final_state) * sizeof(float); }
};

struct Free {
    void operator()(void* p) const { ::operator delete(p, std::align_val_t(64)); }
};

int forward(const gdn_call& c) {
    if (const int bad = check_forward(c, Need::optional); bad != GDN_OK) return bad;
    const auto sequences = sequences_of(c);
    Forward32 f = forward_of(c, sequences);
    std::vector<float> unwanted;
    if (f.final_state == nullptr) {
        unwanted.assign(static_cast<std::size_t>(c.sequences * c.value_heads * c.key_dim * c.value_dim), 0.0F);
        f.final_state = unwanted.data();
    }
    fused_forward(f, c.threads, best_isa());
    return GDN_OK;
}

int decode(const gdn_call& c) {
    if (const int bad = check_forward(c, Need::required); bad != GDN_OK) return bad;
    const auto sequences = sequences_of(c);
    for (const GdnSequence& s : sequences) {
        if (s.end - s.begin > k_decode_tokens) return GDN_UNSUPPORTED;
    }
    decode_step(forward_of(c, sequences), c.threads, best_isa());
    return GDN_OK;
}

int check_gradients(const gdn_call& c) {
    const auto state = {c.sequences, c.value_heads, c.key_dim, c.value_dim};
    const auto keys = {c.batch, c.tokens, c.key_heads, c.key_dim};
    const auto of_values = {c.batch, c.tokens, c.value_heads, c.value_dim};
    return first_of({check(c.d_out, of_values, Need::required, Storage::bf16),
                     check(c.d_final_state, state, Need::optional), check(c.dq, keys, Need::required, Storage::bf16),
                     check(c.dk, keys, Need::required, Storage::bf16),
                     check(c.dv, of_values, Need::required, Storage::bf16),
                     check(c.dg, {c.batch, c.tokens, c.value_heads}, Need::required),
                     check(c.dbeta, {c.batch, c.tokens, c.value_heads}, Need::required),
                     check(c.d_initial_state, state, Need::optional)});
}

int backward(const gdn_call& c) {
    if (const int bad = check_inputs(c); bad != GDN_OK) return bad;
    if (const int bad = check_gradients(c); bad != GDN_OK) return bad;
    const auto sequences = sequences_of(c);
    const BackwardWorkspace parts(c, sequences);
    std::unique_ptr<void, Free> own;
    void* space = c.workspace;
    if (space == nullptr || c.workspace_size < parts.bytes()) {
        own.reset(::operator new(parts.bytes(), std::align_val_t(64)));
        space = own.get();
    }
    ForwardSaves saves;
    saves.u = static_cast<float*>(space);
    saves.states = saves.u + parts.u;
    Backward32 b;
    b.inputs = forward_of(c, sequences);
    float* out = saves.states + parts.states;
    b.inputs.out = out;
    b.inputs.final_state = out + parts.out;
    saving_forward(b.inputs, saves, c.threads, best_isa());
    b.saves = saves;
    b.d_out = values<ConstValues>(c.d_out);
    b.d_final_state = floats(c.d_final_state);
    b.dq = values<Values>(c.dq);
    b.dk = values<Values>(c.dk);
    b.dv = values<Values>(c.dv);
    b.dg = floats(c.dg);
    b.dbeta = floats(c.dbeta);
    b.d_initial_state = floats(c.d_initial_state);
    if (b.d_initial_state == nullptr) b.d_initial_state = b.inputs.final_state + parts.final_state;
    chunk_backward(b, c.threads, best_isa());
    return GDN_OK;
}

// Arrays with a token axis, all of one dtype; the last one is `out` or its gradient.
struct TokenArrays {
    const void *q, *k, *v, *out;
};

void set_arrays(gdn_call* call, std::uint32_t dtype, const TokenArrays& arrays, const float* g, const float* beta,
                const float* initial_state, const float* final_state) {
    const gdn_call& c = *call;
    call->q = array_of(arrays.q, dtype, {c.batch, c.tokens, c.key_heads, c.key_dim});
    call->k = array_of(arrays.k, dtype, {c.batch, c.tokens, c.key_heads, c.key_dim});
    call->v = array_of(arrays.v, dtype, {c.batch, c.tokens, c.value_heads, c.value_dim});
    call->g = array_of(g, GDN_F32, {c.batch, c.tokens, c.value_heads});
    call->beta = array_of(beta, GDN_F32, {c.batch, c.tokens, c.value_heads});
    call->initial_state = array_of(initial_state, GDN_F32, {c.sequences, c.value_heads, c.key_dim, c.value_dim});
    call->out = array_of(arrays.out, dtype, {c.batch, c.tokens, c.value_heads, c.value_dim});
    call->final_state = array_of(final_state, GDN_F32, {c.sequences, c.value_heads, c.key_dim, c.value_dim});
}

void set_gradients(gdn_call* call, std::uint32_t dtype, const TokenArrays& arrays, const float* d_final_state,
                   const float* dg, const float* dbeta, const float* d_initial_state) {
    const gdn_call& c = *call;
    call->d_out = array_of(arrays.out, dtype, {c.batch, c.tokens, c.value_heads, c.value_dim});
    call->d_final_state = array_of(d_final_state, GDN_F32, {c.sequences, c.value_heads, c.key_dim, c.value_dim});
    call->dq = array_of(arrays.q, dtype, {c.batch, c.tokens, c.key_heads, c.key_dim});
    call->dk = array_of(arrays.k, dtype, {c.batch, c.tokens, c.key_heads, c.key_dim});
    call->dv = array_of(arrays.v, dtype, {c.batch, c.tokens, c.value_heads, c.value_dim});
    call->dg = array_of(dg, GDN_F32, {c.batch, c.tokens, c.value_heads});
    call->dbeta = array_of(dbeta, GDN_F32, {c.batch, c.tokens, c.value_heads});
    call->d_initial_state = array_of(d_initial_state, GDN_F32, {c.sequences, c.value_heads, c.key_dim, c.value_dim});
}

}  // namespace

extern "C" {

const char* gdn_version(void) { return GDNCTL_VERSION; }

const char* gdn_status_text(int status) {
    switch (status) {
        case GDN_OK: return "done";
        case GDN_UNSUPPORTED: return "not supported: a dtype other than fp32 or bf16, or strides";
        case GDN_INVALID: return "the call contradicts itself, or an array is missing";
        case GDN_NO_MEMORY: return "out of memory";
        case GDN_FAILED: return "failed";
        default: return "unknown status";
    }
}

void gdn_call_init(gdn_call* call, int64_t batch, int64_t tokens, int64_t key_heads, int64_t value_heads,
                   int64_t key_dim, int64_t value_dim) {
    *call = gdn_call{};
    call->abi_version = GDN_ABI_VERSION;
    call->struct_size = sizeof(gdn_call);
    call->batch = batch;
    call->tokens = tokens;
    call->key_heads = key_heads;
    call->value_heads = value_heads;
    call->key_dim = key_dim;
    call->value_dim = value_dim;
    call->sequences = batch;
    call->scale = 1 / std::sqrt(static_cast<double>(key_dim));
    call->threads = 1;
}

void gdn_call_arrays(gdn_call* call, const float* q, const float* k, const float* v, const float* g, const float* beta,
                     const float* initial_state, float* out, float* final_state) {
    set_arrays(call, GDN_F32, {q, k, v, out}, g, beta, initial_state, final_state);
}

void gdn_call_arrays_bf16(gdn_call* call, const uint16_t* q, const uint16_t* k, const uint16_t* v, const float* g,
                          const float* beta, const float* initial_state, uint16_t* out, float* final_state) {
    set_arrays(call, GDN_BF16, {q, k, v, out}, g, beta, initial_state, final_state);
}

void gdn_call_gradients(gdn_call* call, const float* d_out, const float* d_final_state, float* dq, float* dk, float* dv,
                        float* dg, float* dbeta, float* d_initial_state) {
    set_gradients(call, GDN_F32, {dq, dk, dv, d_out}, d_final_state, dg, dbeta, d_initial_state);
}

void gdn_call_gradients_bf16(gdn_call* call, const uint16_t* d_out, const float* d_final_state, uint16_t* dq,
                             uint16_t* dk, uint16_t* dv, float* dg, float* dbeta, float* d_initial_state) {
    set_gradients(call, GDN_BF16, {dq, dk, dv, d_out}, d_final_state, dg, dbeta, d_initial_state);
}

int gdn_forward(const gdn_call* call) { return guarded(forward, call); }

int gdn_decode(const gdn_call* call) { return guarded(decode, call); }

int gdn_backward(const gdn_call* call) { return guarded(backward, call); }

size_t gdn_workspace(const gdn_call* call, uint32_t entry) {
    if (entry != GDN_BACKWARD) return 0;
    std::size_t bytes = 0;
    (void)guarded(
        [&](const gdn_call& c) {
            const int status = check_sizes(c);
            if (status == GDN_OK) bytes = BackwardWorkspace(c, sequences_of(c)).bytes();
            return status;
        },
        call);
    return bytes;
}

const gdn_kernel_info gdn_kernel = {GDN_ABI_VERSION,
                                    sizeof(gdn_kernel_info),
                                    "libgdn",
                                    1U << GDN_F32 | 1U << GDN_BF16,
                                    0,
                                    gdn_forward,
                                    gdn_backward,
                                    gdn_decode,
                                    gdn_workspace,
                                    0,
                                    0};

}  // extern "C"
