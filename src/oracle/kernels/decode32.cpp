// Decode steps on plain arrays: who computes what. A task is a key head of a sequence with its value heads.
#include "gdnctl/oracle/decode32.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "oracle/kernels/aligned.h"
#include "oracle/kernels/simd/decode_task.h"
#include "oracle/kernels/tasks.h"

namespace gdnctl::oracle {

namespace {

constexpr std::size_t k_row = 16;  // floats; rows of a cache's states begin at a cache line
// A thread takes longer to start than so many bytes of states take to pass.
constexpr std::size_t k_bytes_a_thread = std::size_t{2} << 20U;

DecodeKernel kernel_for(Isa isa) {
    switch (isa) {
        case Isa::avx512: return decode_avx512();
        case Isa::avx2: return decode_avx2();
        case Isa::scalar: break;
    }
    return decode_scalar();
}

std::size_t size(std::int64_t x) { return static_cast<std::size_t>(x); }
std::size_t rounded(std::size_t x) { return (x + k_row - 1) / k_row * k_row; }
std::size_t tokens_of(const GdnSequence& s) { return static_cast<std::size_t>(s.end - s.begin); }
// The kernels' number of tokens.
std::size_t padded_tokens(std::size_t tokens) { return tokens <= 2 ? tokens : tokens <= 4 ? 4 : 8; }

std::vector<std::vector<std::size_t>> heads_by_key(const GdnDims& dims, HeadMap map) {
    std::vector<std::vector<std::size_t>> heads(size(dims.Hk));
    for (std::int64_t h = 0; h < dims.Hv; ++h) heads[size(key_head_of(h, dims, map))].push_back(size(h));
    return heads;
}

// q and k of one key head for one step, element by element: [dk][padded tokens], zeros beyond the step's tokens.
struct Keys {
    std::vector<float> room;                 // of all of these
    float *k, *q;                            // [dk][token]
    float *rows_k, *rows_q;                  // [token][dk]; the same as k and q where there is one token
    float kk[k_decode_most][k_decode_most];  // k_j . k_t
    float kq[k_decode_most][k_decode_most];  // k_j . q_t

    explicit Keys(std::size_t dk) : room(4 * dk * k_decode_most) {
        const std::size_t one = dk * k_decode_most;
        k = room.data();
        q = k + one;
        rows_k = q + one;
        rows_q = rows_k + one;
    }
};

// In 16 sums, which a processor adds side by side.
float dot(const float* a, const float* b, std::size_t count) {
    float sums[16] = {};
    std::size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        for (std::size_t x = 0; x < 16; ++x) sums[x] += a[i + x] * b[i + x];
    }
    float sum = 0;
    for (; i < count; ++i) sum += a[i] * b[i];
    for (const float x : sums) sum += x;
    return sum;
}

void pack(const Forward32& f, std::size_t row, std::size_t tokens, std::size_t padded, std::size_t head, Keys& keys) {
    const std::size_t dk = size(f.dims.dk);
    const auto pack_one = [&](const float* from, float* rows, float* to) {
        for (std::size_t t = 0; t < padded; ++t) {
            const float* x = from + ((row + t) * size(f.dims.Hk) + head) * dk;
            float* y = rows + t * dk;
            if (t >= tokens) {
                std::fill_n(y, dk, 0.0F);
            } else if (f.l2norm_eps) {
                const float factor = 1 / std::sqrt(dot(x, x, dk) + *f.l2norm_eps);
                for (std::size_t i = 0; i < dk; ++i) y[i] = x[i] * factor;
            } else {
                std::copy_n(x, dk, y);
            }
            for (std::size_t i = 0; i < dk && rows != to; ++i) to[i * padded + t] = y[i];
        }
    };
    const bool one = padded == 1;
    const float* rows_k = one ? keys.k : keys.rows_k;
    const float* rows_q = one ? keys.q : keys.rows_q;
    pack_one(f.k, one ? keys.k : keys.rows_k, keys.k);
    pack_one(f.q, one ? keys.q : keys.rows_q, keys.q);
    for (std::size_t j = 0; j < padded; ++j) {
        const float* k = rows_k + j * dk;
        for (std::size_t t = j; t < padded; ++t) {
            keys.kk[j][t] = t == j ? 0 : dot(k, rows_k + t * dk, dk);
            keys.kq[j][t] = dot(k, rows_q + t * dk, dk);
        }
    }
}

void set_factors(const Forward32& f, std::size_t row, std::size_t head, std::size_t padded, const Keys& keys,
                 DecodeTask& task) {
    double alpha[k_decode_most];
    double product = 1;  // a_t
    const auto narrow = [](double x) { return static_cast<float>(x); };
    for (std::size_t t = 0; t < padded; ++t) {
        const bool there = t < task.tokens;
        const std::size_t at = (row + t) * size(f.dims.Hv) + head;
        alpha[t] = there ? std::exp(static_cast<double>(f.g[at])) : 1;
        task.beta[t] = there ? f.beta[at] : 0;
        product *= alpha[t];
        task.from_state[t] = narrow(-static_cast<double>(task.beta[t]) * product);
        task.out_state[t] = narrow(static_cast<double>(f.scale) * product);
        double between = 1;  // A_tj
        for (std::size_t j = t + 1; j-- > 0;) {
            task.in_d[t][j] = narrow(-static_cast<double>(task.beta[t]) * between * static_cast<double>(keys.kk[j][t]));
            task.in_o[t][j] = narrow(static_cast<double>(f.scale) * between * static_cast<double>(keys.kq[j][t]));
            between *= alpha[j];
        }
    }
    double after = 1;
    for (std::size_t t = padded; t-- > 0;) {
        task.later[t] = narrow(after);
        after *= alpha[t];
    }
    task.decay = narrow(product);
}

DecodeTask task_of(const Forward32& f, std::size_t row, std::size_t tokens, std::size_t head, std::size_t padded,
                   const Keys& keys) {
    DecodeTask task;
    const std::size_t dv = size(f.dims.dv);
    const std::size_t at = (row * size(f.dims.Hv) + head) * dv;
    task.v = f.v + at;
    task.out = f.out + at;
    task.value_stride = size(f.dims.Hv) * dv;
    task.dk = size(f.dims.dk);
    task.columns = dv;
    task.tokens = tokens;
    task.k = keys.k;
    task.q = keys.q;
    set_factors(f, row, head, padded, keys, task);
    return task;
}

// Runs step(sequence, key head, keys) for all of them, each thread with its own keys.
template <class Step>
void for_all_keys(const Forward32& f, int threads, const Step& step) {
    const std::size_t key_heads = size(f.dims.Hk);
    const std::size_t bytes = f.sequences.size() * size(f.dims.Hv * f.dims.dk * f.dims.dv) * sizeof(float);
    const auto worth = static_cast<int>(std::min<std::size_t>(1 + bytes / k_bytes_a_thread, 1024));
    run_tasks(f.sequences.size() * key_heads, std::min(threads, worth), [&] {
        return [&step, key_heads, own = Keys(size(f.dims.dk))](std::size_t task) mutable {
            step(task / key_heads, task % key_heads, own);
        };
    });
}

}  // namespace

