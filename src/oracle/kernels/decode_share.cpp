#include "oracle/kernels/decode_share.h"

#include <algorithm>
#include <cmath>

namespace gdnctl::oracle::decoding {

namespace {

// States that lie beyond the second-level cache are fetched ahead.
constexpr std::size_t k_fetch_from = std::size_t{1} << 20U;
// The range of sigma: far from the limits of fp32, and a step in a hundred at most leaves it.
constexpr double k_lowest_scale = 0x1p-20;
constexpr double k_highest_scale = 0x1p20;
// Value heads of a group, unless a key head has more.
constexpr std::size_t k_group_heads = 16;

// In 16 sums, which a processor adds side by side.
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

// `sigma`: the state is that much larger than what is stored; it takes the step's decay where it can (see
// decode_task.h). nullptr: what is stored is the state.
void set_factors(const Forward32& f, std::size_t row, std::size_t head, std::size_t padded, const Keys& keys,
                 double* sigma, DecodeTask& task) {
    double alpha[k_decode_most];
    double product = sigma == nullptr ? 1 : *sigma;  // a_t sigma
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
        double between = 1;  // A_tj
        for (std::size_t j = t + 1; j-- > 0;) {
            to.in_d[j] = narrow(-static_cast<double>(to.beta) * between * static_cast<double>(keys.kk[j][t]));
            to.in_o[j] = narrow(static_cast<double>(f.scale) * between * static_cast<double>(keys.kq[j][t]));
            between *= alpha[j];
        }
    }
    double after = 1;
    task.decay = narrow(product);
    if (sigma != nullptr) {
        const bool inside = product >= k_lowest_scale && product <= k_highest_scale;
        *sigma = inside ? product : 1;
        if (inside) task.decay = 1;
        after = 1 / *sigma;
    }
    for (std::size_t t = padded; t-- > 0;) {
        task.factors[t].later = narrow(after);
        after *= alpha[t];
    }
}

std::size_t most_tokens_of(const Forward32& f) {
    std::size_t most = 1;
    for (const GdnSequence& s : f.sequences) most = std::max(most, padded_tokens(tokens_of(s)));
    return most;
}

// Whether k and q of steps of so many tokens are read where the caller keeps them.
bool stays(const Forward32& f, std::size_t tokens) {
    return tokens == 1 && !f.l2norm_eps && f.k.storage == Storage::f32 && f.q.storage == Storage::f32;
}

// Whether the states lie beyond the second-level cache.
bool worth_fetching(const Forward32& f) {
    return f.sequences.size() * size(f.dims.Hv * f.dims.dk * f.dims.dv) * sizeof(float) > k_fetch_from;
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

void pack(const Forward32& f, std::size_t row, std::size_t tokens, std::size_t padded, std::size_t head, Keys& keys) {
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
    const bool one = padded == 1;
    float* rows_k = one ? keys.k_room : keys.rows_k;
    float* rows_q = one ? keys.q_room : keys.rows_q;
    if (stays(f, padded)) {
        keys.k = static_cast<const float*>(f.k.data) + (row * size(f.dims.Hk) + head) * dk;
        keys.q = static_cast<const float*>(f.q.data) + (row * size(f.dims.Hk) + head) * dk;
        keys.kk[0][0] = 0;
        keys.kq[0][0] = dot(keys.k, keys.q, dk);
        return;
    }
    pack_one(f.k, rows_k, keys.k_room);
    pack_one(f.q, rows_q, keys.q_room);
    keys.k = keys.k_room;
    keys.q = keys.q_room;
    for (std::size_t j = 0; j < padded; ++j) {
        const float* k = rows_k + j * dk;
        for (std::size_t t = j; t < padded; ++t) {
            keys.kk[j][t] = t == j ? 0 : dot(k, rows_k + t * dk, dk);
            keys.kq[j][t] = dot(k, rows_q + t * dk, dk);
        }
    }
}

Share::Share(const Forward32& forward, std::size_t begin, std::size_t end)
    : m_f(forward),
      m_next(begin),
      m_end(end),
      m_group(std::min(std::max<std::size_t>(k_group_heads / heads(), 1), end - begin)),
      m_fetch(worth_fetching(forward)),
      m_keys(new Keys[2 * m_group]),
      m_tasks(new DecodeTask[m_group * heads()]) {
    const std::size_t most = most_tokens_of(forward);
    if (!stays(forward, most)) {
        const std::size_t one = rounded(size(forward.dims.dk) * most);
        m_room.reset(new float[2 * m_group * 4 * one]);
        for (std::size_t i = 0; i < 2 * m_group; ++i) {
            m_keys[i].k_room = m_room.get() + 4 * i * one;
            m_keys[i].q_room = m_keys[i].k_room + one;
            m_keys[i].rows_k = m_keys[i].q_room + one;
            m_keys[i].rows_q = m_keys[i].rows_k + one;
        }
    }
    for (std::size_t key_head = begin; key_head < begin + m_group; ++key_head) fetch_keys(key_head);
}

// Rows of tokens come from afar, and little is known of them before they are here.
void Share::fetch_keys(std::size_t key_head) const {
    const GdnSequence& s = sequence(key_head);
    if (tokens_of(s) == 0) return;
    const auto dk = size(m_f.dims.dk);
    const std::size_t at = (size(s.begin) * key_heads() + key_head % key_heads()) * dk;
    for (const ConstValues& x : {m_f.k, m_f.q}) {
        const char* from = address_of(x, at);
        for (std::size_t i = 0; i < dk * size_of(x.storage); i += k_cache_line) __builtin_prefetch(from + i);
    }
}

// Those of the next group, a key head's during each first value head of this one.
void Share::fetch_keys_beside(std::size_t i) {
    DecodeTask& task = m_tasks[i];
    task.soon[0] = nullptr;
    const std::size_t key_head = m_next + i / heads();
    if (i % heads() > 0 || key_head >= m_end || tokens_of(sequence(key_head)) == 0) return;
    const auto dk = size(m_f.dims.dk);
    const std::size_t at = (size(sequence(key_head).begin) * key_heads() + key_head % key_heads()) * dk;
    task.soon[0] = address_of(m_f.k, at);
    task.soon[1] = address_of(m_f.q, at);
    task.soon_bytes = dk * size_of(m_f.k.storage);
}

void Share::set_task(const Place& place, const Keys& keys, double* sigma, DecodeTask& task) const {
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
    set_factors(m_f, row, place.head, task.padded, keys, sigma, task);
}

}  // namespace gdnctl::oracle::decoding
