/* The C interface between a fused linear cross-entropy kernel and its caller. docs/linear-ce.md explains it.
 *
 * A kernel is a shared object that exports one object, `linear_ce_kernel`, of the type linear_ce_kernel_info below.
 * `gdnctl oracle verify linear-ce` judges such objects, and libgdn is one. Arrays and statuses are those of
 * gdn_kernel.h. This file is plain C99 and needs only standard headers.
 *
 * For row i of x [batch, hidden] with label y_i, over the columns of w:
 *
 *     z = x_i w,  s_v = cap tanh(z_v / cap)  (s = z without a cap)
 *     lse_i = log sum_v exp(s_v),  loss_i = lse_i - s_{y_i}
 *
 * and for gradients, with c_i = d_loss_i and e_i = d_lse_i + 2 logsumexp_weight lse_i d_loss_i:
 *
 *     delta_v = ((c_i + e_i) exp(s_v - lse_i) - c_i [v = y_i]) (1 - (s_v / cap)^2)   (last factor: only with a cap)
 *     gx_i = delta w^T,  gw = sum_i x_i^T delta
 */
#ifndef LINEAR_CE_KERNEL_H
#define LINEAR_CE_KERNEL_H

#include <gdn/gdn_kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LINEAR_CE_ABI_VERSION 1u

/* Layout of w. */
enum { LINEAR_CE_HV = 0 /* [hidden, vocab] */, LINEAR_CE_VH = 1 /* [vocab, hidden] */ };

/* Entry points. */
enum { LINEAR_CE_FORWARD = 1, LINEAR_CE_GRADIENTS = 2 };

/* One call. Do not write inputs. Outputs hold garbage at first: write them completely, and do not add to them. Do not
 * read or write anything after the call has returned. */
typedef struct linear_ce_call {
    uint32_t abi_version; /* LINEAR_CE_ABI_VERSION of the caller */
    uint32_t struct_size; /* sizeof(linear_ce_call) of the caller; later versions only append fields */

    int64_t batch, hidden, vocab;
    uint32_t layout;
    int32_t threads; /* upper limit */
    double soft_cap; /* 0: none */
    double logsumexp_weight;

    gdn_tensor x;          /* in: [batch, hidden] f32 or bf16 */
    gdn_tensor w;          /* in: as layout says, of x's dtype */
    const int64_t* labels; /* in: [batch], each in [0, vocab) */
    gdn_tensor d_loss;     /* in, gradients: [batch] f32 */
    gdn_tensor d_lse;      /* in, gradients: [batch] f32; none: zeros */
    gdn_tensor loss, lse;  /* out: [batch] f32 */
    int64_t* argmax;       /* out: [batch], the lowest id of the largest s; NULL: not wanted */
    gdn_tensor gx, gw;     /* out, gradients: like x and w */

    void* workspace; /* the bytes that the kernel asked for, 64-byte aligned, holding garbage; NULL if 0 */
    size_t workspace_size;
} linear_ce_call;

/* Describes a kernel. Set abi_version to LINEAR_CE_ABI_VERSION and struct_size to sizeof(linear_ce_kernel_info). */
typedef struct linear_ce_kernel_info {
    uint32_t abi_version;
    uint32_t struct_size;
    const char* name;
    uint32_t dtypes; /* of x and w: (1u << GDN_F32) | ...; f32 is required */
    uint32_t reserved;
    /* Entry points. Each may be NULL. Each returns one of the statuses of gdn_kernel.h. */
    int (*forward)(const linear_ce_call* call);   /* loss, lse and argmax */
    int (*gradients)(const linear_ce_call* call); /* loss, lse, argmax, gx and gw */
    /* Bytes of workspace that `entry` needs for this call, whose tensors have no data yet. NULL: none. */
    size_t (*workspace)(const linear_ce_call* call, uint32_t entry);
} linear_ce_kernel_info;

extern GDN_EXPORT const linear_ce_kernel_info linear_ce_kernel;

#ifdef __cplusplus
}
#endif

#endif