void decode_step(const Forward32& f, int threads, Isa isa) {
    const DecodeKernel kernel = kernel_for(isa);
    if (size(f.dims.dv) % kernel.lanes != 0) return fused_forward(f, threads, isa);
    const auto heads = heads_by_key(f.dims, f.head_map);
    const std::size_t state = size(f.dims.dk * f.dims.dv);
    const std::vector<float> zeros(f.initial_state == nullptr ? state : 0);
    for_all_keys(f, threads, [&](std::size_t n, std::size_t key_head, Keys& keys) {
        const std::size_t row = size(f.sequences[n].begin);
        const std::size_t tokens = tokens_of(f.sequences[n]);
        const std::size_t padded = padded_tokens(tokens);
        if (tokens > 0) pack(f, row, tokens, padded, key_head, keys);
        for (const std::size_t head : heads[key_head]) {
            const std::size_t at = (n * size(f.dims.Hv) + head) * state;
            const float* from = f.initial_state == nullptr ? zeros.data() : f.initial_state + at;
            float* to = f.final_state + at;
            if (tokens == 0) {
                if (from != to) std::copy_n(from, state, to);
                continue;
            }
            DecodeTask task = task_of(f, row, tokens, head, padded, keys);
            task.read = from;
            task.write = to;
            task.state_stride = size(f.dims.dv);
            kernel.run(task, padded, false);
        }
    });
}

struct DecodeCache::Arrays {
    std::size_t sequences, Hk, Hv, dk, dv, stride;
    AlignedFloats states;                         // [N, Hv, dk, stride]
    AlignedFloats d;                              // [N, Hv, 8, stride]
    std::vector<float> k;                         // [N, Hk, dk * 8]: [dk][tokens] of the last step
    std::vector<float> keep;                      // [N, Hv]
    std::vector<std::size_t> tokens;              // [N, Hk], padded, of the last step
    std::vector<std::vector<std::size_t>> heads;  // by key head

    float* state(std::size_t n, std::size_t head) const { return states.get() + (n * Hv + head) * dk * stride; }
    float* d_of(std::size_t n, std::size_t head) const { return d.get() + (n * Hv + head) * k_decode_most * stride; }
    float* k_of(std::size_t n, std::size_t head) { return k.data() + (n * Hk + head) * k_decode_most * dk; }

