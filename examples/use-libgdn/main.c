/* A forward pass with libgdn:  cc main.c $(pkg-config --cflags --libs gdn) -lm -o main */
#include <gdn/gdn.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { T = 256, HK = 2, HV = 4, D = 64 };

static float *array(int count, float scale, float step)
{
    float *x = malloc((size_t)count * sizeof *x);
    for (int i = 0; i < count; ++i) x[i] = scale * sinf(step * (float)i);
    return x;
}

int main(void)
{
    float *q = array(T * HK * D, 1, 0.37f), *k = array(T * HK * D, 1, 0.53f), *v = array(T * HV * D, 1, 0.19f);
    float *g = array(T * HV, 0, 0), *beta = array(T * HV, 0, 0);
    float *out = array(T * HV * D, 0, 0), *state = array(HV * D * D, 0, 0);
    for (int i = 0; i < T * HV; ++i) g[i] = -0.1f, beta[i] = 0.5f;

    gdn_call call;
    gdn_call_init(&call, 1, T, HK, HV, D, D);
    gdn_call_arrays(&call, q, k, v, g, beta, NULL, out, state);
    call.l2norm = 1;
    call.l2norm_eps = 1e-6;
    call.threads = 2;
    const int status = gdn_forward(&call);
    printf("libgdn %s: %s; out[last] = %.6f, state[0] = %.6f\n", gdn_version(), gdn_status_text(status),
           out[T * HV * D - 1], state[0]);
    return status;
}
