/* The C interface between a Gated DeltaNet kernel and its caller. docs/writing-a-kernel.md explains it.
 *
 * A kernel is a shared object that exports one object, `gdn_kernel`, of the type gdn_kernel_info below. `gdnctl oracle`
 * judges and times such objects, and libgdn is one. This file is plain C99 and needs only standard headers.
 *
 * For each value head with key head h, a state S of dk rows and dv columns, and per token t:
 *
 *     S  = exp(g_t) S                   decay
 *     d  = beta_t (v_t - S^T k_t)       error of the prediction S^T k_t
 *     S  = S + k_t d^T
 *     out_t = scale S^T q_t
 *
 * If `l2norm` is not 0, k_t and q_t are first divided by sqrt(|x|^2 + l2norm_eps).
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

/* Results of an entry point. */
enum {
    GDN_OK = 0,
    GDN_UNSUPPORTED = 1, /* a shape, dtype, stride or option that this kernel does not support; nothing was written */
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

/* An array of up to 4 axes. data == NULL: no such tensor. Strides count elements, not bytes. A kernel may reject
 * everything but row-major arrays without gaps; gdnctl passes no others. Data is aligned to 64 bytes. */
typedef struct gdn_tensor {
    void* data;
    uint32_t dtype;
    uint32_t rank;
    int64_t shape[4];
    int64_t strides[4];
} gdn_tensor;

/* One call. Do not write inputs. Outputs hold garbage at first: write them completely, and do not add to them. Do not
 * read or write anything after the call has returned. */
typedef struct gdn_call {
    uint32_t abi_version; /* GDN_ABI_VERSION of the caller */
    uint32_t struct_size; /* sizeof(gdn_call) of the caller; later versions only append fields */

    int64_t batch, tokens, key_heads, value_heads, key_dim, value_dim;
    int64_t sequences;         /* N: number of states; equals batch without cu_seqlens */
    const int64_t* cu_seqlens; /* NULL, or N+1 rising offsets: batch is 1, sequence n is tokens cu[n] .. cu[n+1]-1 */
    uint32_t head_map;
    uint32_t l2norm;
    double l2norm_eps;
    double scale;
    int32_t threads; /* upper limit */
    uint32_t reserved;

    gdn_tensor q, k;          /* in: [batch, tokens, key_heads, key_dim] */
    gdn_tensor v;             /* in: [batch, tokens, value_heads, value_dim] */
    gdn_tensor g;             /* in: [batch, tokens, value_heads] f32, logarithm of the decay; -infinity is allowed */
    gdn_tensor beta;          /* in: [batch, tokens, value_heads] f32 */
    gdn_tensor initial_state; /* in: [sequences, value_heads, key_dim, value_dim] f32; none: zeros */
    gdn_tensor out; /* out: [batch, tokens, value_heads, value_dim]; outside all sequences: leave as is, or write 0 */
    gdn_tensor final_state; /* out: like initial_state; none: not wanted. A sequence without tokens keeps its
                               state. decode: may share memory with initial_state */

    gdn_tensor d_out, d_final_state;  /* in, backward: cotangents; no d_final_state: zeros */
    gdn_tensor dq, dk, dv, dg, dbeta; /* out, backward: like q, k, v, g, beta; dg, dbeta f32 */
    gdn_tensor d_initial_state;       /* out, backward: like initial_state; none: not wanted */

    void* workspace; /* the bytes that the kernel asked for, 64-byte aligned, holding garbage; NULL if 0 */
    size_t workspace_size;
} gdn_call;

/* Describes a kernel. Set abi_version to GDN_ABI_VERSION and struct_size to sizeof(gdn_kernel_info). Later versions
 * only append fields. */
typedef struct gdn_kernel_info {
    uint32_t abi_version;
    uint32_t struct_size;
    const char* name;
    uint32_t dtypes; /* of q, k, v and out: (1u << GDN_F32) | ...; f32 is required */
    uint32_t reserved;
    /* Entry points. Each may be NULL; gdnctl judges and times only those that exist. Each returns one of the codes
     * above. */
    int (*forward)(const gdn_call* call);
    int (*backward)(const gdn_call* call); /* recomputes what it needs of the forward */
    int (*decode)(const gdn_call* call);   /* forward for a few tokens, reading and writing states */
    /* Bytes of workspace that `entry` needs for this call, whose tensors have no data yet. NULL: none. */
    size_t (*workspace)(const gdn_call* call, uint32_t entry);
    /* Tokens per chunk, 1 to 4096; 0: unknown, or no chunks. gdnctl takes it into account when it judges errors and
     * looks for mistakes. Kernels compiled before this field existed have a smaller struct_size and still load. */
    uint32_t chunk;
    uint32_t reserved_end;
} gdn_kernel_info;

extern GDN_EXPORT const gdn_kernel_info gdn_kernel;

#ifdef __cplusplus
}
#endif

#endif