    // Nothing is pending any more.
    void forget(std::size_t n, std::size_t head) {
        keep[n * Hv + head] = 1;
        std::fill_n(d_of(n, head), k_decode_most * stride, 0.0F);
    }

    void step(const Forward32& f, std::size_t n, std::size_t key, const DecodeKernel& kernel, Keys& keys);
    void settle(std::size_t n, std::size_t head, std::size_t key, float* to, std::size_t to_stride,
                std::size_t columns);
};

// Writes the state with what is pending to `to`, which may be the state itself.
void DecodeCache::Arrays::settle(std::size_t n, std::size_t head, std::size_t key, float* to, std::size_t to_stride,
                                 std::size_t columns) {
    const std::size_t count = tokens[n * Hk + key];
    const float* from = state(n, head);
    const float* own = d_of(n, head);
    const float factor = keep[n * Hv + head];
    for (std::size_t i = 0; i < dk; ++i) {
        for (std::size_t j = 0; j < columns; ++j) {
            float s = from[i * stride + j] * factor;
            for (std::size_t t = 0; t < count; ++t) s += k_of(n, key)[i * count + t] * own[t * stride + j];
            to[i * to_stride + j] = s;
        }
    }
}

void DecodeCache::Arrays::step(const Forward32& f, std::size_t n, std::size_t key, const DecodeKernel& kernel,
                               Keys& keys) {
    const std::size_t row = size(f.sequences[n].begin);
    const std::size_t count = tokens_of(f.sequences[n]);
    if (count == 0) return;
    const std::size_t padded = padded_tokens(count);
    std::size_t& before = tokens[n * Hk + key];
    if (before != padded) {
        for (const std::size_t head : heads[key]) {
            settle(n, head, key, state(n, head), stride, stride);
            forget(n, head);
        }
        std::fill_n(k_of(n, key), padded * dk, 0.0F);
        before = padded;
    }
    pack(f, row, count, padded, key, keys);
    for (const std::size_t head : heads[key]) {
        DecodeTask task = task_of(f, row, count, head, padded, keys);
        task.write = state(n, head);
        task.read = task.write;
        task.state_stride = stride;
        task.pending_k = k_of(n, key);
        task.d = d_of(n, head);
        task.keep = keep[n * Hv + head];
        kernel.run(task, padded, true);
        keep[n * Hv + head] = task.decay;
    }
    std::copy_n(keys.k, padded * dk, k_of(n, key));
}

DecodeCache::DecodeCache(const GdnDims& dims, HeadMap head_map, std::size_t sequences)
    : m_arrays(std::make_unique<Arrays>()) {
    Arrays& a = *m_arrays;
    a.sequences = sequences;
    a.Hk = size(dims.Hk);
    a.Hv = size(dims.Hv);
    a.dk = size(dims.dk);
    a.dv = size(dims.dv);
    a.stride = rounded(a.dv);
    a.heads = heads_by_key(dims, head_map);
    const std::size_t heads = sequences * a.Hv;
    a.states = aligned_floats(heads * a.dk * a.stride);
    a.d = aligned_floats(heads * k_decode_most * a.stride);
    std::fill_n(a.states.get(), heads * a.dk * a.stride, 0.0F);
    std::fill_n(a.d.get(), heads * k_decode_most * a.stride, 0.0F);
    a.k.assign(sequences * a.Hk * a.dk * k_decode_most, 0);
    a.keep.assign(heads, 1);
    a.tokens.assign(sequences * a.Hk, 1);
}

DecodeCache::DecodeCache(DecodeCache&&) noexcept = default;
DecodeCache& DecodeCache::operator=(DecodeCache&&) noexcept = default;
DecodeCache::~DecodeCache() = default;

void DecodeCache::load(const float* states) {
    Arrays& a = *m_arrays;
    for (std::size_t n = 0; n < a.sequences; ++n) {
        for (std::size_t head = 0; head < a.Hv; ++head) {
            a.forget(n, head);
            for (std::size_t i = 0; i < a.dk; ++i, states += a.dv) {
                std::copy_n(states, a.dv, a.state(n, head) + i * a.stride);
            }
        }
    }
}

void DecodeCache::store(float* states) const {
    Arrays& a = *m_arrays;
    for (std::size_t n = 0; n < a.sequences; ++n) {
        for (std::size_t key = 0; key < a.Hk; ++key) {
            for (const std::size_t head : a.heads[key]) {
                a.settle(n, head, key, states + (n * a.Hv + head) * a.dk * a.dv, a.dv, a.dv);
            }
        }
    }
}

void DecodeCache::step(const Forward32& step, int threads, Isa isa) {
    const DecodeKernel kernel = kernel_for(isa);
    for_all_keys(step, threads,
                 [&](std::size_t n, std::size_t key, Keys& keys) { m_arrays->step(step, n, key, kernel, keys); });
}

}  // namespace gdnctl::oracle
