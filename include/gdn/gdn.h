/* libgdn: the Gated DeltaNet kernels of gdnctl as a library. docs/libgdn.md has an example.
 *
 * A gdn_call (gdn_kernel.h) describes a call. gdn_call_init sets its sizes, gdn_call_arrays its fp32 arrays. Set other
 * fields directly: cu_seqlens with sequences, head_map, l2norm with l2norm_eps, scale, threads. Arrays are row-major
 * without gaps. All functions may be called from several threads at once.
 */
#ifndef GDN_H
#define GDN_H

#include <gdn/gdn_kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

/* "0.2.0" */
GDN_EXPORT const char* gdn_version(void);

/* A status of gdn_kernel.h in words. */
GDN_EXPORT const char* gdn_status_text(int status);

/* Sets the sizes. Defaults: one sequence per row of the batch, interleaved heads, scale key_dim^-0.5, no l2norm, one
 * thread, no arrays. */
GDN_EXPORT void gdn_call_init(gdn_call* call, int64_t batch, int64_t tokens, int64_t key_heads, int64_t value_heads,
                              int64_t key_dim, int64_t value_dim);

/* Sets the fp32 arrays of a forward pass; initial_state may be NULL. Set `sequences` before this if you change it. */
GDN_EXPORT void gdn_call_arrays(gdn_call* call, const float* q, const float* k, const float* v, const float* g,
                                const float* beta, const float* initial_state, float* out, float* final_state);

/* The same with q, k, v and out in bf16 (the upper halves of fp32 values). Gates, beta and states are fp32. */
GDN_EXPORT void gdn_call_arrays_bf16(gdn_call* call, const uint16_t* q, const uint16_t* k, const uint16_t* v,
                                     const float* g, const float* beta, const float* initial_state, uint16_t* out,
                                     float* final_state);

/* Sets the further fp32 arrays of a backward pass; d_final_state and d_initial_state may be NULL. */
GDN_EXPORT void gdn_call_gradients(gdn_call* call, const float* d_out, const float* d_final_state, float* dq, float* dk,
                                   float* dv, float* dg, float* dbeta, float* d_initial_state);

/* The same with d_out, dq, dk and dv in bf16. */
GDN_EXPORT void gdn_call_gradients_bf16(gdn_call* call, const uint16_t* d_out, const float* d_final_state, uint16_t* dq,
                                        uint16_t* dk, uint16_t* dv, float* dg, float* dbeta, float* d_initial_state);

/* Computes out and final_state. The result is the same for any `threads`, bit for bit. q, k, v, out and their gradients
 * may each be fp32 or bf16. All arithmetic is fp32, and bf16 results are rounded to nearest even.
 * GDN_UNSUPPORTED: another dtype, or strides. */
GDN_EXPORT int gdn_forward(const gdn_call* call);

/* The same for at most 8 tokens per sequence; its time is bound by reading and writing the states. final_state is
 * required and may be initial_state. GDN_UNSUPPORTED: more tokens. */
GDN_EXPORT int gdn_decode(const gdn_call* call);

/* Computes gradients of q, k, v, g, beta and the initial state; out and final_state are not used. Computes the forward
 * again. Without a workspace of gdn_workspace(call, GDN_BACKWARD) bytes, it allocates the memory. */
GDN_EXPORT int gdn_backward(const gdn_call* call);

/* Bytes of workspace for an entry point (GDN_FORWARD, GDN_BACKWARD, GDN_DECODE); 0 for a call that it rejects. */
GDN_EXPORT size_t gdn_workspace(const gdn_call* call, uint32_t entry);

#ifdef __cplusplus
}
#endif

#endif
