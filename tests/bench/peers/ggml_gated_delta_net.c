/* ggml's GATED_DELTA_NET operator behind gdn/gdn_kernel.h, for `gdnctl oracle bench gdn --peer lib:...`.
 * docs/benchmarks.md says how it is built: against ggml's public headers and its shared libraries.
 *
 * Value heads that share a key head are handed over as one sequence of the operator each, since it knows tiled heads
 * alone; so q, k and v are read where they are. Gates, states (stored transposed there) and results are rearranged. */
#include <gdn/gdn_kernel.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ggml-cpu.h"
#include "ggml.h"

/* Kept from call to call, so that fresh pages are not part of what is timed. */
static float* floats_of(size_t count) {
    static float* kept;
    static size_t size;
    if (count > size) {
        free(kept);
        kept = aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64);
        size = kept ? count : 0;
    }
    return kept;
}

static struct ggml_tensor* tensor(struct ggml_context* ctx, float* data, int64_t a, int64_t b, int64_t c, int64_t d) {
    struct ggml_tensor* t = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, a, b, c, d);
    t->data = data;
    return t;
}

/* Strides in floats, of the axes after the first. */
static struct ggml_tensor* strided(struct ggml_tensor* t, int64_t b, int64_t c, int64_t d) {
    t->nb[1] = (size_t)b * sizeof(float);
    t->nb[2] = (size_t)c * sizeof(float);
    t->nb[3] = (size_t)d * sizeof(float);
    return t;
}

static void transposed(float* to, const float* from, int64_t size) {
    for (int64_t i = 0; i < size; ++i)
        for (int64_t j = 0; j < size; ++j) to[j * size + i] = from[i * size + j];
}

/* One sequence of T tokens; the pointers are those of its first. */
static int run(const gdn_call* c, int64_t T, const float* q, const float* k, const float* v, const float* g,
               const float* beta, const float* state, float* out, float* final_state) {
    const int64_t S = c->key_dim, K = c->key_heads, H = c->value_heads, r = H / K;
    const size_t gates = (size_t)(T * H), matrix = (size_t)(S * S), states = (size_t)H * matrix,
                 rows = gates * (size_t)S;
    float* own = floats_of(2 * gates + 2 * states + rows + 64);
    if (!own) return GDN_NO_MEMORY;
    float *own_g = own, *own_beta = own_g + gates, *own_state = own_beta + gates, *result = own_state + states;

    for (int64_t h = 0; h < K; ++h)
        for (int64_t t = 0; t < T; ++t)
            for (int64_t j = 0; j < r; ++j) {
                own_g[(h * T + t) * r + j] = g[t * H + h * r + j];
                own_beta[(h * T + t) * r + j] = beta[t * H + h * r + j];
            }
    memset(own_state, 0, states * sizeof(float));
    for (int64_t h = 0; state && h < H; ++h) transposed(own_state + (size_t)h * matrix, state + (size_t)h * matrix, S);

    struct ggml_init_params params = {.mem_size = ggml_tensor_overhead() * 16 + ggml_graph_overhead() + (1 << 20),
                                      .no_alloc = true};
    struct ggml_context* ctx = ggml_init(params);
    if (!ctx) return GDN_NO_MEMORY;
    struct ggml_tensor* tq = strided(tensor(ctx, (float*)q, S, 1, T, K), S, K * S, S);
    struct ggml_tensor* tk = strided(tensor(ctx, (float*)k, S, 1, T, K), S, K * S, S);
    struct ggml_tensor* tv = strided(tensor(ctx, (float*)v, S, r, T, K), S, H * S, r * S);
    struct ggml_tensor* node =
        ggml_gated_delta_net(ctx, tq, tk, tv, tensor(ctx, own_g, 1, r, T, K), tensor(ctx, own_beta, 1, r, T, K),
                             tensor(ctx, own_state, S, S, r, K), 1);
    node->data = result;
    struct ggml_cgraph* graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, node);
    struct ggml_cplan plan = ggml_graph_plan(graph, c->threads, NULL);
    plan.work_data = plan.work_size ? malloc(plan.work_size) : NULL;
    const int failed = (plan.work_size && !plan.work_data) || ggml_graph_compute(graph, &plan) != GGML_STATUS_SUCCESS;
    free(plan.work_data);
    ggml_free(ctx);
    if (failed) return GDN_FAILED;

    const size_t group = (size_t)(r * S); /* neighbouring value heads stay neighbours */
    for (int64_t h = 0; h < K; ++h)
        for (int64_t t = 0; t < T; ++t)
            memcpy(out + (size_t)(t * K + h) * group, result + (size_t)(h * T + t) * group, group * sizeof(float));
    for (int64_t h = 0; final_state && h < H; ++h)
        transposed(final_state + (size_t)h * matrix, result + rows + (size_t)h * matrix, S);
    return GDN_OK;
}

static int forward(const gdn_call* c) {
    const double scale = 1 / sqrt((double)c->key_dim);
    if (c->q.dtype != GDN_F32 || c->key_dim != c->value_dim || c->l2norm || c->cu_seqlens || c->tokens == 0 ||
        fabs(c->scale - scale) > 1e-12 || (c->head_map != GDN_HEADS_INTERLEAVED && c->key_heads != c->value_heads))
        return GDN_UNSUPPORTED;
    const size_t T = (size_t)c->tokens, S = (size_t)c->key_dim, K = (size_t)c->key_heads, H = (size_t)c->value_heads;
    for (size_t b = 0; b < (size_t)c->batch; ++b) {
        const float* state = c->initial_state.data;
        float* final_state = c->final_state.data;
        const int code = run(c, c->tokens, (float*)c->q.data + b * T * K * S, (float*)c->k.data + b * T * K * S,
                             (float*)c->v.data + b * T * H * S, (float*)c->g.data + b * T * H,
                             (float*)c->beta.data + b * T * H, state ? state + b * H * S * S : NULL,
                             (float*)c->out.data + b * T * H * S, final_state ? final_state + b * H * S * S : NULL);
        if (code != GDN_OK) return code;
    }
    return GDN_OK;
}

GDN_EXPORT const gdn_kernel_info gdn_kernel = {
    .abi_version = GDN_ABI_VERSION,
    .struct_size = sizeof(gdn_kernel_info),
    .name = "ggml GATED_DELTA_NET",
    .dtypes = 1u << GDN_F32,
    .forward = forward,
};
