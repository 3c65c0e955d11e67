/* Gated DeltaNet forward in plain C: one value head after another, one token after another.
 *
 *     S = exp(g) S;   d = beta (v - S^T k);   S = S + k d^T;   out = scale S^T q
 *
 * S has key_dim rows and value_dim columns. Columns of S never meet, so the innermost loops run along columns and the
 * compiler turns them into vector code. README.md tells how to check this file and how to time it.
 */
#include <gdn/gdn_kernel.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* 1 / sqrt(|x|^2 + eps) */
static float inverse_length(const float *x, int64_t n, double eps)
{
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
    return 1 / sqrtf(sum + (float)eps);
}

/* One token of one head: S is updated, out is written. d is room for value_dim values. */
static void one_token(float *S, const float *q, const float *k, const float *v, float g, float beta, float q_factor,
                      float k_factor, int64_t dk, int64_t dv, float *d, float *out)
{
    const float decay = expf(g);
    for (int64_t j = 0; j < dv; ++j) d[j] = 0;
    for (int64_t i = 0; i < dk; ++i) {
        const float ki = k[i] * k_factor;
        float *row = S + i * dv;
        for (int64_t j = 0; j < dv; ++j) {
            row[j] *= decay;
            d[j] += row[j] * ki;
        }
    }
    for (int64_t j = 0; j < dv; ++j) {
        d[j] = beta * (v[j] - d[j]);
        out[j] = 0;
    }
    for (int64_t i = 0; i < dk; ++i) {
        const float ki = k[i] * k_factor;
        const float qi = q[i] * q_factor;
        float *row = S + i * dv;
        for (int64_t j = 0; j < dv; ++j) {
            row[j] += ki * d[j];
            out[j] += row[j] * qi;
        }
    }
}

/* All tokens of one value head of one sequence. */
static void one_head(const gdn_call *c, int64_t sequence, int64_t head, float *d)
{
    const int64_t dk = c->key_dim, dv = c->value_dim, Hk = c->key_heads, Hv = c->value_heads;
    const int64_t key_head = c->head_map == GDN_HEADS_TILED ? head % Hk : head / (Hv / Hk);
    const int64_t first = c->cu_seqlens ? c->cu_seqlens[sequence] : sequence * c->tokens;
    const int64_t last = c->cu_seqlens ? c->cu_seqlens[sequence + 1] : first + c->tokens;
    float *S = (float *)c->final_state.data + (sequence * Hv + head) * dk * dv;
    const size_t state_bytes = (size_t)(dk * dv) * sizeof(float);
    if (c->initial_state.data) {
        memcpy(S, (const float *)c->initial_state.data + (sequence * Hv + head) * dk * dv, state_bytes);
    } else {
        memset(S, 0, state_bytes);
    }
    for (int64_t t = first; t < last; ++t) {
        const float *q = (const float *)c->q.data + (t * Hk + key_head) * dk;
        const float *k = (const float *)c->k.data + (t * Hk + key_head) * dk;
        const float *v = (const float *)c->v.data + (t * Hv + head) * dv;
        const float g = ((const float *)c->g.data)[t * Hv + head];
        const float beta = ((const float *)c->beta.data)[t * Hv + head];
        float *out = (float *)c->out.data + (t * Hv + head) * dv;
        const float q_factor = c->l2norm ? inverse_length(q, dk, c->l2norm_eps) : 1;
        const float k_factor = c->l2norm ? inverse_length(k, dk, c->l2norm_eps) : 1;
        one_token(S, q, k, v, g, beta, q_factor * (float)c->scale, k_factor, dk, dv, d, out);
    }
}

static int forward(const gdn_call *c)
{
    if (c->q.dtype != GDN_F32 || !c->final_state.data) return GDN_UNSUPPORTED;
    for (int64_t sequence = 0; sequence < c->sequences; ++sequence) {
        for (int64_t head = 0; head < c->value_heads; ++head) one_head(c, sequence, head, c->workspace);
    }
    return GDN_OK;
}

/* Room for d of one_token. */
static size_t workspace(const gdn_call *c, uint32_t entry)
{
    (void)entry;
    return (size_t)c->value_dim * sizeof(float);
}

GDN_EXPORT const gdn_kernel_info gdn_kernel = {
    .abi_version = GDN_ABI_VERSION,
    .struct_size = sizeof(gdn_kernel_info),
    .name = "cpu-gdn",
    .dtypes = 1u << GDN_F32,
    .forward = forward,
    .workspace = workspace,
};
