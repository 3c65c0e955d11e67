// States that a cache keeps between decode steps, with the writes of the last step pending.
#include <algorithm>
#include <vector>

#include "oracle/kernels/decode_share.h"

namespace gdnctl::oracle {

using namespace decoding;

struct DecodeCache::Arrays {
    std::size_t sequences, Hk, Hv, dk, dv, stride;
    AlignedFloats states;                         // [N, Hv], each in panels
    AlignedFloats d;                              // [N, Hv, 8, stride]
    std::vector<float> k;                         // [N, Hk, dk * 8]: [dk][tokens] of the last step
    std::vector<float> keep;                      // [N, Hv]
    std::vector<double> sigma;                    // [N, Hv]
    std::vector<std::size_t> tokens;              // [N, Hk], padded, of the last step
    std::vector<std::vector<std::size_t>> heads;  // by key head

    std::size_t place(std::size_t i, std::size_t column) const {
        const std::size_t first = column / k_decode_panel * k_decode_panel;
        return first * dk + i * std::min(k_decode_panel, stride - first) + column - first;
    }
    float* state(std::size_t n, std::size_t head) const { return states.get() + (n * Hv + head) * dk * stride; }
    float* d_of(std::size_t n, std::size_t head) const { return d.get() + (n * Hv + head) * k_decode_most * stride; }
    float* k_of(std::size_t n, std::size_t head) { return k.data() + (n * Hk + head) * k_decode_most * dk; }

    // Nothing is pending any more.
    void forget(std::size_t n, std::size_t head) {
        keep[n * Hv + head] = 1;
        sigma[n * Hv + head] = 1;
        std::fill_n(d_of(n, head), k_decode_most * stride, 0.0F);
    }

    void begin(std::size_t n, std::size_t key, std::size_t padded);
    const float* at(const Place& p) const { return state(p.n, p.head); }
    double* set(const Place& p, DecodeTask& task);
    void end(const Share& share);
    void settle(std::size_t n, std::size_t head, std::size_t key, std::size_t i, std::size_t first, std::size_t columns,
                float* to);
};

// Writes some columns of row i, all of one panel, with what is pending to `to`, which may be where they are.
void DecodeCache::Arrays::settle(std::size_t n, std::size_t head, std::size_t key, std::size_t i, std::size_t first,
                                 std::size_t columns, float* to) {
    const std::size_t count = tokens[n * Hk + key];
    const float* from = state(n, head) + place(i, first);
    const float* own = d_of(n, head) + first;
    const float* k_row = k_of(n, key) + i * count;
    const float factor = keep[n * Hv + head];
    const auto size_of_state = static_cast<float>(sigma[n * Hv + head]);
    for (std::size_t j = 0; j < columns; ++j) {
        float s = from[j] * factor;
        for (std::size_t t = 0; t < count; ++t) s += k_row[t] * own[t * stride + j];
        to[j] = s * size_of_state;
    }
}

// What is pending has as many tokens as the step that follows; if not, it is written first.
void DecodeCache::Arrays::begin(std::size_t n, std::size_t key, std::size_t padded) {
    std::size_t& before = tokens[n * Hk + key];
    if (before == padded) return;
    for (const std::size_t head : heads[key]) {
        for (std::size_t i = 0; i < dk; ++i) {
            for (std::size_t j = 0; j < stride; j += k_decode_panel) {
                settle(n, head, key, i, j, std::min(k_decode_panel, stride - j), state(n, head) + place(i, j));
            }
        }
        forget(n, head);
    }
    std::fill_n(k_of(n, key), padded * dk, 0.0F);
    before = padded;
}

double* DecodeCache::Arrays::set(const Place& p, DecodeTask& task) {
    task.write = state(p.n, p.head);
    task.read = task.write;
    task.state_stride = stride;
    task.pending_k = k_of(p.n, p.key);
    task.d = d_of(p.n, p.head);
    task.keep = keep[p.n * Hv + p.head];
    return &sigma[p.n * Hv + p.head];
}

// What a group leaves pending.
void DecodeCache::Arrays::end(const Share& share) {
    for (std::size_t i = 0; i < share.count(); ++i) {
        const DecodeTask& task = share.tasks()[i];
        if (task.padded == 0) continue;
        const Place p = share.place(i);
        keep[p.n * Hv + p.head] = task.decay;
        if (share.last_of_key(i)) std::copy_n(task.k, task.padded * dk, k_of(p.n, p.key));
    }
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
    a.heads.resize(a.Hk);
    for (std::size_t key = 0; key < a.Hk; ++key) {
        for (std::size_t i = 0; i < a.Hv / a.Hk; ++i) a.heads[key].push_back(head_of(dims, head_map, key, i));
    }
    const std::size_t heads = sequences * a.Hv;
    a.states = aligned_floats(heads * a.dk * a.stride);
    a.d = aligned_floats(heads * k_decode_most * a.stride);
    std::fill_n(a.states.get(), heads * a.dk * a.stride, 0.0F);
    std::fill_n(a.d.get(), heads * k_decode_most * a.stride, 0.0F);
    a.k.assign(sequences * a.Hk * a.dk * k_decode_most, 0);
    a.keep.assign(heads, 1);
    a.sigma.assign(heads, 1);
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
                for (std::size_t j = 0; j < a.dv; j += k_decode_panel) {
                    std::copy_n(states + j, std::min(k_decode_panel, a.dv - j), a.state(n, head) + a.place(i, j));
                }
            }
        }
    }
}

void DecodeCache::store(float* states) const {
    Arrays& a = *m_arrays;
    for (std::size_t n = 0; n < a.sequences; ++n) {
        for (std::size_t key = 0; key < a.Hk; ++key) {
            for (const std::size_t head : a.heads[key]) {
                float* to = states + (n * a.Hv + head) * a.dk * a.dv;
                for (std::size_t i = 0; i < a.dk; ++i) {
                    for (std::size_t j = 0; j < a.dv; j += k_decode_panel) {
                        a.settle(n, head, key, i, j, std::min(k_decode_panel, a.dv - j), to + i * a.dv + j);
                    }
                }
            }
        }
    }
}

void DecodeCache::step(const Forward32& step, int threads, Isa isa) {
    const DecodeKernel kernel = kernel_for(isa);
    Arrays& a = *m_arrays;
    for_all_shares(step, threads, [&](Share& share) {
        while (share.next(a)) {
            kernel.deferred(share.tasks(), share.count());
            a.end(share);
        }
    });
}

}  // namespace gdnctl::oracle
