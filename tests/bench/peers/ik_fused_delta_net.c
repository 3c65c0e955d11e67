/* The fused delta net of ik_llama.cpp behind gdn/gdn_kernel.h, for `gdnctl oracle bench gdn --peer lib:...`.
 * docs/benchmarks.md says how it is built: with the header iqk/iqk_mul_mat.h of a checkout, and its shared library.
 *
 * The function reads q and k with the tokens of a head in a row, and takes beta before the sigmoid: these are
 * rearranged by the same threads before it is called. v, gates, states and results are used where they are. */
#define _GNU_SOURCE
#include <gdn/gdn_kernel.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "iqk/iqk_mul_mat.h"

enum { k_most_threads = 64 };

typedef struct job {
    const gdn_call* call;
    float *q, *k, *logits;
    const float* state;
    float* final_state;
    int threads;
    pthread_barrier_t barrier;
} job;

typedef struct worker {
    job* job;
    int index;
    bool done;
} worker;

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

/* [token][head][dim] to [head][token][dim], this thread's tokens. */
static void heads_first(float* to, const float* from, const gdn_call* c, size_t first, size_t end) {
    const size_t T = (size_t)c->tokens, K = (size_t)c->key_heads, S = (size_t)c->key_dim;
    for (size_t b = 0; b < (size_t)c->batch; ++b)
        for (size_t h = 0; h < K; ++h)
            for (size_t t = first; t < end; ++t)
                memcpy(to + ((b * K + h) * T + t) * S, from + ((b * T + t) * K + h) * S, S * sizeof(float));
}

static void* work(void* argument) {
    worker* w = argument;
    const gdn_call* c = w->job->call;
    const size_t T = (size_t)c->tokens, H = (size_t)c->value_heads, S = (size_t)c->value_dim;
    const size_t first = T * (size_t)w->index / (size_t)w->job->threads,
                 end = T * (size_t)(w->index + 1) / (size_t)w->job->threads;
    heads_first(w->job->q, c->q.data, c, first, end);
    heads_first(w->job->k, c->k.data, c, first, end);
    const float* beta = c->beta.data;
    for (size_t b = 0; b < (size_t)c->batch; ++b)
        for (size_t i = (b * T + first) * H; i < (b * T + end) * H; ++i)
            w->job->logits[i] = logf(beta[i] / (1 - beta[i]));
    pthread_barrier_wait(&w->job->barrier);
    w->done = iqk_fused_delta_net((int)c->key_dim, (int)c->value_heads, (int)(c->value_heads / c->key_heads),
                                  c->head_map == GDN_HEADS_INTERLEAVED ? 0 : 1, (int)c->tokens, (int)c->batch, H * S, S,
                                  T * H * S, w->job->q, w->job->k, c->v.data, c->g.data, w->job->logits, w->job->state,
                                  c->out.data, w->job->final_state, NULL, 0, w->index, w->job->threads);
    return NULL;
}

static bool supported(const gdn_call* c) {
    const size_t gates = (size_t)(c->batch * c->tokens * c->value_heads);
    if (c->q.dtype != GDN_F32 || c->key_dim != c->value_dim || (c->key_dim != 64 && c->key_dim != 128)) return false;
    if (c->l2norm || c->cu_seqlens || c->tokens == 0) return false;
    if (fabs(c->scale - 1 / sqrt((double)c->key_dim)) > 1e-12) return false;
    for (size_t i = 0; i < gates; ++i)
        if (!(((const float*)c->beta.data)[i] <= 1)) return false; /* no logit has a beta above 1 */
    return true;
}

static int forward(const gdn_call* c) {
    if (!supported(c)) return GDN_UNSUPPORTED;
    const size_t keys = (size_t)(c->batch * c->tokens * c->key_heads * c->key_dim);
    const size_t gates = (size_t)(c->batch * c->tokens * c->value_heads);
    const size_t states = (size_t)(c->batch * c->value_heads * c->key_dim * c->value_dim);
    float* own = floats_of(2 * keys + gates + 2 * states);
    if (!own) return GDN_NO_MEMORY;
    job j = {.call = c,
             .q = own,
             .k = own + keys,
             .logits = own + 2 * keys,
             .threads = c->threads < k_most_threads ? c->threads : k_most_threads};
    float* zeros = own + 2 * keys + gates;
    if (!c->initial_state.data) memset(zeros, 0, states * sizeof(float));
    j.state = c->initial_state.data ? c->initial_state.data : zeros;
    j.final_state = c->final_state.data ? c->final_state.data : zeros + states;

    pthread_t ids[k_most_threads];
    worker workers[k_most_threads];
    pthread_barrier_init(&j.barrier, NULL, (unsigned)j.threads);
    for (int i = 0; i < j.threads; ++i) {
        workers[i] = (worker){&j, i, false};
        if (i > 0 && pthread_create(&ids[i], NULL, work, &workers[i]) != 0) abort(); /* others wait at the barrier */
    }
    work(&workers[0]);
    bool done = workers[0].done;
    for (int i = 1; i < j.threads; ++i) {
        pthread_join(ids[i], NULL);
        done = done && workers[i].done;
    }
    pthread_barrier_destroy(&j.barrier);
    return done ? GDN_OK : GDN_FAILED;
}

GDN_EXPORT const gdn_kernel_info gdn_kernel = {
    .abi_version = GDN_ABI_VERSION,
    .struct_size = sizeof(gdn_kernel_info),
    .name = "ik_llama.cpp fused delta net",
    .dtypes = 1u << GDN_F32,
    .forward = forward,
};
