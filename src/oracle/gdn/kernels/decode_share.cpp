#include "oracle/gdn/kernels/decode_share.h"

#include <algorithm>
#include <atomic>
#include <cmath>

namespace gdnctl::oracle::decoding {

namespace {

// Larger states exceed the second-level cache, so kernels prefetch them or read them in order.
constexpr std::size_t k_far_from = std::size_t{1} << 20U;
// Value heads per group, unless a key head has more.
constexpr std::size_t k_group_heads = 16;

// In 16 sums, which a processor can add in parallel.
float dot(const float* a, const float* b, std::size_t count) {
    float sums[16] = {};
    std::size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        for (std::size_t x = 0; x < 16; ++x) sums[x] += a[i + x] * b[i + x];
    }
    float sum = 0;
    for (; i < count; ++i) sum += a[i] * b[i];
    for (std::size_t width = 8; width > 0; width /= 2) {
        for (std::size_t x = 0; x < width; ++x) sums[x] += sums[x + width];
    }
    return sum + sums[0];
}

// pending: the writes before this step's tokens, and afterwards those before the next step; nullptr: the stored state
// is current.
void set_factors(const Forward32& f, std::size_t row, std::size_t head, std::size_t padded, const Keys& keys,
                 HeadWrites* pending, DecodeTask& task) {
    const std::size_t before = task.writes.count;
    double alpha[k_decode_most];
    double weights[k_decode_most];
    double product = 1;  // a_t, times base
    if (pending != nullptr) {
        product = pending->base;
        std::copy_n(pending->weights, before, weights);
    }
    const auto narrow = [](double x) { return static_cast<float>(x); };
    for (std::size_t t = 0; t < padded; ++t) {
        DecodeFactors& to = task.factors[t];
        const bool there = t < task.tokens;
        const std::size_t at = (row + t) * size(f.dims.Hv) + head;
        alpha[t] = there ? std::exp(static_cast<double>(f.g[at])) : 1;
        to.beta = there ? f.beta[at] : 0;
        product *= alpha[t];
        to.from_state = narrow(-static_cast<double>(to.beta) * product);
        to.out_state = narrow(static_cast<double>(f.scale) * product);
        const auto set_source = [&](std::size_t j, double weight) {
            to.in_d[j] = narrow(-static_cast<double>(to.beta) * weight * static_cast<double>(keys.kk[t][j]));
            to.in_o[j] = narrow(static_cast<double>(f.scale) * weight * static_cast<double>(keys.kq[t][j]));
        };
        if (!there && pending != nullptr) continue;  // nobody needs it, and there may be no memory for it
        for (std::size_t j = 0; j < before; ++j) {
            weights[j] *= alpha[t];
            set_source(j, weights[j]);
        }
        double between = 1;  // A_tj
        for (std::size_t j = t + 1; j-- > 0;) {
            set_source(before + j, between);
            between *= alpha[j];
        }
    }
    task.decay = narrow(product);
    double after = 1;
    for (std::size_t t = padded; t-- > 0;) {
        task.factors[t].later = narrow(after);
        if (pending != nullptr && t < task.tokens) weights[before + t] = after;
        after *= alpha[t];
    }
    if (pending == nullptr) return;
    pending->growth *= after;
    pending->base = product;
    std::copy_n(weights, before + task.tokens, pending->weights);
}

std::size_t most_tokens_of(const Forward32& f) {
    std::size_t most = 1;
    for (const GdnSequence& s : f.sequences) most = std::max(most, padded_tokens(tokens_of(s)));
    return most;
}

// Whether k and q of steps with this many tokens are read from the caller's memory.
bool stays(const Forward32& f, std::size_t tokens) {
    return tokens == 1 && !f.l2norm_eps && f.k.storage == Storage::f32 && f.q.storage == Storage::f32;
}

// Whether the states exceed the second-level cache.
bool lie_far(const Forward32& f) {
    return f.sequences.size() * size(f.dims.Hv * f.dims.dk * f.dims.dv) * sizeof(float) > k_far_from;
}

const char* address_of(const ConstValues& x, std::size_t at) {
    return static_cast<const char*>(x.data) + at * size_of(x.storage);
}

}  // namespace

DecodeKernel kernel_for(Isa isa) {
    switch (isa) {
        case Isa::avx512: return decode_avx512();
        case Isa::avx2: return decode_avx2();
        case Isa::scalar: break;
    }
    return decode_scalar();
}

