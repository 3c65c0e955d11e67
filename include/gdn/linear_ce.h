/* libgdn: the fused linear cross-entropy of gdnctl as a library. docs/libgdn.md has an example. Describe a call with
 * gdn_linear_ce_init, change its defaults where needed, and run it. All functions may be called from several threads at
 * once. */
#ifndef GDN_LINEAR_CE_H
#define GDN_LINEAR_CE_H

#include <gdn/linear_ce_kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sets sizes and arrays. Defaults: w is [hidden, vocab], no cap, no penalty, one thread. x and w both have `dtype`,
 * GDN_F32 or GDN_BF16. argmax may be NULL. */
GDN_EXPORT void gdn_linear_ce_init(linear_ce_call* call, int64_t batch, int64_t hidden, int64_t vocab, uint32_t dtype,
                                   const void* x, const void* w, const int64_t* labels, float* loss, float* lse,
                                   int64_t* argmax);

/* Sets the further arrays for gradients; d_lse may be NULL. gx and gw have the dtype of x and w. */
GDN_EXPORT void gdn_linear_ce_gradient_arrays(linear_ce_call* call, const float* d_loss, const float* d_lse, void* gx,
                                              void* gw);

/* Computes loss, lse and argmax, in memory that does not grow with batch * vocab. The result is the same for any
 * `threads`, bit for bit. GDN_UNSUPPORTED: another dtype, or strides; GDN_INVALID: a label out of range. */
GDN_EXPORT int gdn_linear_ce_forward(const linear_ce_call* call);

/* The same, plus both gradients. */
GDN_EXPORT int gdn_linear_ce_gradients(const linear_ce_call* call);

#ifdef __cplusplus
}
#endif

#endif
