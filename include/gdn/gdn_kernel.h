/* The C interface between a Gated DeltaNet kernel and whoever calls it. docs/writing-a-kernel.md explains it.
 *
 * A kernel is a shared object that exports one object, `gdn_kernel`, of the type gdn_kernel_info below. `gdnctl oracle`
 * judges and times such objects, and libgdn is one. The file is plain C99 and needs nothing but the standard headers.
 *
 * For each value head, with h its key head, a state S of dk rows and dv columns, and per token t:
 *
 *     S  = exp(g_t) S                   decay
 *     d  = beta_t (v_t - S^T k_t)       what the state does not know yet
 *     S  = S + k_t d^T
 *     out_t = scale S^T q_t
 *
 * where k_t and q_t are first divided by sqrt(|x|^2 + l2norm_eps) if `l2norm` is not 0.
 */
#ifndef GDN_KERNEL_H
#define GDN_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GDN_ABI_VERSION 1u

#if defined(__GNUC__)
#define GDN_EXPORT __attribute__((visibility("default")))
#else
#define GDN_EXPORT
#endif

/* What an entry point returns. */
enum {
    GDN_OK = 0,
    GDN_UNSUPPORTED = 1, /* a shape, dtype, stride or option that this kernel does not do; nothing was written */
    GDN_INVALID = 2,     /* the call contradicts itself */
    GDN_NO_MEMORY = 3,
    GDN_FAILED = 4
};

/* Dtypes of tensors. */
enum { GDN_F32 = 1, GDN_BF16 = 2, GDN_F16 = 3, GDN_F64 = 4 };

/* Entry points. */
enum { GDN_FORWARD = 1, GDN_BACKWARD = 2, GDN_DECODE = 3 };

/* The key head of value head h, with r = value_heads / key_heads. */
enum { GDN_HEADS_INTERLEAVED = 0 /* h / r */, GDN_HEADS_TILED = 1 /* h % key_heads */ };

/* An array of up to 4 axes. data == NULL: there is no such tensor. Strides count elements, not bytes. A kernel may
 * refuse everything but row-major arrays without gaps; gdnctl passes no others. Data begins at a multiple of 64 bytes.
 */
typedef struct gdn_tensor {
    void* data;
    uint32_t dtype;
    uint32_t rank;
    int64_t shape[4];
    int64_t strides[4];
} gdn_tensor;

/* One call. Inputs must not be written, and outputs hold garbage: they are to be written in full and not to be added
 * to. Nothing may be read or written after the call has returned. */
typedef struct gdn_call {
    uint32_t abi_version; /* GDN_ABI_VERSION of the caller */
    uint32_t struct_size; /* sizeof(gdn_call) of the caller; later versions add fields at the end only */

    int64_t batch, tokens, key_heads, value_heads, key_dim, value_dim;
    int64_t sequences;         /* N: states; the batch without cu_seqlens */
    const int64_t* cu_seqlens; /* NULL, or N+1 rising offsets: batch is 1, sequence n is tokens cu[n] .. cu[n+1]-1 */
    uint32_t head_map;
    uint32_t l2norm;
    double l2norm_eps;
    double scale;
    int32_t threads; /* at most so many */
    uint32_t reserved;

    gdn_tensor q, k;          /* in: [batch, tokens, key_heads, key_dim] */
    gdn_tensor v;             /* in: [batch, tokens, value_heads, value_dim] */
    gdn_tensor g;             /* in: [batch, tokens, value_heads] f32, logarithm of the decay; -infinity is allowed */
    gdn_tensor beta;          /* in: [batch, tokens, value_heads] f32 */
    gdn_tensor initial_state; /* in: [sequences, value_heads, key_dim, value_dim] f32, or none: zeros */
    gdn_tensor out; /* out: [batch, tokens, value_heads, value_dim]; tokens outside all sequences: untouched, or 0 */
    gdn_tensor final_state; /* out: like initial_state, or none: not wanted. A sequence without tokens passes its
                               state on. decode: may be the memory of initial_state */

    gdn_tensor d_out, d_final_state;  /* in, backward: cotangents; d_final_state may be none: zeros */
    gdn_tensor dq, dk, dv, dg, dbeta; /* out, backward: like q, k, v, g, beta; dg, dbeta f32 */
    gdn_tensor d_initial_state;       /* out, backward: like initial_state, or none: not wanted */

    void* workspace; /* as many bytes as the query asked for, 64-byte aligned, with garbage in them; or NULL for 0 */
    size_t workspace_size;
} gdn_call;

/* What a kernel is. Fill abi_version and struct_size with GDN_ABI_VERSION and sizeof(gdn_kernel_info). */
typedef struct gdn_kernel_info {
    uint32_t abi_version;
    uint32_t struct_size;
    const char* name;
    uint32_t dtypes; /* of q, k, v and out: (1u << GDN_F32) | ...; f32 is a must */
    uint32_t reserved;
    /* Each may be NULL: the kernel has no such entry point, and is judged and timed by those it has. Each returns one
     * of the codes above. */
    int (*forward)(const gdn_call* call);
    int (*backward)(const gdn_call* call); /* computes what it needs of the forward itself */
    int (*decode)(const gdn_call* call);   /* forward for a few tokens, from state to state */
    /* Bytes of workspace that `entry` wants for this call, whose tensors have no data yet. NULL: none. */
    size_t (*workspace)(const gdn_call* call, uint32_t entry);
} gdn_kernel_info;

extern GDN_EXPORT const gdn_kernel_info gdn_kernel;

#ifdef __cplusplus
}
#endif

#endif