void pack(const Forward32& f, std::size_t row, std::size_t tokens, std::size_t padded, std::size_t head,
          const KeysBefore& before, const DecodeKernel& kernel, Keys& keys) {
    const std::size_t dk = size(f.dims.dk);
    const auto pack_one = [&](const ConstValues& from, float* rows, float* to) {
        for (std::size_t t = 0; t < padded; ++t) {
            float* y = rows + t * dk;
            if (t >= tokens) {
                std::fill_n(y, dk, 0.0F);
            } else {
                widen(from, ((row + t) * size(f.dims.Hk) + head) * dk, dk, y);
                const float factor = f.l2norm_eps ? 1 / std::sqrt(dot(y, y, dk) + *f.l2norm_eps) : 1;
                for (std::size_t i = 0; i < dk && f.l2norm_eps; ++i) y[i] *= factor;
            }
            for (std::size_t i = 0; i < dk && rows != to; ++i) to[i * padded + t] = y[i];
        }
    };
    const float* rows_q = nullptr;
    if (stays(f, padded)) {
        keys.k = static_cast<const float*>(f.k.data) + (row * size(f.dims.Hk) + head) * dk;
        keys.q = static_cast<const float*>(f.q.data) + (row * size(f.dims.Hk) + head) * dk;
        keys.by_token = keys.k;
        rows_q = keys.q;
    } else {
        const bool one = padded == 1;
        float* rows = one ? keys.k_room : keys.rows_k;
        pack_one(f.k, rows, keys.k_room);
        keys.by_token = rows;
        rows = one ? keys.q_room : keys.rows_q;
        pack_one(f.q, rows, keys.q_room);
        rows_q = rows;
        keys.k = keys.k_room;
        keys.q = keys.q_room;
    }
    for (std::size_t t = 0; t < tokens; ++t) {
        const float *k = keys.by_token + t * dk, *q = rows_q + t * dk;
        kernel.products(before.k, before.count, dk, k, q, keys.kk[t], keys.kq[t]);
        kernel.products(keys.by_token, t + 1, dk, k, q, keys.kk[t] + before.count, keys.kq[t] + before.count);
        keys.kk[t][before.count + t] = 0;
    }
    // Tokens beyond the step's get zeros.
    for (std::size_t t = tokens; t < padded && before.count == 0; ++t) {
        std::fill_n(keys.kk[t], t + 1, 0.0F);
        std::fill_n(keys.kq[t], t + 1, 0.0F);
    }
}

std::size_t group_of(const Forward32& f, std::size_t key_heads) {
    const std::size_t heads = size(f.dims.Hv / f.dims.Hk);
    return std::min(std::max<std::size_t>(k_group_heads / heads, 1), key_heads);
}

void make_room(const Forward32& f, std::size_t key_heads, ShareRoom& room) {
    const std::size_t group = group_of(f, key_heads);
    const std::size_t most = most_tokens_of(f);
    const std::size_t one = stays(f, most) ? 0 : rounded(size(f.dims.dk) * most);
    const auto at_least = [](auto& list, std::size_t count) {
        if (list.size() < count) list.resize(count);
    };
    at_least(room.keys, 2 * group);
    at_least(room.tasks, group * size(f.dims.Hv / f.dims.Hk));
    at_least(room.rows, 2 * group * 4 * one);
    for (std::size_t i = 0; i < 2 * group; ++i) {
        Keys& keys = room.keys[i];
        keys.k_room = room.rows.data() + 4 * i * one;
        keys.q_room = keys.k_room + one;
        keys.rows_k = keys.q_room + one;
        keys.rows_q = keys.rows_k + one;
    }
}

std::size_t take_share(std::vector<ShareRoom>& rooms, std::size_t parts) {
    std::size_t part = Helpers::number() % parts;
    while (std::atomic_ref(rooms[part].taken).exchange(true)) part = (part + 1) % parts;
    return part;
}

Share::Share(const Forward32& forward, const DecodeKernel& kernel, ShareRoom& room, std::size_t begin, std::size_t end)
    : m_f(forward),
      m_kernel(kernel),
      m_room(room),
      m_next(begin),
      m_end(end),
      m_group(group_of(forward, end - begin)),
      m_far(lie_far(forward)) {
    for (std::size_t key_head = begin; key_head < begin + m_group; ++key_head) fetch_keys(key_head);
}

// Rows of tokens come from main memory, and the processor cannot predict them.
void Share::fetch_keys(std::size_t key_head) const {
    const GdnSequence& s = sequence(key_head);
    if (tokens_of(s) == 0) return;
    const auto dk = size(m_f.dims.dk);
    const std::size_t at = (size(s.begin) * key_heads() + key_head % key_heads()) * dk;
    for (const ConstValues& x : {m_f.k, m_f.q}) {
        const char* from = address_of(x, at);
        const std::size_t bytes = dk * size_of(x.storage);
        for (std::size_t i = 0; i < bytes; i += k_cache_line) __builtin_prefetch(from + i);
    }
}

// Prefetches the keys of the next group, one key head during each first value head of this group.
void Share::fetch_keys_beside(DecodeTask& task, std::size_t key_head, const KeysBefore& before) const {
    const auto dk = size(m_f.dims.dk);
    const std::size_t at = (size(sequence(key_head).begin) * key_heads() + key_head % key_heads()) * dk;
    task.soon[0] = address_of(m_f.k, at);
    task.soon[1] = address_of(m_f.q, at);
    task.soon_bytes[0] = dk * size_of(m_f.k.storage);
    task.soon_bytes[1] = dk * size_of(m_f.q.storage);
    task.soon[2] = before.k;
    task.soon_bytes[2] = before.count * dk * sizeof(float);
}

void Share::set_task(const Place& place, const Keys& keys, HeadWrites* pending, DecodeTask& task) const {
    const std::size_t dv = size(m_f.dims.dv);
    const std::size_t row = size(m_f.sequences[place.n].begin);
    const std::size_t at = (row * size(m_f.dims.Hv) + place.head) * dv;
    task.v = m_f.v + at;
    task.out = m_f.out + at;
    task.value_stride = size(m_f.dims.Hv) * dv;
    task.dk = size(m_f.dims.dk);
    task.columns = dv;
    task.k = keys.k;
    task.q = keys.q;
    set_factors(m_f, row, place.head, task.padded, keys, pending, task);
}

}  // namespace gdnctl::oracle::decoding
