/* A small fused linear cross-entropy for the CPU: one row of logits at a time, no matrix of them. It is the starting
 * point of the target cpu-ce; docs/linear-ce.md explains the interface.
 */
#include <gdn/linear_ce_kernel.h>

#include <math.h>
#include <stddef.h>

static const float* row_of(const linear_ce_call* c, int64_t i) { return (const float*)c->x.data + i * c->hidden; }

static float weight_at(const linear_ce_call* c, int64_t h, int64_t v) {
    const float* w = (const float*)c->w.data;
    return c->layout == LINEAR_CE_HV ? w[h * c->vocab + v] : w[v * c->hidden + h];
}

/* Capped logits of row i into s. */
static void logits(const linear_ce_call* c, int64_t i, float* s) {
    const float* x = row_of(c, i);
    for (int64_t v = 0; v < c->vocab; ++v) {
        float z = 0;
        for (int64_t h = 0; h < c->hidden; ++h) z += x[h] * weight_at(c, h, v);
        s[v] = c->soft_cap > 0 ? (float)c->soft_cap * tanhf(z / (float)c->soft_cap) : z;
    }
}

/* loss, lse and argmax of row i from its logits. */
static void forward_row(const linear_ce_call* c, int64_t i, const float* s) {
    const int64_t vocab = c->vocab;
    int64_t best = 0;
    double sum = 0;
    for (int64_t v = 1; v < vocab; ++v) {
        if (s[v] > s[best]) best = v;
    }
    for (int64_t v = 0; v < vocab; ++v) sum += exp((double)(s[v] - s[best]));
    const double lse = (double)s[best] + log(sum);
    ((float*)c->lse.data)[i] = (float)lse;
    ((float*)c->loss.data)[i] = (float)(lse - (double)s[c->labels[i]]);
    if (c->argmax != NULL) c->argmax[i] = best;
}

/* Turns the logits of row i into delta. */
static void delta_row(const linear_ce_call* c, int64_t i, float* s) {
    const float lse = ((const float*)c->lse.data)[i];
    const float loss_part = ((const float*)c->d_loss.data)[i];
    float lse_part = c->d_lse.data == NULL ? 0 : ((const float*)c->d_lse.data)[i];
    if (loss_part != 0) lse_part += 2 * (float)c->logsumexp_weight * lse * loss_part;
    for (int64_t v = 0; v < c->vocab; ++v) {
        const float t = c->soft_cap > 0 ? s[v] / (float)c->soft_cap : 0;
        const float hot = v == c->labels[i] ? loss_part : 0;
        s[v] = ((loss_part + lse_part) * expf(s[v] - lse) - hot) * (1 - t * t);
    }
}

static void add_gradients(const linear_ce_call* c, int64_t i, const float* delta) {
    const float* x = row_of(c, i);
    float* gx = (float*)c->gx.data + i * c->hidden;
    float* gw = (float*)c->gw.data;
    for (int64_t h = 0; h < c->hidden; ++h) {
        float sum = 0;
        for (int64_t v = 0; v < c->vocab; ++v) {
            sum += delta[v] * weight_at(c, h, v);
            gw[c->layout == LINEAR_CE_HV ? h * c->vocab + v : v * c->hidden + h] += x[h] * delta[v];
        }
        gx[h] = sum;
    }
}

static int run(const linear_ce_call* c, int gradients) {
    if (c->x.dtype != GDN_F32 || c->w.dtype != GDN_F32) return GDN_UNSUPPORTED;
    float* s = (float*)c->workspace;
    for (int64_t k = 0; gradients && k < c->hidden * c->vocab; ++k) ((float*)c->gw.data)[k] = 0;
    for (int64_t i = 0; i < c->batch; ++i) {
        logits(c, i, s);
        forward_row(c, i, s);
        if (!gradients) continue;
        delta_row(c, i, s);
        add_gradients(c, i, s);
    }
    return GDN_OK;
}

static int forward(const linear_ce_call* c) { return run(c, 0); }
static int gradients(const linear_ce_call* c) { return run(c, 1); }

static size_t workspace(const linear_ce_call* c, uint32_t entry) {
    (void)entry;
    return (size_t)c->vocab * sizeof(float);
}

const linear_ce_kernel_info linear_ce_kernel = {LINEAR_CE_ABI_VERSION, sizeof(linear_ce_kernel_info), "cpu-ce", 1u << GDN_F32, 0,
                                                forward, gradients, workspace};
